"""One row and one rival class: everything the bounds read, each computed once and only when asked for."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from mlayer.certificates.derivatives.ending import FinitePath
from mlayer.certificates.derivatives.jets import JetPath
from mlayer.certificates.derivatives.spectral import SpectralPath, symmetrized, usable_eigenvectors
from mlayer.certificates.linalg import INFLATE, UNIT, frobenius, gram_norm, top_eigenvalue
from mlayer.certificates.problem.model import (
    LARGEST_MU,
    Model,
    exponential_sum,
    exponentials,
    gradients,
    growth_of,
    log_norm,
    rounded_up_exp,
)
from mlayer.numerics.arrays import Array


class Row:
    """One input x with its label."""

    def __init__(
        self, model: Model, x: Array, label: int, M: Array | None = None, E: Array | None = None
    ) -> None:
        """M and E are M(x) and exp(M(x)), if they are known."""
        self.model, self.x, self.label = model, x, label
        self.M = model.weights.matrix(x) if M is None else M
        self.E = exponentials(self.M) if E is None else E
        self.known: dict[int, Pair] = {}  # pairs with numbers that were computed for many rows at once
        self.outputs: Array = model.weights.V + np.tensordot(model.weights.S, self.E, 2)

    @cached_property
    def M_norm(self) -> float:  # noqa: N802
        """||M||_F"""
        return frobenius(self.M)

    @cached_property
    def off(self) -> float:
        """At most how far the computed M is from the true one, in the gauge: its terms may cancel."""
        constants = self.model.constants
        formed = constants.condition * self.model.weights.matrix_rounding(self.x)
        return formed + constants.gauge_error * self.M_norm

    @cached_property
    def M_gauge(self) -> Array:  # noqa: N802
        """P M P^-1"""
        result: Array = self.model.constants.P @ self.M @ self.model.constants.P_inverse
        return result

    @cached_property
    def mu(self) -> float:
        """||exp(s M)||_2 <= e^(s mu) for s >= 0 in the gauge."""
        return log_norm(self.M_gauge) + self.off

    @cached_property
    def unit(self) -> float:
        """Rounding of a computed value, relative to the bound of everything that goes into it.

        docs/theory/certificates-rounding.md: exponentials by squaring, sums of n^2, d and m products.
        """
        n, (m, d) = len(self.M), self.model.white.rows.shape
        size = 4 + self.M_norm + frobenius(self.M_gauge)
        sums = n * n + len(self.model.weights.T0) + m * (1 + math.sqrt(d))
        return UNIT * ((64 * n + 8 * n * n) * size + sums)

    @cached_property
    def growth(self) -> float:
        """Bound of ||exp(s M)||, 0 <= s <= 1, and of the products that it is computed from, without gauge.

        The gauge bounds what is computed in the layer's own basis only times powers of its condition number;
        where the expansion ends, its polynomial is a bound.
        """
        condition = self.model.constants.condition
        choices = [
            growth_of(max(log_norm(self.M) + self.model.weights.matrix_rounding(self.x), 0.0)),
            condition**4 * growth_of(max(self.mu, 0.0)),
            exponential_sum(self.M_norm, self.model.degree) ** 4,
        ]
        return min(choices)

    def gradient(self, W: Array) -> Array:
        """Of W : exp(M) in the directions T_a.  (d,)"""
        result: Array = gradients(self.model, self.M[None], W[None, None])[0, 0]
        return result

    @property
    def is_right(self) -> bool:
        """Whether the label's output is the largest, as computed."""
        others = np.delete(self.outputs, self.label)
        return bool(self.outputs[self.label] - others.max(initial=-math.inf) > 0)

    @property
    def in_range(self) -> bool:
        """Whether the outputs are finite and the bounds neither underflow nor overflow."""
        return self.model.readable(self.label) and bool(np.isfinite(self.outputs).all()) and self.computable

    @cached_property
    def computable(self) -> bool:
        """Whether M and exp(M) are finite and so are their squares."""
        return bool(np.isfinite(self.M).all() and np.isfinite(self.E).all()) and self.mu <= LARGEST_MU

    @cached_property
    def derivatives(self) -> SpectralPath | JetPath | FinitePath:
        """Second and third derivative tensors."""
        if self.model.degree <= 2:
            return FinitePath(self.model.white.T)
        found = usable_eigenvectors(self.M)
        if found is None:
            return JetPath(self.M, self.model.white.T)
        return SpectralPath(self.M, self.model.white.T, *found)

    @cached_property
    def _commutators(self) -> list[Array]:
        return [self.model.T_gauge]

    @cached_property
    def _commutator_norms(self) -> list[float]:
        return [self.model.constants.delta_2]

    def commutator_norms(self, most: int) -> Array:
        """Bounds of ||N||, ||[M, N]||, ||[M, [M, N]]||, ... over |y| <= 1 in the gauge.  (most + 1,)

        N itself in spectral norm, the others in Frobenius norm.
        """
        M = self.M_gauge
        with np.errstate(over="ignore", invalid="ignore"):
            size = 2 * (np.linalg.norm(M) + 1)
            while len(self._commutator_norms) <= most:
                last = self._commutators[0]
                self._commutators[0] = last = M @ last - last @ M
                norm = gram_norm(last.reshape(len(last), -1))
                # Rounding, relative to the products that cancel.
                k = len(self._commutator_norms)
                rounding = (self.unit + self.off) * self.model.T_gauge_size * size**k
                self._commutator_norms.append(norm + float(rounding))
        return np.array(self._commutator_norms[: most + 1])

    def pair(self, rival: int) -> Pair:
        """The margin over one rival class."""
        return self.known[rival] if rival in self.known else Pair(self, rival)

    def moved(self, x: Array) -> Row:
        """The same label at another input."""
        return Row(self.model, x, self.label)

    def radius(self, eps: float) -> float:
        """|y| <= radius for all steps of size eps: lemma 2, with the data's box."""
        region, white = self.model.region, self.model.white
        if region.norm == "l2" or region.low is None:
            return eps * white.reach
        low, high = region.interval(self.x, eps)
        inside = float(np.sqrt(np.maximum(low**2, high**2) @ white.w)) * (1 + 1e-12)
        return min(eps, inside) * white.reach


class Pair:
    """The margin f(delta) = f_0 + g.y + H[y, y] + C[y, y, y] + ... of the label over one rival."""

    def __init__(self, row: Row, rival: int) -> None:
        self.row, self.rival = row, rival
        weights = row.model.weights
        self.W: Array = row.model.differences(row.label)[rival]
        # From W and not as a difference of outputs, which may be much larger.
        self.bias = float(weights.V[row.label] - weights.V[rival])
        self.margin = self.bias + float((self.W * row.E).sum())
        self._biases = abs(float(weights.V[row.label])) + abs(float(weights.V[rival]))
        # By eps, where it is known: what `broken_at_corner` says, and whether the first order certifies.
        self.broken: dict[float, bool] = {}
        self.easy: dict[float, bool] = {}

    @property
    def W_gauge(self) -> Array:  # noqa: N802
        """P^-T W P^T"""
        return self.row.model.readout_in_gauge(self.row.label, self.rival)[0]

    @cached_property
    def _singular_values(self) -> tuple[Array, float]:
        """Of W in the gauge, and bounds of their errors."""
        values = self.row.model.readout_in_gauge(self.row.label, self.rival)[1]
        return values, self.row.model.constants.gauge_error * frobenius(self.W)

    @cached_property
    def nuclear(self) -> float:
        """||W||_nuc in the gauge."""
        values, error = self._singular_values
        return float(values.sum() + len(values) * error) * INFLATE

    @cached_property
    def spectral(self) -> float:
        """||W||_2 in the gauge."""
        values, error = self._singular_values
        return float(values[0] + error) * INFLATE

    @cached_property
    def growth(self) -> float:
        """Bound of ||exp(M)||_2 in the gauge."""
        return growth_of(self.row.mu)

    @cached_property
    def _size(self) -> float:
        """Bound of |W : exp(M)| and of every product that it is computed from, in the layer's own basis."""
        return frobenius(self.W) * math.sqrt(len(self.W)) * self.row.growth

    @cached_property
    def _moved(self) -> float:
        """How far W : exp(M) may move because M is not exact; its derivatives likewise, per unit of N."""
        return self.row.off * self.nuclear * growth_of(max(self.row.mu, 0.0))

    def value_slack(self, eps: float) -> float:
        """Rounding of f_0 and of the linear term over the region of radius eps, and of the basis.

        The radius must be finite: what rounding did to the inputs' matrices grows with it.
        """
        row, constants = self.row, self.row.model.constants
        value = row.unit * (self._biases + self._size) + self._moved
        if eps == 0:
            return value
        linear = eps * constants.sum_F * (row.unit * self._size + constants.condition * self._moved)
        return value + linear + self.basis_slack(eps)

    def basis_slack(self, eps: float) -> float:
        """What the terms of the series lose by E, the error of N in its coordinates: lemma 5."""
        row, constants = self.row, self.row.model.constants
        error = eps * constants.basis_error * constants.condition
        return 2 * self.nuclear * error * self.growth_within(row.radius(eps), error)

    def growth_within(self, radius: float, error: float = 0.0) -> float:
        """Bound of ||exp(M + N)|| for |y| <= radius, and of its derivative, in the gauge."""
        row, constants = self.row, self.row.model.constants
        q = radius * constants.delta_2 + error
        if row.model.degree < math.inf:
            polynomial = exponential_sum(frobenius(row.M_gauge) + row.off + q, row.model.degree)
            return min(rounded_up_exp(row.mu + q), polynomial)
        return rounded_up_exp(row.mu + q)

    def curvature_of_basis(self, radius: float, eps: float) -> float:
        """The error of half the second derivative of the margin is at most this times sum w_i delta_i^2.

        Lemma 5: the derivative along v has N(v) and E(v) in the place of N(v).
        """
        constants = self.row.model.constants
        each, all_of_it = constants.condition * constants.basis_error_weighted, constants.condition
        error = eps * constants.basis_error * all_of_it
        change = each * (2 * constants.delta_2 + each) + error * constants.delta_2**2
        return self.nuclear * change * self.growth_within(radius, error)

    def tensor_slack(self, radius: float, order: int) -> float:
        """Rounding of the quadratic (order 2) and cubic (order 3) terms within |y| <= radius."""
        path, moved = self.row.derivatives, self.row.model.constants.delta_F * radius
        total = 0.0
        for k in range(2, order + 1):
            size, factor = path.rounding(self.W, k, self._size, self.row.model.T_size)
            computed = (self.row.unit * factor) * size * radius**k
            total += (computed + self._moved * moved**k) / math.factorial(k)
        return total

    @cached_property
    def gradient(self) -> Array:
        """Of the margin in the directions T_a.  (d,)"""
        return self.row.gradient(self.W)

    @cached_property
    def slopes(self) -> Array:
        """Gradient of the margin in each input.  (m,)"""
        result: Array = self.row.model.weights.rows @ self.gradient
        return result

    @cached_property
    def _slope(self) -> float:
        """How fast the linear term falls as the region grows, where no box cuts it."""
        return float(np.linalg.norm(self.slopes, 2 if self.row.model.region.norm == "l2" else 1))

    def linear_term(self, eps: float) -> float:
        """The exact minimum of the linear term over the region."""
        row = self.row
        if row.model.region.low is None:
            return -eps * self._slope
        low, high = row.model.region.interval(row.x, eps)
        return float(np.minimum(self.slopes * low, self.slopes * high).sum())

    @cached_property
    def first_radius(self) -> float:
        """About the radius where the linear term takes the margin away: an aim, no bound."""
        slope = -self.linear_term(1.0)
        return self.margin / slope if slope > 0 else math.inf

    @cached_property
    def first(self) -> Array:
        """The same gradient in the coordinates y.  (d,)"""
        result: Array = self.row.model.white.L.T @ self.gradient
        return result

    @cached_property
    def second(self) -> Array:
        """H.  (d, d)"""
        return self.row.derivatives.second(self.W)

    @cached_property
    def fall(self) -> float:
        """Some c >= 0 with H[y, y] >= -c |y|^2."""
        return float(top_eigenvalue(-self.second))

    @cached_property
    def third(self) -> Array:
        """C, symmetric.  (d, d, d)"""
        return symmetrized(self.row.derivatives.third(self.W))

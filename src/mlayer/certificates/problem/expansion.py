"""One row and one rival class: everything the bounds read, each computed once and only when asked for."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from mlayer.certificates.derivatives.jets import JetPath
from mlayer.certificates.derivatives.polynomial_degree import FinitePath
from mlayer.certificates.derivatives.spectral import SpectralPath, symmetrized, usable_eigenvectors
from mlayer.certificates.linalg import UNIT, frobenius, gram_norm, top_eigenvalue
from mlayer.certificates.problem.margins import Margins, RivalMargins
from mlayer.certificates.problem.model import (
    LARGEST_MU,
    Model,
    exponential_sum,
    exponentials,
    gradients,
    growth_of,
    log_norms,
    rounded_up_exp,
)
from mlayer.certificates.problem.region import Region
from mlayer.errors import ArgumentError
from mlayer.numerics.arrays import Array


class Row:
    """One input x with its label."""

    def __init__(
        self,
        model: Model,
        x: Array,
        label: int,
        region: Region | None = None,
        *,
        M: Array | None = None,
        E: Array | None = None,
    ) -> None:
        """The region is the model's by default; M and E are M(x) and exp(M(x)), if they are known."""
        self.model, self.x, self.label = model, x, label
        self.region = model.region if region is None else region
        if self.region.norm != model.region.norm:
            raise ArgumentError(
                "region", f"of the norm of the model's constants, {model.region.norm!r}",
                repr(self.region.norm), "Compute them for it.",
            )  # fmt: skip
        self.M = model.weights.matrix(x) if M is None else M
        self.E = exponentials(self.M) if E is None else E
        self.known: dict[int, Pair] = {}  # pairs with numbers that were computed for many rows at once
        self.rivals: RivalMargins | None = None  # all of them, if they were computed together
        # For one eps: the rivals that are certified there, and by which bound.
        self.settled: tuple[float, dict[int, str]] = math.nan, {}
        self._interval: tuple[float, tuple[Array, Array]] | None = None  # of the last eps

    @cached_property
    def outputs(self) -> Array:
        """The outputs of all classes.  (c,)"""
        result: Array = self.model.outputs(self.E[None])[0]
        return result

    @cached_property
    def rounding(self) -> float:
        """A bound of the error of the computed M, in Frobenius norm."""
        return float(self.model.weights.matrix_roundings(self.x[None])[0])

    @cached_property
    def log_norm(self) -> float:
        """The logarithmic norm of M itself, without the gauge."""
        return self._log_norms[0]

    @cached_property
    def _log_norms(self) -> tuple[float, float]:
        """The logarithmic norms without the gauge and in it."""
        own, in_gauge = log_norms(np.stack([self.M, self.M_gauge])).tolist()
        return own, in_gauge

    @cached_property
    def M_gauge_norm(self) -> float:  # noqa: N802
        """||P M P^-1||_F"""
        return frobenius(self.M_gauge)

    @cached_property
    def M_norm(self) -> float:  # noqa: N802
        """||M||_F"""
        return frobenius(self.M)

    @cached_property
    def off(self) -> float:
        """A bound of the error of the computed M, in the gauge: its terms may cancel."""
        constants = self.model.constants
        formed = constants.condition * self.rounding
        return formed + constants.gauge_error * self.M_norm

    @cached_property
    def M_gauge(self) -> Array:  # noqa: N802
        """P M P^-1"""
        result: Array = self.model.constants.P @ self.M @ self.model.constants.P_inverse
        return result

    @cached_property
    def mu(self) -> float:
        """||exp(s M)||_2 <= e^(s mu) for s >= 0 in the gauge."""
        return self._log_norms[1] + self.off

    @cached_property
    def unit(self) -> float:
        """Rounding of a computed value, relative to the bound of everything that goes into it.

        docs/theory/certificates-rounding.md: exponentials by squaring, sums of n^2, d and m products.
        """
        n, (m, d) = len(self.M), self.model.white.rows.shape
        size = 4 + self.M_norm + self.M_gauge_norm
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
            growth_of(max(self.log_norm + self.rounding, 0.0)),
            condition**4 * growth_of(max(self.mu, 0.0)),
            exponential_sum(self.M_norm, self.model.degree) ** 4,
        ]
        return min(choices)

    @property
    def evaluation_error(self) -> float:
        """An estimate of the difference of two evaluations of exp(M(x)); no proof reads it."""
        moved = self.rounding * rounded_up_exp(self.rounding)
        return (moved + self.unit) * math.sqrt(len(self.M)) * self.growth

    def gradient(self, W: Array) -> Array:
        """The gradient of W : exp(M) in the directions T_a.  (d,)"""
        result: Array = gradients(self.model, self.M[None], W[None, None])[0, 0]
        return result

    @cached_property
    def runner_up(self) -> int:
        """The other class with the largest output."""
        others = self.outputs.copy()
        others[self.label] = -math.inf
        return int(others.argmax())

    @property
    def output_margin(self) -> float:
        """The label's output less the largest of the others, as computed."""
        return float(self.outputs[self.label] - np.delete(self.outputs, self.label).max(initial=-math.inf))

    @property
    def is_right(self) -> bool:
        """Whether the label's output is the largest, as computed."""
        return self.output_margin > 0

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
        if rival in self.known:
            return self.known[rival]
        pair, rivals = Pair(self, rival), self.rivals
        if rivals is not None:
            place = int(np.searchsorted(rivals.classes, rival))
            pair.gradient, pair.slopes = rivals.gradient[place], rivals.slopes[place]
            self.known[rival] = pair
        return pair

    def forget(self) -> None:
        """Drop what only the row's own answer needs: pairs, which hold the row, and tables of n^4 numbers."""
        self.known.clear()
        vars(self).pop("derivatives", None)

    def moved(self, x: Array) -> Row:
        """The same label at another input."""
        return Row(self.model, x, self.label, self.region)

    def interval(self, eps: float) -> tuple[Array, Array]:
        """Ends of each delta_i / scale_i at radius eps (L-infinity).  (m,), (m,)"""
        if self._interval is None or self._interval[0] != eps:
            self._interval = eps, self.region.interval(self.x, eps)
        return self._interval[1]

    def radius(self, eps: float) -> float:
        """|y| <= radius for all steps of size eps: lemma 2, with the data's box."""
        region, white = self.region, self.model.white
        if region.norm == "l2" or region.low is None:
            return eps * white.reach
        low, high = self.interval(eps)
        inside = float(np.sqrt(np.maximum(low**2, high**2) @ white.w)) * (1 + 1e-12)
        return min(eps, inside) * white.reach

    def growth_within(self, radius: float, error: float = 0.0) -> float:
        """Bound of ||exp(M + N)|| for |y| <= radius, and of its derivative, in the gauge."""
        q = radius * self.model.constants.delta_2 + error
        if self.model.degree < math.inf:
            polynomial = exponential_sum(self.M_gauge_norm + self.off + q, self.model.degree)
            return min(rounded_up_exp(self.mu + q), polynomial)
        return rounded_up_exp(self.mu + q)


class Pair(Margins[float]):
    """The margin f(delta) = f_0 + g.y + H[y, y] + C[y, y, y] + ... of the label over one rival."""

    def __init__(self, row: Row, rival: int) -> None:
        self.row, self.rival = row, rival
        weights = row.model.weights
        self.W: Array = row.model.differences(row.label)[rival]
        # From W and not as a difference of outputs, which may be much larger.
        self.bias = float(weights.V[row.label] - weights.V[rival])
        self.margin = self.bias + float((self.W * row.E).sum())
        self.biases = abs(float(weights.V[row.label])) + abs(float(weights.V[rival]))
        norms = row.model.readout_norms(row.label)
        self.nuclear, self.spectral = float(norms.nuclear[rival]), float(norms.spectral[rival])
        self.readout_factor, self.readout_size = float(norms.factor[rival]), float(norms.size[rival])
        # By eps, where it is known: what `broken_at_corner` says.
        self.broken: dict[float, bool] = {}
        # By guess, where it is known: what `corner_radius` says.
        self.aims: dict[float, float] = {}
        # A lower bound of the terms up to the quadratic ones, rounding included, and the eps that it is for.
        self.level: tuple[float, float] = math.nan, -math.inf
        # Coefficients of theorem 4 from few nodes (`bounds/remainder.py`), where they are known.
        self.coarse: Array | None = None
        self._roundings: dict[int, float] = {}

    @property
    def W_gauge(self) -> Array:  # noqa: N802
        """P^-T W P^T"""
        return self.row.model.readout_in_gauge(self.row.label, self.rival)[0]

    def curvature_of_basis(self, radius: float, eps: float) -> float:
        """The error of half the second derivative of the margin is at most this times sum w_i delta_i^2.

        Lemma 5: the derivative along v has N(v) and E(v) in the place of N(v).
        """
        constants = self.row.model.constants
        each, all_of_it = constants.condition * constants.basis_error_weighted, constants.condition
        error = eps * constants.basis_error * all_of_it
        change = each * (2 * constants.delta_2 + each) + error * constants.delta_2**2
        return self.nuclear * change * self.row.growth_within(radius, error)

    def tensor_slack(self, radius: float, order: int) -> float:
        """Rounding of the quadratic (order 2) and cubic (order 3) terms within |y| <= radius."""
        return sum(self._rounding_of_order(k) * radius**k for k in range(2, order + 1))

    def _rounding_of_order(self, k: int) -> float:
        """The part of `tensor_slack` of one order, for |y| <= 1."""
        if k not in self._roundings:
            row = self.row
            computed = row.derivatives.rounding(self.W, k, self.size, row.model.T_size, row.unit)
            self.set_rounding(k, computed)
        return self._roundings[k]

    def set_rounding(self, k: int, computed: float) -> None:
        """Store the rounding that the path of the derivatives states for an order."""
        row = self.row
        moved = self.moved_with(row.derivatives.distance) * row.model.constants.delta_F**k
        self._roundings[k] = computed + moved / math.factorial(k)

    def moved_with(self, distance: float) -> float:
        """`moved` for derivatives at a matrix at this distance from the computed M."""
        extra = distance * self.row.model.constants.condition
        growth = growth_of(max(self.row.mu, 0.0) + extra)
        return self.moved if extra == 0 else self.nuclear * (self.row.off + extra) * growth

    @cached_property
    def gradient(self) -> Array:
        """The gradient of the margin in the directions T_a.  (d,)"""
        return self.row.gradient(self.W)

    @cached_property
    def slopes(self) -> Array:
        """Gradient of the margin in each input.  (m,)"""
        result: Array = self.row.model.weights.rows @ self.gradient
        return result

    @cached_property
    def _slope(self) -> float:
        """The slope of the linear term as the region grows, where no box cuts it."""
        return float(np.linalg.norm(self.slopes, 2 if self.row.region.norm == "l2" else 1))

    def linear_term(self, eps: float) -> float:
        """The exact minimum of the linear term over the region."""
        row = self.row
        if row.region.low is None:
            return -eps * self._slope
        low, high = row.interval(eps)
        return float(np.minimum(self.slopes * low, self.slopes * high).sum())

    @cached_property
    def first_radius(self) -> float:
        """The radius where the linear term equals the margin: an aim for searches, not a bound."""
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
        if isinstance(self.row.derivatives, FinitePath):
            return self.row.model.quadratic_form(self.row.label, self.rival)[0]
        return self.row.derivatives.second(self.W)

    @cached_property
    def fall(self) -> float:
        """A c >= 0 with H[y, y] >= -c |y|^2."""
        if isinstance(self.row.derivatives, FinitePath):
            return self.row.model.quadratic_form(self.row.label, self.rival)[1]
        return float(top_eigenvalue(-self.second))

    @cached_property
    def third(self) -> Array:
        """C, symmetric.  (d, d, d)"""
        return symmetrized(self.row.derivatives.third(self.W))

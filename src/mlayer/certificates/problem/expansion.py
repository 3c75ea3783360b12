"""One row and one rival class: everything the bounds read, each computed once and only when asked for."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import torch

from mlayer.certificates.derivatives.ending import FinitePath, degree_of
from mlayer.certificates.derivatives.jets import JetPath, sorted_pairs
from mlayer.certificates.derivatives.spectral import SpectralPath, symmetrized, usable_eigenvectors
from mlayer.certificates.linalg import (
    INFLATE,
    UNIT,
    frobenius,
    gram_norm,
    power_of_two,
    top_eigenvalue,
)
from mlayer.certificates.problem.constants import Constants
from mlayer.certificates.problem.coordinates import Whitened
from mlayer.certificates.problem.region import Region
from mlayer.certificates.problem.weights import Weights
from mlayer.exponential import expm
from mlayer.numerics.arrays import Array

# Exponentials up to e^300: their squares, which some bounds take, are numbers still.
LARGEST_MU = 300.0
# Readouts whose products with four generators (`within_range`) are numbers still, and their squares.
SMALLEST_W, LARGEST_W = 1e-100, 1e100


def rounded_up_exp(x: float) -> float:
    """e^x, infinite where it is too large for a float or for the squares that bounds take of it."""
    return math.exp(x) * INFLATE if x <= 2 * LARGEST_MU else math.inf


def _growth(mu: float) -> float:
    """Bound of ||exp(M)||; infinite where it may be too large for a float."""
    return math.exp(mu) if mu <= LARGEST_MU else math.inf


def exponentials(A: Array) -> Array:
    """Exp of one or several matrices."""
    result: Array = expm(torch.from_numpy(np.ascontiguousarray(A))).numpy()
    return result


class Model:
    """A layer with its region and constants, ready for rows."""

    def __init__(self, weights: Weights, region: Region, constants: Constants, white: Whitened) -> None:
        self.weights, self.region, self.constants, self.white = weights, region, constants, white
        self.T_gauge: Array = constants.P @ white.T @ constants.P_inverse

        self.T_size = frobenius(white.T)  # of all generators together
        self.T_gauge_size = frobenius(self.T_gauge)

    @cached_property
    def row_norms(self) -> Array:
        """|rows_i|, with which y = rows^T delta is rounded.  (m,)"""
        result: Array = np.linalg.norm(self.white.rows, axis=1) * INFLATE
        return result

    @cached_property
    def degree(self) -> float:
        """Of the outputs as polynomials in the features; mostly infinite."""
        return degree_of(self.weights.B, self.weights.T0)

    @cached_property
    def right_products(self) -> Array:
        """T_a^T T_b in the gauge, over sorted pairs; for products with symmetric matrices.  (pairs, n n)"""
        return _products(self.T_gauge.mT)

    @cached_property
    def left_products(self) -> Array:
        """T_a T_b^T in the gauge, likewise."""
        return _products(self.T_gauge)


def _log_norm(M: Array) -> float:
    """The largest eigenvalue of (M + M^T) / 2, rounded up; infinite if M is no number."""
    if not np.isfinite(M).all():
        return math.inf
    symmetric = (M + M.T) / 2
    # top_eigenvalue is cut at 0; mu may be negative, so shift first.
    shift = frobenius(symmetric)
    return float(top_eigenvalue(symmetric + shift * np.eye(len(symmetric)))) - shift


def exponential_sum(x: float, degree: float) -> float:
    """1 + x + ... + x^degree / degree!, rounded up; infinite if there is no degree."""
    if math.isinf(degree):
        return math.inf
    with np.errstate(over="ignore"):
        terms = np.float64(x) ** np.arange(int(degree) + 1)
    total = sum(float(term) / math.factorial(k) for k, term in enumerate(terms))
    return total * INFLATE if total < 1e70 else math.inf


def _products(T: Array) -> Array:
    i, j = sorted_pairs(len(T))[0].T
    return np.ascontiguousarray((T[i] @ T[j].mT).reshape(len(i), -1))


class Row:
    """One input x with its label."""

    def __init__(self, model: Model, x: Array, label: int) -> None:
        self.model, self.x, self.label = model, x, label
        self.M = model.weights.matrix(x)
        self.E = exponentials(self.M)
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
        return _log_norm(self.M_gauge) + self.off

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
            _growth(max(_log_norm(self.M) + self.model.weights.matrix_rounding(self.x), 0.0)),
            condition**4 * _growth(max(self.mu, 0.0)),
            exponential_sum(self.M_norm, self.model.degree) ** 4,
        ]
        return min(choices)

    def gradient(self, W: Array) -> Array:
        """Of W : exp(M) in the directions T_a.  (d,)

        The upper right block of exp([[M^T, W], [0, M^T]]) is the adjoint derivative applied to W.
        """
        weights, n = self.model.weights, len(W)
        block = np.zeros((2 * n, 2 * n))
        block[:n, :n] = block[n:, n:] = self.M.T
        # The block is linear in W: scaled to size 1 it needs no squarings.
        largest = float(np.abs(W).max())
        size = power_of_two(largest) * n if largest > 0 else 1.0
        block[:n, n:] = W / size
        adjoint = exponentials(block)[:n, n:] * size
        result: Array = weights.T.reshape(len(weights.T), -1) @ adjoint.reshape(-1)
        return result

    @property
    def in_range(self) -> bool:
        """Whether the outputs are finite and the bounds neither underflow nor overflow."""
        S = self.model.weights.S
        sizes = np.abs(S[self.label] - S).max(axis=(1, 2))
        sizes = sizes[sizes > 0]
        readable = bool(((sizes >= SMALLEST_W) & (sizes <= LARGEST_W)).all())
        return readable and bool(np.isfinite(self.outputs).all()) and self.computable

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
        return Pair(self, rival)

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
        self.W: Array = weights.S[row.label] - weights.S[rival]
        # From W and not as a difference of outputs, which may be much larger.
        self.margin = float(weights.V[row.label] - weights.V[rival] + (self.W * row.E).sum())
        self._biases = abs(float(weights.V[row.label])) + abs(float(weights.V[rival]))

    @cached_property
    def W_gauge(self) -> Array:  # noqa: N802
        """P^-T W P^T"""
        constants = self.row.model.constants
        result: Array = constants.P_inverse.T @ self.W @ constants.P.T
        return result

    @cached_property
    def _singular_values(self) -> tuple[Array, float]:
        """Of W in the gauge, and bounds of their errors."""
        values = np.linalg.svd(self.W_gauge, compute_uv=False).astype(np.float64)
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
        return _growth(self.row.mu)

    @cached_property
    def _size(self) -> float:
        """Bound of |W : exp(M)| and of every product that it is computed from, in the layer's own basis."""
        return frobenius(self.W) * math.sqrt(len(self.W)) * self.row.growth

    @cached_property
    def _moved(self) -> float:
        """How far W : exp(M) may move because M is not exact; its derivatives likewise, per unit of N."""
        return self.row.off * self.nuclear * _growth(max(self.row.mu, 0.0))

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
    def _gradient(self) -> Array:
        return self.row.gradient(self.W)

    @cached_property
    def slopes(self) -> Array:
        """Gradient of the margin in each input.  (m,)"""
        result: Array = self.row.model.weights.rows @ self._gradient
        return result

    @cached_property
    def first(self) -> Array:
        """The same gradient in the coordinates y.  (d,)"""
        result: Array = self.row.model.white.L.T @ self._gradient
        return result

    @cached_property
    def second(self) -> Array:
        """H.  (d, d)"""
        return self.row.derivatives.second(self.W)

    @cached_property
    def third(self) -> Array:
        """C, symmetric.  (d, d, d)"""
        return symmetrized(self.row.derivatives.third(self.W))

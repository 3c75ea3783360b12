"""Remainders: what the terms of order K and beyond of the Dyson series can do at most.

docs/theory/certificates.md, theorems 2 (norms only) and 4 (with the readout inside).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from mlayer.certificates.derivatives.jets import sorted_pairs
from mlayer.certificates.linalg import INFLATE, UNIT, norms_by_powers
from mlayer.certificates.problem.expansion import Pair
from mlayer.certificates.problem.margins import Margins, Number
from mlayer.certificates.problem.model import exponentials, in_triangle, rounded_up_exp
from mlayer.numerics.arrays import Array

# Any numbers give a bound; these decide how much is lost to the error of the rule, to the powers that stand
# for norms, and to the last coefficient: nodes of a(s) and b(s) on [0, 1]; cells of the double integral, in
# each direction; squarings of `norms_by_powers`.
_FINE = 13, 384, 7
# The same for a first look, at a third of the cost: a tenth more than the other on the authors' model.
_COARSE = 5, 192, 4
_ORDERS = 14  # inner orders m with their own coefficient; later ones share the last


@lru_cache(maxsize=4096)
def exponential_tail(q: float, K: int) -> float:
    """sum_{k >= K} q^k / k!, summed upwards (no cancellation) and inflated.

    >>> abs(exponential_tail(1.0, 2) - (2.718281828 - 2)) < 1e-8
    True
    >>> exponential_tail(math.nan, 2)
    inf
    """
    if not q <= 600:  # what is not a number proves nothing
        return math.inf
    term = math.exp(K * math.log(q) - math.lgamma(K + 1)) if q > 0 else 0.0
    total, k = 0.0, K
    # From k = 2 q on the terms more than halve: 80 of them leave less than 2^-80 of the rest.
    while k < 2 * q + K + 80:
        total += term
        k += 1
        term *= q / k
    return total * INFLATE


def norm_remainder(pair: Margins[Number], radius: float, K: int) -> Number:
    """Theorem 2: at most min(||W||_nuc, ||W||_2 (delta_F / delta_2)^2) e^mu sum_{k >= K} q^k / k!."""
    constants = pair.row.model.constants
    if constants.delta_F == 0 or pair.row.model.degree < K:  # theorem 10
        return pair.readout_factor * 0.0
    tail = pair.growth * exponential_tail(radius * constants.delta_2, K) * INFLATE
    return pair.readout_factor * tail


def norm_curvature(pair: Pair, radius: float, K: int) -> float:
    """Half the second derivative of the terms from order K on, at most: theorem 7 with theorem 2's factor."""
    constants = pair.row.model.constants
    if constants.delta_F == 0 or pair.row.model.degree < K:  # theorem 10
        return 0.0
    factor = pair.readout_factor * pair.growth * constants.delta_2**2
    return 0.5 * factor * exponential_tail(radius * constants.delta_2, K - 2) * INFLATE


class ReadoutRemainder:
    """Theorem 4: the two outermost N in Frobenius norm against the readout, the inner ones by delta_2.

        R_K <= r^2 sum_{m >= K - 2} c_m q^m / m!,
        c_m = double integral over s + t <= 1 of a(s) b(t) e^{mu tau} tau^m,  tau = 1 - s - t

    Computed for K >= 3: the coefficients from m = 1 on.
    """

    def __init__(self, pair: Pair, coefficients: Array | None = None) -> None:
        self.pair, self._delta_2 = pair, pair.row.model.constants.delta_2
        self.coefficients = _coefficients([pair], *_FINE)[0] if coefficients is None else coefficients

    def __call__(self, radius: float, K: int) -> float:
        """R_K for |y| <= radius."""
        q = radius * self._delta_2
        total = self.coefficients[_ORDERS] * exponential_tail(q, _ORDERS + 1)
        for m in range(K - 2, _ORDERS + 1):
            total += self.coefficients[m] * q**m / math.factorial(m)
        return float(radius**2 * total * INFLATE)

    def curvature(self, radius: float, K: int) -> float:
        """Half the second derivative of the terms from order K on, at most: theorem 7."""
        q = radius * self._delta_2
        # (m + 2)(m + 1) = m (m - 1) + 4 m + 2, so the tail is one of three exponential tails.
        last = self.coefficients[_ORDERS]
        tails = [exponential_tail(q, _ORDERS + 1 - k) for k in range(3)]
        total = last * (q**2 * tails[2] + 4 * q * tails[1] + 2 * tails[0])
        for m in range(K - 2, _ORDERS + 1):
            total += (m + 2) * (m + 1) * self.coefficients[m] * q**m / math.factorial(m)
        return float(0.5 * total * INFLATE)

    def size_of_order(self, k: int) -> float:
        """Bound of |P_k| at |y| = 1."""
        m = k - 2
        return float(self.coefficients[m] * self._delta_2**m / math.factorial(m))


def readout_remainders(pairs: list[Pair]) -> list[ReadoutRemainder]:
    """The remainders of several rivals of one row, computed together."""
    if not pairs:
        return []
    return [ReadoutRemainder(*one) for one in zip(pairs, _coefficients(pairs, *_FINE), strict=True)]


def set_coarse(pairs: list[Pair]) -> None:
    """Coefficients from few nodes, for those rivals of one row that have none yet."""
    new = [pair for pair in pairs if pair.coarse is None]
    if new:
        for pair, found in zip(new, _coefficients(new, *_COARSE), strict=True):
            pair.coarse = found


def _coefficients(pairs: list[Pair], nodes: int, cells: int, squarings: int) -> Array:
    """Upper bounds of c_0, c_1, ... of theorem 4 for several rivals of one row, without c_0.  (k, orders)"""
    row = pairs[0].row
    model, constants = row.model, row.model.constants
    M, mu, n, d, count = row.M_gauge, row.mu, len(row.M), len(model.T_gauge), len(pairs)
    times = np.linspace(0.0, 1.0, nodes)
    # exp(s M) = e^(s shift) exp(s (M - shift)), and the second factor is nearer to linear in s.
    shift = max(float(np.trace(M)) / n, 0.0)
    M = M - shift * np.eye(n)
    rate = max(mu - shift, 0.0)
    E = exponentials(times[:, None, None] * M)
    factors = [model.readout_factors(row.label, pair.rival) for pair in pairs]
    # V = e^{sM} A Sigma^(1/2) and its Gram matrix V V^T; likewise Sigma^(1/2) B^T e^{tM}.
    V = E @ np.stack([left for left, _, _ in factors])[:, None]  # (pairs, nodes, n, n)
    Z = np.stack([right for _, right, _ in factors])[:, None] @ E
    # The errors of M and of the generators, and rounding, move each of them by no more than that times the
    # norm of the readout's factor.
    moved = (row.unit + row.off) * constants.delta_F + constants.gauge_error * model.T_size
    growth = np.exp(rate * times) * moved
    # Rounding of the forms' entries, each a sum of products.
    entries = (n * n + 2 * n + 8) * UNIT * model.T_gauge_size**2
    grams = np.stack([V @ V.mT, Z.mT @ Z])  # (2, pairs, nodes, n, n)
    flat = in_triangle(grams).reshape(2, count * nodes, -1)
    forms = np.stack([flat[0] @ model.right_products.T, flat[1] @ model.left_products.T])
    forms = forms.reshape(2, count, nodes, -1).take(sorted_pairs(d)[1], axis=-1)
    sizes = np.linalg.norm(grams, axis=(-2, -1)) * math.sqrt(n)
    norms = np.sqrt(norms_by_powers(forms, squarings) + entries * sizes) * INFLATE
    # Between nodes: linear interpolation plus at most h^2 / 8 times the largest second derivative.
    h = times[1]
    curvature = h * h / 8 * constants.delta_2 * rounded_up_exp(rate * h) * INFLATE
    seconds = [M @ (M @ V), (Z @ M) @ M]
    a_curvature, b_curvature = (curvature * np.linalg.norm(A, axis=(-2, -1))[:, :-1] for A in seconds)
    off = np.sqrt([[pair.nuclear] for pair in pairs]) * growth
    factor = np.exp(shift * np.arange(1, cells + 1) / cells) * INFLATE  # the largest on each cell
    a = factor * _cells(norms[0] + off, a_curvature, cells // (nodes - 1))
    b = factor * _cells(norms[1] + off, b_curvature, cells // (nodes - 1))
    coefficients = _integrals(a, b, mu)
    # What the factors lost of the readout, by norms: it contributes at most that to each order.
    lost = np.array([error for _, _, error in factors]) * rounded_up_exp(max(mu, 0.0)) * constants.delta_2**2
    orders = np.arange(1, _ORDERS + 1)
    coefficients[:, 1:] += lost[:, None] / ((orders + 1) * (orders + 2))
    return coefficients


def _integrals(a: Array, b: Array, mu: float) -> Array:
    """The double integrals, from bounds of a and b on cells.  (k, cells), (k, cells) -> (k, orders)"""
    count = a.shape[1]
    # Cells with equal i + j share their tau.
    diagonals = np.stack([np.convolve(*both)[:count] for both in zip(a, b, strict=True)]) / count**2
    tau = np.maximum(1 - np.arange(count + 2) / count, 0.0)
    growth = np.exp(mu * tau)
    powers = np.cumprod(np.broadcast_to(tau, (_ORDERS, count + 2)), axis=0)
    if mu >= 0:  # convex on the cell: its mean is at most the mean over the four corners
        values = growth * powers
        kernels = (values[:, :-2] + 2 * values[:, 1:-1] + values[:, 2:]) / 4
    else:
        kernels = growth[2:] * powers[:, :-2]
    coefficients = np.zeros((len(a), _ORDERS + 1))
    # One product for each pair: its numbers do not depend on the others.
    coefficients[:, 1:] = (diagonals[:, None] @ kernels.T)[:, 0] * INFLATE
    return coefficients


def _cells(nodes: Array, curvature: Array, count: int) -> Array:
    """Upper bounds of functions on fine cells, ``count`` in an interval, from the values at the nodes.

    Args:
        nodes: the values, (k, nodes).
        curvature: for each interval, by how much the function may be above the line in its middle.
        count: of cells.
    """
    share = np.arange(count + 1) / count
    line = nodes[:, :-1, None] * (1 - share) + nodes[:, 1:, None] * share
    # Above the line by at most that times 4 t (1 - t), largest where the cell is nearest to the middle.
    nearest = np.clip(0.5, share[:-1], share[1:])
    arc = 4 * nearest * (1 - nearest)
    result: Array = np.maximum(line[..., :-1], line[..., 1:]) + curvature[..., None] * arc
    return result.reshape(len(nodes), -1)

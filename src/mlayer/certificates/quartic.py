"""The quartic term: c_4 with Q[y, y, y, y] >= -c_4 |y|^4.

docs/theory/certificates.md, theorem 6. In the eigenvectors of M,

    P_4 = sum W~_mi f[ijklm] N~_ij N~_jk N~_kl N~_lm,   f[ijklm] = int_0^1 f_{1-t}[im] f_t[jkl] dt

with f_t the divided differences of exp(t x). Gauss's rule for the weight (1 - t) t^2 that the
integrand contains makes the integral a short sum, so that the form is a sum of products of two forms in pairs
of indices; the error of the rule is bounded and added.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.divided import Complex, differences
from mlayer.certificates.ellipsoid import INFLATE, proves_positive, top_eigenvalue
from mlayer.certificates.expansion import Pair
from mlayer.certificates.forms import least_ritz_value, symmetric_form
from mlayer.certificates.jets import sorted_pairs
from mlayer.certificates.spectral import SpectralPath

Array = NDArray[np.float64]

_NODES = range(3, 17)  # of Gauss's rule
_LANCZOS_STEPS = 20
_TRIES = 6


class Quartic:
    """The quartic tensor of one pair.

    Args:
        pair: the pair.
        tolerance: of the quadrature, as a norm of the tensor.
    """

    def __init__(self, pair: Pair, tolerance: float) -> None:
        self.fall = math.inf
        path = pair.row.derivatives
        if not isinstance(path, SpectralPath):
            return  # no eigenvectors, no quartic tensor: the third order stands
        size = spectral_size(path, pair)
        nodes, error = _rule(path.values, size, tolerance)
        if nodes == 0:
            return
        form = symmetric_form(tensor(path, pair.W, nodes), len(path.generators))
        # Rounding, relative to the bound of everything that goes into it in the eigenvectors' basis; their
        # inverse, which is in every factor, is off by their condition number (its square is at hand).
        rounding = pair.row.unit * math.sqrt(pair.row.derivative_factor) * size / 24
        self.fall = (least_eigenvalue(form) + error + rounding) * INFLATE


def spectral_size(path: SpectralPath, pair: Pair) -> float:
    """Bound of 24 |P_4| in the eigenvectors' basis: ||W~||_F e^{max Re l} max ||N~||_F^4 over |y| <= 1."""
    flat = path.generators.reshape(len(path.generators), -1)
    gram = flat.real @ flat.real.T + flat.imag @ flat.imag.T
    largest = float(top_eigenvalue(gram))
    growth = math.exp(min(float(path.values.real.max()), 700.0))
    return float(np.linalg.norm(path.readout(pair.W))) * growth * largest**2 * INFLATE


def _rule(values: Complex, size: float, tolerance: float) -> tuple[int, float]:
    """Nodes of Gauss's rule, and the error of the tensor in norm; (0, inf) if no rule is good enough."""
    spread = float(np.abs(values[:, None] - values[None, :]).max()) * INFLATE
    for nodes in _NODES:
        error = size * gauss_error(nodes, spread)
        if error <= tolerance:
            return nodes, error
    return 0, math.inf


def gauss_error(nodes: int, spread: float) -> float:
    """Error of `gauss_rule` for half an average of e^{a (1 - t) + b t}, |a - b| <= spread.

    In units of the largest |e^a|: spread^p / p!, p = 2 nodes, times the integral of the weight and the square
    of the rule's monic polynomial.
    """
    p = 2 * nodes
    f = math.factorial
    square = f(nodes) * f(nodes + 1) * f(nodes + 2) * f(nodes + 3) / ((p + 4) * f(p + 3) ** 2)
    return 0.5 * spread**p / f(p) * square * INFLATE


@lru_cache(maxsize=32)
def gauss_rule(nodes: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss's rule on [0, 1] for the weight (1 - t) t^2.

    Golub and Welsch (Math. Comp. 23, 1969): the eigenvalues of the matrix of the recurrence of the orthogonal
    polynomials (Jacobi's, with the exponents 1 and 2), and the squares of its eigenvectors' first entries.
    """
    k = np.arange(nodes, dtype=np.float64)
    diagonal = 3 / ((2 * k + 3) * (2 * k + 5))
    k = k[1:]
    beside = np.sqrt(k * (k + 1) * (k + 2) * (k + 3) / ((2 * k + 2) * (2 * k + 4))) / (k + 1.5)
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    return (values + 1) / 2, vectors[0] ** 2 / 12


def tensor(path: SpectralPath, W: Array, nodes: int) -> Array:
    """Q_{ab,cd}, symmetric in a, b and in c, d, over sorted pairs.  (pairs, pairs)"""
    T, half, times = path.generators, path.half, path.times
    d, n, _ = T.shape
    i, j = sorted_pairs(d)[0].T
    Wt = path.readout(W)
    rows_of_T = np.ascontiguousarray(T[:, half, :].transpose(1, 0, 2))  # (j, c, k)
    columns = (T[:, :, half] * (0.5 * times)).transpose(0, 2, 1).reshape(-1, n)  # ((b, j), i)
    side_by_side = np.ascontiguousarray(T.transpose(1, 0, 2))  # (k, d, l)
    # Real and imaginary parts beside each other: one real product at the end.
    left = np.empty((len(i), nodes, 2, len(half), n))
    right = np.empty_like(left)
    inner = np.empty((len(half), d, d, n), complex)  # (j, c, d, l)
    for node, (t, weight) in enumerate(zip(*gauss_rule(nodes), strict=True)):
        # f_{1-t}[im] and f_t[jkl] over the weight: differences over the scaled eigenvalues.
        two = differences(path.values * (1 - t), 2).two * weight
        three = differences(path.values * t, 3).three
        assert three is not None
        three = three * 0.5
        TA = (T @ (Wt * two.T)).reshape(d * n, n)  # ((a, l), i)
        outer = (columns @ TA.T).reshape(d, len(half), d, n)  # (b, j, a, l)
        picked = outer[i, :, j]
        picked += outer[j, :, i]  # (pairs, j, l)
        left[:, node, 0], left[:, node, 1] = picked.real, picked.imag
        for place, row in enumerate(half):
            B = (three[row][:, None, :] * side_by_side).reshape(n, d * n)  # (k, (d, l))
            np.matmul(rows_of_T[place], B, out=inner[place].reshape(d, d * n))
        inner += inner.transpose(0, 2, 1, 3).copy()
        picked = inner[:, i, j]  # (j, pairs, l)
        right[:, node, 0] = picked.real.transpose(1, 0, 2)
        np.negative(picked.imag.transpose(1, 0, 2), out=right[:, node, 1])
    result: Array = left.reshape(len(i), -1) @ right.reshape(len(i), -1).T
    return result


def least_eigenvalue(form: Array) -> float:
    """Some c >= 0 with form + c positive semidefinite, near the least: guessed by Lanczos, then proved."""
    size = float(np.linalg.norm(form))
    if size == 0:
        return 0.0
    guess = max(-least_ritz_value(form, _LANCZOS_STEPS), 1e-6 * size)
    for k in range(_TRIES):
        trial = guess * (1.005 + 0.02 * k)
        if proves_positive(trial * np.eye(len(form)) + form):
            return trial
    return float(top_eigenvalue(-form))

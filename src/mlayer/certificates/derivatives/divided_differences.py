"""Divided differences of the exponential over all multisets of up to four eigenvalues.

docs/theory/certificates-derivatives.md, theorem 2. The differences of exp(t x) over a list of nodes are
the entries of exp(t Z), Z bidiagonal with the nodes on its diagonal and ones above (Opitz), so they obey
the rule of scaling and squaring: Taylor at a small t, then

    f_2t[i..l] = sum over the cuts of the list  f_t[i..k] f_t[k..l].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlayer.numerics.arrays import Array

Complex = NDArray[np.complex128]
Indices = NDArray[np.intp]

# |t x| <= 1/2 after scaling: the first term left out is 0.5^16 / 16! < 1e-18 of the bound.
_TERMS = 16
_SMALL = 0.5


@dataclass(frozen=True)
class Differences:
    """f[i], f[ij] and, if asked for, f[ijk] and f[ijkl] of f = exp, as full symmetric tensors."""

    one: Complex
    two: Complex
    three: Complex | None
    four: Complex | None


@lru_cache(maxsize=12)
def sorted_tuples(n: int, order: int) -> tuple[Indices, Indices]:
    """Sorted tuples (order, count), and for every tuple (n^order) the place of its sorted form."""
    grid = np.indices((n,) * order).reshape(order, -1)
    ranked = np.sort(grid, axis=0)
    code = np.ravel_multi_index(tuple(ranked), (n,) * order)
    unique, place = np.unique(code, return_inverse=True)
    return np.stack(np.unravel_index(unique, (n,) * order)), place.reshape((n,) * order)


@lru_cache(maxsize=4)
def _flat_places(n: int) -> tuple[Indices, ...]:
    """Places in flat arrays over sorted tuples: of pairs of pairs, of the triples and pairs in quadruples."""
    (i, j, k, m), triples, pairs = sorted_tuples(n, 4)[0], sorted_tuples(n, 3)[1], sorted_tuples(n, 2)[1]
    of_pairs = pairs[i, j] * (n * (n + 1) // 2) + pairs[k, m]
    return of_pairs, triples[i, j, k], triples[j, k, m], i * n + j, k * n + m, i, m


@lru_cache(maxsize=4)
def _weights(order: int) -> Array:
    """1 / (p + q + order)! for p + q < terms, else 0.  (terms, terms)"""
    p = np.arange(_TERMS)
    table = np.array([1 / math.factorial(k + order) if k < _TERMS else 0.0 for k in range(2 * _TERMS)])
    result: Array = table[p[:, None] + p]
    return result


def differences(nodes: Complex, order: int) -> Differences:
    """Divided differences of exp over all multisets of up to ``order`` (2, 3 or 4) of the ``nodes``.

    >>> import numpy as np
    >>> f = differences(np.array([0.0, 1.0], complex), order=2)
    >>> bool(np.allclose(f.two, [[1, np.e - 1], [np.e - 1, np.e]]))
    True
    """
    n = len(nodes)
    center = nodes.mean()
    # Powers of two are exact, so scaling adds no rounding.
    reach = float(np.abs(nodes - center).max(initial=0.0))
    squarings = max(0, int(np.ceil(np.log2(reach / _SMALL)))) if reach > 0 else 0
    t = 0.5**squarings
    x = (nodes - center) * t
    # Complete homogeneous polynomials: f[x_0..x_r] = sum_m h_m(x_0..x_r) / (m + r)!, and those of two lists
    # together are h_m = sum_{p + q = m} h_p(one) h_q(other), so that the sums are products of matrices.
    h1 = np.ones((_TERMS, n), complex)  # powers
    h2 = np.ones((_TERMS, n, n), complex)
    for p in range(1, _TERMS):
        np.multiply(h1[p - 1], x, out=h1[p])
        np.multiply(h2[p - 1], x, out=h2[p])
        h2[p] += h1[p][:, None]
    f1, f2 = _weights(0)[0] @ h1, h1.T @ (_weights(1) @ h1)
    # Triples and quadruples only once for each multiset.
    (i, j, k), place3 = sorted_tuples(n, 3)
    ij, jk = i * n + j, j * n + k
    f3, f4 = np.zeros((2, 0), complex)
    if order > 2:
        f3 = (h2.reshape(_TERMS, -1).T @ (_weights(2) @ h1))[ij, k]
    if order > 3:
        of_pairs, first, last, q01, q23, q0, q3 = _flat_places(n)
        both = h2[:, *sorted_tuples(n, 2)[0]]
        f4 = (both.T @ (_weights(3) @ both)).reshape(-1)[of_pairs]
    # These are the differences over the scaled nodes of exp(x); over the nodes themselves of exp(t x)
    # each order has one more factor t.
    f2, f3, f4 = f2 * t, f3 * t**2, f4 * t**3
    for _ in range(squarings):
        flat = f2.reshape(-1)
        if order > 3:
            f4 = f4 * (f1[q0] + f1[q3]) + flat[q01] * f3[last] + f3[first] * flat[q23]
        if order > 2:
            f3 = f3 * (f1[i] + f1[k]) + flat[ij] * flat[jk]
        f2 = f2 * (f1[:, None] + f1[None, :])
        f1 = f1 * f1
    shift = np.exp(center)
    three = (shift * f3)[place3] if order > 2 else None
    four = (shift * f4)[sorted_tuples(n, 4)[1]] if order > 3 else None
    return Differences(shift * f1, shift * f2, three, four)

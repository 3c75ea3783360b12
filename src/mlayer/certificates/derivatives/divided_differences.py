"""Divided differences of the exponential over all multisets of up to four eigenvalues.

docs/theory/certificates-derivatives.md, theorem 2. The differences of exp(t x) over a list of nodes are
the entries of exp(t Z), Z bidiagonal with the nodes on its diagonal and ones above (Opitz), so they obey
the rule of scaling and squaring: Taylor at a small t, then

    f_2t[i..l] = sum over the cuts of the list  f_t[i..k] f_t[k..l].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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


def _divided(numbers: Complex, by: float) -> Complex:
    """The quotients by a real number: real and imaginary parts apart, which is faster."""
    return (numbers.view(np.float64) / by).view(np.complex128)


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
    # Triples and quadruples only once for each multiset.
    (i, j, k), place3 = sorted_tuples(n, 3)
    q = sorted_tuples(n, 4)[0] if order > 3 else np.zeros((4, 0), np.intp)
    first, last = place3[q[0], q[1], q[2]], place3[q[1], q[2], q[3]]
    x3, x4, ij = x[k], x[q[3]], i * n + j

    # Complete homogeneous polynomials: f[x_0..x_r] = sum_p h_p(x_0..x_r) / (p + r)!.
    h1 = np.ones(n, complex)
    h2 = np.ones((n, n), complex)
    h3 = np.ones(len(i) if order > 2 else 0, complex)
    h4 = np.ones(len(first), complex)
    fact = [1.0, 1.0, 2.0, 6.0]  # p!, (p + 1)!, ...
    f1, f2 = h1 / 1, h2 / 1
    f3, f4 = _divided(h3, 2.0), _divided(h4, 6.0)
    for p in range(1, _TERMS):
        h1 = h1 * x
        h2 = h1[:, None] + x[None, :] * h2
        fact = [fact[r] * (p + r) for r in range(4)]
        f1, f2 = f1 + h1 / fact[0], f2 + h2 / fact[1]
        if order > 2:
            h3 *= x3
            h3 += h2.reshape(-1)[ij]
            f3 += _divided(h3, fact[2])
        if order > 3:
            h4 *= x4
            h4 += h3[first]
            f4 += _divided(h4, fact[3])
    # These are the differences over the scaled nodes of exp(x); over the nodes themselves of exp(t x)
    # each order has one more factor t.
    f2, f3, f4 = f2 * t, f3 * t**2, f4 * t**3
    for _ in range(squarings):
        if order > 3:
            f4 = f4 * (f1[q[0]] + f1[q[3]]) + f2[q[0], q[1]] * f3[last] + f3[first] * f2[q[2], q[3]]
        if order > 2:
            f3 = f3 * (f1[i] + f1[k]) + f2[i, j] * f2[j, k]
        f2 = f2 * (f1[:, None] + f1[None, :])
        f1 = f1 * f1
    shift = np.exp(center)
    three = (shift * f3)[place3] if order > 2 else None
    four = (shift * f4)[sorted_tuples(n, 4)[1]] if order > 3 else None
    return Differences(shift * f1, shift * f2, three, four)

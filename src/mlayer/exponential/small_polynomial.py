"""Products and polynomials of batches of small matrices in NumPy.

Many tiny matrices stand entry by entry in memory, so that one multiplication serves the same entry of all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.exponential.schedule import DEGREES, EIGHT, FOUR, SIXTEEN

if TYPE_CHECKING:
    from mlayer.numerics.arrays import AnyArray

# Up to this size, from this many matrices on, products are made entry by entry; measured.
_TINY, MANY = 3, 128
# Rows over (A, A2, Y) and (A, A2, Y, W): left factor, right factor, remainder of a product.
_Rows = tuple[tuple[float, ...], ...]
_EIGHT_ROWS: _Rows = ((EIGHT[3], EIGHT[2], 1.0), (0.0, EIGHT[4], 1.0), (1.0, 0.5, EIGHT[5]))
_W_ROWS: _Rows = (
    (SIXTEEN[3], SIXTEEN[2], 1.0),
    (0.0, SIXTEEN[4], 1.0),
    (0.0, SIXTEEN[6], SIXTEEN[5]),
)
_SIXTEEN_ROWS: _Rows = (
    (SIXTEEN[8], SIXTEEN[7], 0.0, 1.0),
    (SIXTEEN[10], 0.0, SIXTEEN[9], 1.0),
    (SIXTEEN[14], SIXTEEN[13], SIXTEEN[12], SIXTEEN[11]),
)


def by_entry(b: int, n: int) -> bool:
    return n <= _TINY and b >= MANY


def empty(b: int, n: int, m: int, dtype: Any) -> AnyArray:
    """(4, b, n, m), the matrices last in memory where they are multiplied entry by entry."""
    if by_entry(b, n):
        return np.empty((4, n, m, b), dtype).transpose(0, 3, 1, 2)
    return np.empty((4, b, n, m), dtype)


def product(left: AnyArray, right: AnyArray, out: AnyArray | None = None) -> AnyArray:
    """Product; tangents, to the right, by the product rule.  (b, n, m) -> (b, n, m), m = n or 2 n"""
    b, n, m = left.shape
    multiply: Any = _by_entry if by_entry(b, n) else np.matmul
    if m == n:
        return multiply(left, right, out)
    result: AnyArray = multiply(left[:, :, :n], right, out)
    tangent = result[:, :, n:]
    tangent += multiply(left[:, :, n:], right[:, :, :n])
    return result


def _by_entry(left: AnyArray, right: AnyArray, out: AnyArray | None = None) -> AnyArray:
    total = np.multiply(left[:, :, :1], right[:, :1], out=out)
    for k in range(1, left.shape[1]):
        total += left[:, :, k : k + 1] * right[:, k : k + 1]
    return total


def polynomial(powers: AnyArray, degree: int) -> AnyArray:
    """T(A) of schedule.py without its identity; Y and W are written."""
    a, a2, y, w = powers
    if degree == DEGREES[0]:
        rest: AnyArray = a + 0.5 * a2
        return rest
    if degree == DEGREES[1]:
        rest = a + 0.5 * a2
        rest += product(a2, FOUR[0] * a2 + FOUR[1] * a)
        return rest
    first = EIGHT if degree == DEGREES[2] else SIXTEEN
    product(a2, first[0] * a2 + first[1] * a, y)
    if degree == DEGREES[2]:
        left, right, rest = _combinations(powers[:3], _EIGHT_ROWS)
    else:
        left, right, rest = _combinations(powers[:3], _W_ROWS)
        np.add(product(left, right), rest, out=w)
        left, right, rest = _combinations(powers, _SIXTEEN_ROWS)
    rest += product(left, right)
    return rest


def _combinations(terms: AnyArray, rows: _Rows) -> AnyArray:
    """All linear combinations of the terms at once; the coefficients are real, so real numbers suffice."""
    k, b, n, m = terms.shape
    if by_entry(b, n):
        flat = terms.transpose(0, 2, 3, 1).reshape(k, -1).view(terms.real.dtype)
        combined: AnyArray = (_coefficients(rows, flat.dtype) @ flat).view(terms.dtype)
        return combined.reshape(len(rows), n, m, b).transpose(0, 3, 1, 2)
    flat = terms.reshape(k, -1).view(terms.real.dtype)
    combined = (_coefficients(rows, flat.dtype) @ flat).view(terms.dtype)
    return combined.reshape(len(rows), b, n, m)


@lru_cache(maxsize=32)
def _coefficients(rows: _Rows, dtype: Any) -> AnyArray:
    return np.array(rows, dtype)

"""The exponential of 2 x 2 matrices and its derivative by their formulas, for the matmul path, in NumPy.

Single precision is computed in double. Neither balancing nor exact diagonals are needed: every term keeps its
relative accuracy when rows and columns are scaled, and a triangular matrix has the exponentials of its
diagonal on the diagonal (docs/theory/expm.md, "Matrices of two rows").
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from mlayer.numerics.arrays import AnyArray

# Rounded eigenvalues lose as many units as they are large: with larger entries than this they are
# kept in long double, of x86 alone, because others are computed in software, many times slower.
_LARGE = 2.0
_HAS_64_BITS = np.finfo(np.longdouble).nmant == 63
_WIDEST = np.longdouble if _HAS_64_BITS else np.float64
_WIDEST_COMPLEX = np.clongdouble if _HAS_64_BITS else np.complex128
# Up to |z| = 1 the slope of sinh(sqrt z) / sqrt z is summed, beyond it is a difference that cancels two bits.
_SERIES = tuple((k + 1) / math.factorial(2 * k + 3) for k in range(9, -1, -1))


class _TwoRows(NamedTuple):
    """A = m I + B, z I = B^2 and e^m as far as value and derivative need them, (b,) each."""

    h: AnyArray  # half the difference of the diagonal
    upper: AnyArray  # the entry above the diagonal
    lower: AnyArray
    product: AnyArray  # of these two
    z: AnyArray
    root: AnyArray  # sqrt z
    first: AnyArray  # the entries of exp(A), in rows
    last: AnyArray
    cosh: AnyArray  # e^m cosh(sqrt z)
    sinh: AnyArray  # e^m sinh(sqrt z) / sqrt z
    growth: AnyArray  # exp of the eigenvalue with the larger real part


def _parts(a: AnyArray) -> _TwoRows:
    real = a.dtype.kind != "c"
    large = np.abs(a).max() > _LARGE
    wide: Any = a.astype(_WIDEST if real else _WIDEST_COMPLEX) if large else a
    a00, upper, lower, a11 = wide[:, 0, 0], wide[:, 0, 1], wide[:, 1, 0], wide[:, 1, 1]
    h, product = (a00 - a11) * 0.5, upper * lower
    z = h * h + product
    oscillates = real and z.min() < 0
    root = np.sqrt(z.astype(np.result_type(z, np.complex64)) if oscillates else z)
    # The root on the side of h: then a00 + g and a11 - g, g = root - h, are eigenvalues without cancellation.
    flip = h < 0 if real else h.real * root.real + h.imag * root.imag < 0
    total = h + np.where(flip, -root, root)
    g = product / (total + (total == 0))
    first, last = _exp(a00 + g), _exp(a11 - g)
    h, product, z, root, g = (_double(x) for x in (h, product, z, root, g))
    growth = np.where(flip, last, first)
    none = root == 0
    sinh = growth * ((np.expm1(-2 * root) + none) / (-2 * root + none))
    if large:  # the root is rounded
        sinh = np.where(np.abs(root) < 1, sinh, (first - last) / (2 * np.where(flip, -root, root)))
    shift = sinh * g
    cosh = first + last
    first, last = first - shift, last + shift
    if oscillates:  # the imaginary parts cancel
        first, last, sinh, cosh = first.real, last.real, sinh.real, cosh.real
    return _TwoRows(h, a[:, 0, 1], a[:, 1, 0], product, z, root, first, last, 0.5 * cosh, sinh, growth)


def _double(x: AnyArray) -> AnyArray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64, copy=False)


def _exp(x: AnyArray) -> AnyArray:
    """exp(x) in double precision of x in a wider one."""
    rounded = _double(x)
    found: AnyArray = np.exp(rounded)
    if x.dtype != rounded.dtype:
        found *= 1 + _double(x - rounded)
    return found


def value(a: AnyArray) -> AnyArray | None:
    """exp(A); None if it overflows.  (b, 2, 2) -> (b, 2, 2)"""
    p = _parts(_double(a))
    return _matrices(a, p.first, p.sinh * p.upper, p.sinh * p.lower, p.last)


def derivative(a: AnyArray, e: AnyArray) -> AnyArray | None:
    """L(A, E); None if it overflows.  (b, 2, 2) twice -> (b, 2, 2)"""
    p, e = _parts(_double(a)), _double(e)
    e00, e01, e10, e11 = e[:, 0, 0], e[:, 0, 1], e[:, 1, 0], e[:, 1, 1]
    # The slope of sinh with z. The other coefficients are divided differences, of first and second order.
    near = np.abs(p.z) < 1
    slope = (p.cosh - p.sinh) / (2 * p.z + near)
    if near.any():
        total = _SERIES[0] * p.z
        for coefficient in _SERIES[1:-1]:
            total = (total + coefficient) * p.z
        series = (total + _SERIES[-1]) * (p.growth * np.exp(-p.root))
        slope = np.where(near, series if slope.dtype.kind == "c" else series.real, slope)
    half, change = 0.5 * p.sinh, slope * p.h
    above, below = half + change, half - change
    crossed = p.upper * e10 + p.lower * e01
    both = e00 * above + e11 * below + slope * crossed
    shift = (e00 - e11) * (slope * p.product)
    return _matrices(
        a,
        e00 * p.first + above * crossed - shift,
        e01 * p.sinh + p.upper * both,
        e10 * p.sinh + p.lower * both,
        e11 * p.last + below * crossed + shift,
    )


def _matrices(a: AnyArray, *entries: AnyArray) -> AnyArray | None:
    """Matrices of the type of A; None if an entry is not finite before it is rounded to that type."""
    y = np.empty((len(a), 4), entries[0].dtype)
    for k, entry in enumerate(entries):
        y[:, k] = entry
    if not np.isfinite(y).all():
        return None
    return y.reshape(a.shape).astype(a.dtype, copy=False)

"""Balancing by powers of two for the matmul path's small matrices: kernel/balance.h in NumPy.

exp(A) = D exp(D^-1 A D) D^-1 and L(A, E) = D L(D^-1 A D, D^-1 E D) D^-1, both without rounding
(docs/theory/expm.md). Only matrices that need many squarings are looked at.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from mlayer.numerics.arrays import AnyArray

    Sums = tuple[AnyArray, AnyArray]  # off the diagonal, by rows and by columns, (b, n) each

# Matrices with fewer squarings are not looked at: they have little to gain.
WORTH_A_LOOK = 4
# Rows and columns further apart than this are worth balancing.
_APART = 16.0
_MOST_SWEEPS, _FURTHEST = 20, 256


class Balancing(NamedTuple):
    """Matrices of a batch that balancing changes without rounding."""

    places: AnyArray  # in the batch
    factors: AnyArray  # D_j / D_i of each, (k, n, n): D^-1 A D is the product entry by entry
    kappa: AnyArray  # largest ratio of two entries of D, (k, 1, 1)


def look(a: AnyArray) -> Sums | None:
    """The sums of rows and of columns off the diagonal, or None if nowhere one is much larger.  (b, n, n)

    Never None if one of the matrices is triangular.
    """
    row, column = _sums(a)
    ratio = row / column
    if ratio.max() <= _APART and ratio.min() >= 1 / _APART:  # false for a NaN, of an empty row and column
        return None
    return row, column


def balance(a: AnyArray, e: AnyArray | None, sums: Sums) -> Balancing | None:
    """The scaling that gives rows and columns nearly equal sums; None where nothing is gained.  (b, n, n)"""
    row, column = sums
    imbalanced = np.any((row > _APART * column) | (column > _APART * row), axis=1)
    if not imbalanced.any():
        return None
    index = np.flatnonzero(imbalanced)
    part = a[index]
    # Strictly triangular ones have a finite series, which `grouped` knows.
    index = index[np.tril(part).any((1, 2)) & np.triu(part).any((1, 2))]
    if not len(index):
        return None
    exponents = _exponents(a[index])
    factors = np.exp2(exponents[:, None, :] - exponents[:, :, None])
    good = exponents.any(1)
    for x in (a,) if e is None else (a, e):
        part = x[index]
        good &= (part * factors / factors == part).all((1, 2))  # to the last bit: nothing underflowed
    spread = exponents.max(1) - exponents.min(1)
    return Balancing(index[good], factors[good], np.exp2(spread[good])[:, None, None]) if good.any() else None


def _sums(a: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Sums of the sizes of the entries off the diagonal, by rows and by columns.  -> (b, n) each

    Sizes, not squares, which overflow. By products, which NumPy sums several times faster than short rows.
    """
    b, n, _ = a.shape
    size = _sizes_off_diagonal(a)
    ones = _ones(n)
    return (size.reshape(-1, n) @ ones).reshape(b, n), ones @ size


def _sizes_off_diagonal(a: AnyArray) -> AnyArray:
    size: AnyArray = np.abs(a) if a.dtype.kind != "c" else np.abs(a.real) + np.abs(a.imag)
    np.einsum("bii->bi", size)[...] = 0  # a view whatever the strides, which are those of A
    return size


@lru_cache(maxsize=64)
def _ones(n: int) -> AnyArray:
    return np.ones(n)


def _exponents(a: AnyArray) -> AnyArray:
    """Exponents of D, after B. N. Parlett and C. Reinsch (1969).  (b, n, n) -> (b, n)

    An empty row or column counts as small compared with the diagonal, so that triangular matrices are
    balanced too.
    """
    diagonal = np.abs(np.einsum("bii->bi", a)).max(1)
    floor = np.where(diagonal > 0, diagonal / 16, np.abs(a).max((1, 2)) * 2.0**-20)
    size = _sizes_off_diagonal(a)
    exponents = np.zeros(a.shape[:2])
    for _ in range(_MOST_SWEEPS):
        changed = False
        for i in range(a.shape[1]):
            column = np.maximum(size[:, :, i].sum(1), floor)
            row = np.maximum(size[:, i].sum(1), floor)
            shift = np.rint(np.log2(row / column) / 2)
            after = column * np.exp2(shift) + row * np.exp2(-shift)
            gains = (after < 0.95 * (column + row)) & (np.abs(exponents[:, i] + shift) <= _FURTHEST)
            shift = np.where(gains, shift, 0.0)
            if shift.any():
                changed = True
                exponents[:, i] += shift
                size[:, :, i] *= np.exp2(shift)[:, None]
                size[:, i] *= np.exp2(-shift)[:, None]
        if not changed:
            break
    return exponents


def is_better(scaled_back: AnyArray, enlarged: AnyArray, plain: AnyArray | None, saved: AnyArray) -> AnyArray:
    """Whether errors of the balanced result, scaled back, stay below those of the squarings saved.  -> (b,)

    ``enlarged`` is kappa times the result before it was scaled back, ``plain`` the one without balancing.
    """
    reference = np.abs(scaled_back if plain is None else plain).max((1, 2))
    harmless = np.abs(enlarged).max((1, 2)) <= np.exp2(np.minimum(saved, 1000)) * reference
    found: AnyArray = (saved > 0) & harmless & np.isfinite(scaled_back).all((1, 2))
    return found

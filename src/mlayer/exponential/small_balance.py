"""Balancing by powers of two for the matmul path's small matrices: kernel/balance.h in NumPy.

exp(A) = D exp(D^-1 A D) D^-1, L(A, E) = D L(D^-1 A D, D^-1 E D) D^-1 without rounding (docs/theory/expm.md):
D tells how many squarings suffice. Only matrices that need many are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from mlayer.numerics.arrays import AnyArray

    Sums = tuple[AnyArray, AnyArray]  # off the diagonal, by rows and by columns, (b, n) each

# Matrices with fewer squarings are not looked at: they have little to gain.
WORTH_A_LOOK = 4
WORTH_BALANCING = 2  # squarings saved
# In single precision, and in batches of small matrices that torch computes, only where many digits are lost.
WORTH_A_LATE_LOOK, WORTH_MUCH = 6, 4
# Rows and columns further apart than this are worth balancing.
_APART = 16.0
_MOST_SWEEPS, _FURTHEST = 20, 256
_FEW_ROWS = 96  # up to here a sweep goes through all rows
# Balanced: no row asks for more than this power of two.
_NEAR = 1.5


class Balancing(NamedTuple):
    """Matrices of a batch that balancing changes."""

    places: AnyArray  # in the batch, (k,)
    exponents: AnyArray  # of D, (k, n)

    def adjoint(self) -> Balancing:
        return Balancing(self.places, -self.exponents)

    def at(self, places: AnyArray) -> Balancing:
        return Balancing(self.places[places], self.exponents[places])

    @property
    def factors(self) -> AnyArray:
        """D_j / D_i of each, (k, n, n): D^-1 A D is the product entry by entry."""
        found: AnyArray = np.exp2(self.exponents[:, None, :] - self.exponents[:, :, None])
        return found


def look(a: AnyArray) -> Sums | None:
    """The sums of rows and of columns off the diagonal, or None if nowhere one is much larger.  (b, n, n)

    Never None if one of the matrices is triangular.
    """
    row, column = _sums(a)
    apart = np.maximum(row, column) >= _APART * np.minimum(row, column)  # also if both are empty
    return (row, column) if apart.any() else None


def find(a: AnyArray, sums: Sums, square: AnyArray, squares: AnyArray) -> Balancing | None:
    """The scaling that gives rows and columns nearly equal sums; None if none changes a matrix.  (b, n, n)

    A^2 and ||A^2||^2, (b,), tell in which it may save squarings.
    """
    row, column = sums
    apart = (row > _APART * column) | (column > _APART * row)
    places = np.flatnonzero(apart.any(1) & may_save(square, squares, WORTH_BALANCING - 1))
    if not len(places):
        return None
    return _that_changes(places, equalizing_exponents(a if len(places) == len(a) else a[places]))


def may_save(square: AnyArray, squares: AnyArray, squarings: int) -> AnyArray:
    """Whether balancing may save more squarings than this, from A^2, (b, n, n), and ||A^2||^2.  -> (b,)"""
    diagonal = square.diagonal(0, 1, 2)  # that of D^-1 A^2 D too
    least = np.vecdot(diagonal, diagonal).real
    may: AnyArray = ~(squares <= 2.0 ** (4 * squarings) * least)  # if they are not finite too
    return may


def gain(before: AnyArray, after: AnyArray, theta: float) -> AnyArray:
    """The ratio of d before balancing to d after it, as far as that saves squarings.  (b,) twice -> (b,)

    From ||A^2|| before and after.
    """
    found: AnyArray = np.sqrt(np.sqrt(before / np.maximum(after, theta**4)))
    return found


def _that_changes(places: AnyArray, exponents: AnyArray) -> Balancing | None:
    changed = exponents.any(1)
    if changed.all():
        return Balancing(places, exponents)
    return Balancing(places[changed], exponents[changed]) if changed.any() else None


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


def equalizing_exponents(a: AnyArray) -> AnyArray:
    """Exponents of D, after B. N. Parlett and C. Reinsch (1969).  (b, n, n) -> (b, n)

    An empty row or column counts as small compared with the diagonal, so that triangular matrices are
    balanced too.
    """
    size = _sizes_off_diagonal(a)
    n = a.shape[1]
    exponents = _geometric_exponents(size)
    if exponents is None:
        exponents = np.zeros(a.shape[:2])
    else:
        size *= np.exp2(exponents[:, None, :] - exponents[:, :, None])
        ratio = size.sum(2) / size.sum(1)
        if ratio.max() <= 4**_NEAR and ratio.min() >= 4**-_NEAR:
            return exponents
    diagonal = np.abs(np.einsum("bii->bi", a)).max(1)
    floor = np.where(diagonal > 0, diagonal / 16, np.abs(a).max((1, 2)) * 2.0**-20)
    before = np.inf
    # All rows at once, which settles full matrices in a few steps. None becomes smaller than the floor.
    for _ in range(_MOST_SWEEPS):
        row, column = size.sum(2), size.sum(1)
        down, up = (np.maximum(np.log2(sums / floor[:, None]), 0) for sums in (row, column))
        wanted = np.fmax(np.fmin(np.log2(row / column) / 2, down), -up)
        apart = np.abs(wanted).max()
        if apart <= _NEAR:
            return exponents
        if not apart < 0.75 * before:
            break
        before = apart
        shift = np.rint(wanted * ((n - 1) / n))
        shift = np.clip(exponents + shift, -_FURTHEST, _FURTHEST) - exponents
        exponents += shift
        size *= np.exp2(shift[:, None, :] - shift[:, :, None])
    # One after the other, for sparse ones.
    for _ in range(_MOST_SWEEPS):
        changed = False
        rows: Iterable[int] = range(n)
        if n > _FEW_ROWS:  # of a large matrix those that differ from their columns before the sweep
            shift = _shift(size.sum(2), size.sum(1), floor[:, None], exponents)
            rows = np.flatnonzero(shift.any(0)).tolist()
        for i in rows:
            shift = _shift(size[:, i].sum(1), size[:, :, i].sum(1), floor, exponents[:, i])
            if shift.any():
                changed = True
                exponents[:, i] += shift
                size[:, :, i] *= np.exp2(shift)[:, None]
                size[:, i] *= np.exp2(-shift)[:, None]
        if not changed:
            break
    return exponents


def _geometric_exponents(size: AnyArray) -> AnyArray | None:
    """Exponents that give rows and columns equal geometric means; None with zeros.  (b, n, n) -> (b, n)"""
    logs = np.log2(size)
    np.einsum("bii->bi", logs)[...] = 0
    found: AnyArray = np.rint((logs.sum(2) - logs.sum(1)) / (2 * size.shape[1]))
    return found if np.abs(found).max() <= _FURTHEST else None  # NaN is not


def _shift(row: AnyArray, column: AnyArray, floor: AnyArray, exponents: AnyArray) -> AnyArray:
    """The steps of exponents that make a row and its column alike; 0 where little is gained."""
    row, column = np.maximum(row, floor), np.maximum(column, floor)
    shift = np.rint(np.log2(row / column) / 2)
    after = column * np.exp2(shift) + row * np.exp2(-shift)
    gains = (after < 0.95 * (column + row)) & (np.abs(exponents + shift) <= _FURTHEST)
    found: AnyArray = np.where(gains, shift, 0.0)
    return found


def is_better(found: AnyArray, factors: AnyArray, gain: AnyArray) -> AnyArray:
    """Whether errors with the squarings of a balanced matrix stay below those with all squarings.  -> (b,)

    An entry of the balanced result has errors of the size of the largest of its row, or of its column if
    that is smaller.
    """
    size = np.abs(found)
    balanced = size * factors
    error = np.minimum(balanced.max(2, keepdims=True), balanced.max(1, keepdims=True)) / factors
    better: AnyArray = error.max((1, 2)) <= gain * size.max((1, 2))
    return better

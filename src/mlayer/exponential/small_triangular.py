"""Exact diagonals of triangular matrices, for the small matrices of the matmul path, in NumPy.

exp(t A) has exp(t a_ii) on its diagonal and next to it t a_ij times the divided difference of exp at t a_ii
and t a_jj (docs/theory/expm.md). Each squaring would double their errors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from mlayer.numerics.arrays import AnyArray


def may_be_strict(a2: AnyArray) -> bool:
    """Whether some of these squares have an empty diagonal, as of strictly triangular matrices."""
    return not a2[:, 0, 0].all() and not a2.diagonal(0, 1, 2).any(1).all()


def have_corners(a: AnyArray) -> bool:
    """Whether all have entries in both corners, which no triangular matrix has.  (b, n, n)"""
    return bool(a[:, -1, 0].all() and a[:, 0, -1].all())


def triangle(a: AnyArray) -> str | None:
    """Whether all matrices, (b, n, n), are "upper" triangular, or all "lower"."""
    if a[0, -1, 0] != 0 and a[0, 0, -1] != 0:
        return None
    b, n, _ = a.shape
    flat = a.reshape(b, n * n)
    below, above = _halves(n, False)
    if not flat[:, below].any():
        return "upper"
    return None if flat[:, above].any() else "lower"


def find(a: AnyArray, *, strictly: bool = False) -> AnyArray | None:
    """The places of triangular matrices in a batch, or None.  (b, n, n) -> (k,)"""
    if have_corners(a):
        return None
    b, n, _ = a.shape
    flat = a.reshape(b, n * n)
    below, above = _halves(n, strictly)
    triangular = ~(flat[:, below].any(1) & flat[:, above].any(1))
    return np.flatnonzero(triangular) if triangular.any() else None


def triangles(a: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Whether each matrix is upper triangular, and whether lower but not upper.  (b, n, n) -> (b,) twice"""
    upper = np.logical_not(np.tril(a, -1).any((1, 2)))
    lower = np.logical_not(np.triu(a, 1).any((1, 2)))
    return np.asarray(upper), np.asarray(lower & ~upper)


def is_lower(a: AnyArray) -> AnyArray:
    """Whether triangular matrices are not upper ones.  (b, n, n) -> (b,)"""
    b, n, _ = a.shape
    return np.asarray(a.reshape(b, n * n)[:, _halves(n, False)[0]].any(1))


@lru_cache(maxsize=64)
def _halves(n: int, diagonal: bool) -> tuple[AnyArray, AnyArray]:
    """Places in a flat matrix below the diagonal and above it, with the diagonal or without."""
    row, column = np.indices((n, n)).reshape(2, n * n)
    if diagonal:
        return np.flatnonzero(row >= column), np.flatnonzero(row <= column)
    return np.flatnonzero(row > column), np.flatnonzero(row < column)


def diagonal(x: AnyArray, k: int) -> AnyArray:
    """A view of the k-th diagonal, on or above the first, of (b, n, n or more).  -> (b, n - k)"""
    b, n, m = x.shape
    if x.flags.c_contiguous:
        found: AnyArray = x.reshape(b, n * m)[:, k : (n - k) * (m + 1) : m + 1]
        return found
    view: AnyArray = np.einsum("bii->bi", x[:, : n - k, k:n])
    return view


def of_diagonal(a: AnyArray, e: AnyArray | None) -> AnyArray | None:
    """exp(A), or L(A, E), of diagonal matrices; None if it overflows.  (b, n, n) -> (b, n, n)"""
    entries = a.diagonal(0, 1, 2)
    powers = np.exp(entries)
    if e is None:
        y = np.zeros(a.shape, a.dtype)
        diagonal(y, 0)[...] = powers
    else:
        y = e * _divided_difference(
            entries[:, :, None], entries[:, None, :], powers[:, :, None], powers[:, None, :]
        )
    return y if np.isfinite(y).all() else None


class Diagonals(NamedTuple):
    """The two diagonals of exp(t A) for upper triangular matrices A and several t."""

    values: AnyArray  # first the diagonal, then the one above, (k, b, 2 n - 1)

    @classmethod
    def of(cls, a: AnyArray, times: AnyArray, without: int) -> Diagonals:
        """For these t, (k, 1 or b, 1); the first ``without`` of exp(t A) - I."""
        exponents = times * a.diagonal(0, 1, 2)
        powers = np.exp(exponents)
        above = times * a.diagonal(1, 1, 2)
        above *= _divided_difference(
            exponents[:, :, :-1], exponents[:, :, 1:], powers[:, :, :-1], powers[:, :, 1:]
        )
        if without:
            powers[:without] = np.expm1(exponents[:without])
        return cls(np.concatenate([powers, above], 2))

    def put(self, x: AnyArray, k: int) -> None:
        """Into exp(t A) of the first of them for the k-th t.  x: (b, n, n), or with tangents to the right"""
        b, n, m = x.shape
        if x.flags.c_contiguous:
            x.reshape(b, n * m)[:, _two_diagonals(n, m)] = self.values[k, :b]
        else:
            diagonal(x, 0)[...] = self.values[k, :b, :n]
            diagonal(x, 1)[...] = self.values[k, :b, n:]


@lru_cache(maxsize=64)
def _two_diagonals(n: int, m: int) -> AnyArray:
    """Places of the diagonal and of the one above in a flat matrix of n rows and m columns."""
    rows = np.arange(n) * (m + 1)
    return np.concatenate([rows, rows[:-1] + 1])


def _divided_difference(x: AnyArray, y: AnyArray, exp_x: AnyArray, exp_y: AnyArray) -> AnyArray:
    """(exp(x) - exp(y)) / (x - y), from the one with the larger real part: right to a few units."""
    step = x - y
    if step.dtype.kind == "c":
        swap = step.real < 0
        step, larger = np.where(swap, step, -step), np.where(swap, exp_y, exp_x)
    else:
        step, larger = -np.abs(step), np.maximum(exp_x, exp_y)
    equal = step == 0
    found: AnyArray = larger * ((np.expm1(step) + equal) / (step + equal))
    return found

"""Exact diagonals of triangular matrices, for the small matrices of the matmul path, in NumPy.

exp(t A) has exp(t a_ii) on its diagonal and next to it t a_ij times the divided difference of exp at t a_ii
and t a_jj (docs/theory/expm.md). Each squaring would double their errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from mlayer.exponential.small_balance import Sums
    from mlayer.numerics.arrays import AnyArray

# Triangular matrices with couplings up to this many times the diagonal gain nothing from balancing; measured.
_STRONG = 64.0


def find(a: AnyArray) -> AnyArray | None:
    """The places of triangular matrices in a batch, or None.  (b, n, n) -> (k,)"""
    if a[:, -1, 0].all() and a[:, 0, -1].all():  # a corner distinguishes most matrices from triangular ones
        return None
    triangular = ~np.tril(a, -1).any((1, 2)) | ~np.triu(a, 1).any((1, 2))
    return np.flatnonzero(triangular) if triangular.any() else None


def strongly_coupled(a: AnyArray, sums: Sums) -> AnyArray:
    """Whether triangular matrices have couplings far larger than their diagonal.  -> (b,)"""
    largest = np.maximum(*sums).max(1)
    found: AnyArray = largest > _STRONG * np.abs(np.einsum("bii->bi", a)).max(1)
    return found


class Diagonals(NamedTuple):
    """The two diagonals of exp(t A) for triangular matrices A, upper or lower, and several t."""

    on: AnyArray  # (k, b, n)
    beside: AnyArray  # (k, b, n - 1), above or below
    upper: AnyArray  # (b,), whether above

    @classmethod
    def of(cls, a: AnyArray, times: AnyArray, without: int) -> Diagonals:
        """For these t, (k, 1 or b, 1); the first ``without`` of exp(t A) - I."""
        upper: AnyArray = np.logical_not(np.tril(a, -1).any((1, 2)))
        above, below = (np.einsum("bii->bi", part) for part in (a[:, :-1, 1:], a[:, 1:, :-1]))
        exponents = times * np.einsum("bii->bi", a)
        on = np.exp(exponents)
        on[:without] = np.expm1(exponents[:without])
        beside = times * np.where(upper[:, None], above, below)
        return cls(on, beside * _divided_difference(exponents[:, :, :-1], exponents[:, :, 1:]), upper)

    def put(self, x: AnyArray, k: int) -> None:
        """Into exp(t A) for the k-th t.  x: (b, n, n)"""
        np.einsum("bii->bi", x)[...] = self.on[k]  # a view, as the others
        if self.upper.any():
            above = np.einsum("bii->bi", x[:, :-1, 1:])
            above[self.upper] = self.beside[k][self.upper]
        if not self.upper.all():
            below = np.einsum("bii->bi", x[:, 1:, :-1])
            below[~self.upper] = self.beside[k][~self.upper]


def _divided_difference(x: AnyArray, y: AnyArray) -> AnyArray:
    """(exp(x) - exp(y)) / (x - y), from the one with the larger real part: right to a few units."""
    swap = y.real > x.real
    larger, smaller = np.where(swap, y, x), np.where(swap, x, y)
    step = smaller - larger
    safe = np.where(step == 0, 1, step)
    found: AnyArray = np.exp(larger) * np.where(step == 0, 1, np.expm1(safe) / safe)
    return found

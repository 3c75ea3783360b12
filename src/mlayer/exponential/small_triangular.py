"""Exact diagonals of triangular matrices, for the small matrices of the matmul path, in NumPy.

exp(t A) has exp(t a_ii) on its diagonal and next to it t a_ij times the divided difference of exp at t a_ii
and t a_jj (docs/theory/expm.md). Each squaring would double their errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from mlayer.numerics.arrays import AnyArray


def find(a: AnyArray) -> AnyArray | None:
    """The places of triangular matrices in a batch, or None.  (b, n, n) -> (k,)"""
    triangular = ~np.tril(a, -1).any((1, 2)) | ~np.triu(a, 1).any((1, 2))
    return np.flatnonzero(triangular) if triangular.any() else None


class Diagonals(NamedTuple):
    """The two diagonals of triangular matrices, upper or lower."""

    on: AnyArray  # (b, n)
    beside: AnyArray  # (b, n - 1), above or below
    upper: AnyArray  # (b,), whether above

    @classmethod
    def of(cls, a: AnyArray) -> Diagonals:
        upper: AnyArray = np.logical_not(np.tril(a, -1).any((1, 2)))
        above, below = (np.einsum("bii->bi", part) for part in (a[:, :-1, 1:], a[:, 1:, :-1]))
        return cls(np.einsum("bii->bi", a).copy(), np.where(upper[:, None], above, below), upper)

    def put(self, x: AnyArray, t: AnyArray, identity: bool) -> None:
        """Into exp(t A), or exp(t A) - I without the identity.  x: (b, n, n), t: (b, 1)"""
        exponents = t * self.on
        diagonal = np.einsum("bii->bi", x)  # a view, as the other two
        diagonal[...] = np.exp(exponents) if identity else np.expm1(exponents)
        beside = t * self.beside * _divided_difference(exponents[:, :-1], exponents[:, 1:])
        above, below = (np.einsum("bii->bi", part) for part in (x[:, :-1, 1:], x[:, 1:, :-1]))
        above[self.upper] = beside[self.upper]
        below[~self.upper] = beside[~self.upper]


def _divided_difference(x: AnyArray, y: AnyArray) -> AnyArray:
    """(exp(x) - exp(y)) / (x - y), from the one with the larger real part: right to a few units."""
    swap = y.real > x.real
    larger, smaller = np.where(swap, y, x), np.where(swap, x, y)
    step = smaller - larger
    safe = np.where(step == 0, 1, step)
    found: AnyArray = np.exp(larger) * np.where(step == 0, 1, np.expm1(safe) / safe)
    return found

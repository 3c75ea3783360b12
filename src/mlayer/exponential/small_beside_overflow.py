"""Batches of small matrices of which some overflow or are not finite.

Those go to `grouped`, which neither balances nor gives triangular matrices exact diagonals; their neighbors
are as accurate as they are alone.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from mlayer.exponential import grouped, small


def expm(a: Tensor) -> Tensor:
    """exp(A) where `small.expm` has none for the whole batch.  (b, n, n)"""
    return _corrected(grouped.expm(a), lambda part: small.expm(a[part])[0])


def frechet(a: Tensor, e: Tensor) -> Tensor:
    """L(A, E) where `small.frechet` has none for the whole batch.  (b, n, n) twice"""
    return _corrected(grouped.frechet(a, e), lambda part: small.frechet(a[part], e[part]))


def _corrected(result: Tensor, compute: Callable[[Tensor], Tensor | None]) -> Tensor:
    """The finite matrices of the result as `compute` finds them by their places, as far as it does."""
    finite = result.isfinite().flatten(1).all(1).nonzero().squeeze(1)
    parts = [finite] if len(finite) < len(result) else list(finite.tensor_split(2))
    while parts:
        part = parts.pop()
        found = compute(part) if len(part) else None
        if found is not None:
            result[part] = found
        elif len(part) > 1:  # one of them overflows on the way
            parts += part.tensor_split(2)
    return result

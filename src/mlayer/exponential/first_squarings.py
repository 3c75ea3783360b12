"""The first squarings of large matrices in double precision: exp(B) - I as a sum and its rounding error.

Y <- 2 Y + Y^2 needs no identity, and what a rounding of the sum loses is kept and doubled with it
(docs/theory/expm.md). These are elementwise operations, a few percent of the time that the products take.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mlayer.exponential.schedule import frobenius_norms

# If I + Y is smaller than this times Y, rounding errors of Y^2 would be large relative to the next I + Y.
_CANCELS = 0.5


@dataclass
class SumAndError:
    """X = I + Y + E, or X = Y + E: rounded and the rest, with tangents to the right.

    (b, n, n or 2 n) each
    """

    rounded: Tensor
    error: Tensor
    identity: Tensor | None = None  # (b, 1, 1): 0 where Y contains it, else 1; None if nowhere

    @classmethod
    def of(cls, larger: Tensor, smaller: Tensor) -> SumAndError:
        """The sum of both; uses up the smaller one.

        The error is exact in entries where the first is the larger, and rounded itself in others.
        """
        rounded = larger + smaller
        return cls(rounded, smaller.sub_(rounded - larger))

    def doubled(self, square: Tensor, *, last: bool) -> SumAndError:
        """2 Y + Y^2, or Y^2 without an identity; uses up the square, and this one if that is its last use."""
        out = self.rounded if last else None
        if self.identity is None:
            rounded = torch.add(square, self.rounded, alpha=2)
            lost = square.sub_(torch.sub(rounded, self.rounded, alpha=2, out=out))
            return SumAndError(rounded, lost.add_(self.error, alpha=2))
        rounded = torch.addcmul(square, self.rounded, self.identity, value=2)
        lost = square.sub_(torch.addcmul(rounded, self.rounded, self.identity, value=-2, out=out))
        return SumAndError(rounded, lost.addcmul_(self.error, self.identity, value=2), self.identity)

    def where(self, condition: Tensor, other: SumAndError) -> SumAndError:
        """This one, or the other."""
        return SumAndError(
            torch.where(condition, self.rounded, other.rounded),
            torch.where(condition, self.error, other.error),
            self.identity,
        )

    def include_identity_where_it_cancels(self) -> None:
        """Add I to Y of matrices that decay as a whole, where I + Y is much smaller than Y."""
        n = self.rounded.shape[-2]
        y = self.rounded.narrow(-1, 0, n)
        trace = y.diagonal(dim1=-2, dim2=-1).sum(-1)
        square = frobenius_norms(y) ** 2
        cancels = square + 2 * trace.real + n < _CANCELS**2 * square
        if cancels.is_cpu and not cancels.any():  # elsewhere a look would wait for the device
            return
        included = cancels.to(self.rounded.dtype).view(-1, 1, 1)
        if self.identity is not None:
            included *= self.identity
        self._add_to_diagonal(included)
        self.rounded.addcmul_(self.error, included)
        self.error.mul_(1 - included)
        self.identity = 1 - included if self.identity is None else self.identity - included

    def whole(self) -> Tensor:
        """X with the identity, and the tangent; uses up this one."""
        self._add_to_diagonal(1 if self.identity is None else self.identity)
        return self.rounded.add_(self.error)

    def _add_to_diagonal(self, ones: Tensor | int) -> None:
        if isinstance(ones, Tensor):
            ones = ones.squeeze(-1)
        # Those of the first n columns.
        diagonal, lost = (part.diagonal(dim1=-2, dim2=-1) for part in (self.rounded, self.error))
        added = diagonal + ones
        lost.add_(diagonal.sub_(added - ones))
        diagonal.copy_(added)

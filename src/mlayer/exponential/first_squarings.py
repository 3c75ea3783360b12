"""The first squarings of large matrices in double precision: exp(B) - I as a sum and its rounding error.

Y <- 2 Y + Y^2 needs no identity, and what a rounding of the sum loses is kept and doubled with it
(docs/theory/expm.md). Elementwise operations, which large matrices hardly notice beside their products.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class SumAndError(NamedTuple):
    """Y, or Y with its tangent to the right, rounded, and the rest.  (b, n, n or 2 n) each"""

    rounded: Tensor
    error: Tensor

    @classmethod
    def of(cls, larger: Tensor, smaller: Tensor) -> SumAndError:
        """The sum of both; uses up the smaller one."""
        rounded = larger + smaller
        return cls(rounded, smaller.sub_(rounded - larger))

    def doubled(self, square: Tensor) -> SumAndError:
        """2 Y + Y^2; uses up the square."""
        rounded = torch.add(square, self.rounded, alpha=2)
        lost = square.sub_(torch.sub(rounded, self.rounded, alpha=2))
        return SumAndError(rounded, lost.add_(self.error, alpha=2))

    def where(self, condition: Tensor, other: SumAndError) -> SumAndError:
        """This one, or the other."""
        return SumAndError(
            torch.where(condition, self.rounded, other.rounded),
            torch.where(condition, self.error, other.error),
        )

    def part(self, start: int, length: int) -> SumAndError:
        """Some of the columns."""
        return SumAndError(self.rounded.narrow(-1, start, length), self.error.narrow(-1, start, length))

    def plus_identity(self) -> Tensor:
        """I + Y, of a tangent to the right Y itself; uses up this one."""
        diagonal, lost = (part.diagonal(dim1=-2, dim2=-1) for part in self)  # the first n columns
        one = diagonal + 1
        lost.add_(diagonal.sub_(one.sub(1)))
        diagonal.copy_(one)
        return self.rounded.add_(self.error)

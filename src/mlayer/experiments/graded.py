"""M-layers of degree two: their certificates lose almost nothing.

If M is block upper triangular with zero diagonal blocks, three of them, then M^3 = 0 and
exp(M) = 1 + M + M^2 / 2: every output is a quadratic function of the features. Its expansion ends, and with
it the remainders of the certificates (docs/theory/certificates.md, theorem 10).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Graded(nn.Module):
    """The parametrization: (n, n) numbers to matrices that lead from each block to later blocks only.

    Args:
        blocks: their sizes; exp is a polynomial of degree len(blocks) - 1.

    >>> import torch, mlayer
    >>> layer = mlayer.MLayer(4, 3, matrix_size=6, embedding_size=5, structure=Graded([2, 2, 2]))
    >>> M = layer.matrix(torch.ones(4))
    >>> bool((M @ M @ M == 0).all())
    True
    """

    mask: Tensor

    def __init__(self, blocks: Sequence[int]) -> None:
        super().__init__()
        level = levels_of(blocks)
        mask = (level[:, None] < level).to(torch.get_default_dtype())
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, free: Tensor) -> Tensor:
        """(..., n, n) -> (..., n, n)"""
        return free * self.mask

    def right_inverse(self, matrices: Tensor) -> Tensor:
        """The matrices themselves."""
        return matrices


def levels_of(blocks: Sequence[int]) -> Tensor:
    """The block of each row.  (n,)

    >>> levels_of([1, 2, 1]).tolist()
    [0, 1, 1, 2]
    """
    return torch.repeat_interleave(torch.arange(len(blocks)), torch.tensor(blocks))

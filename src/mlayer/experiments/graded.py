"""M-layers of degree two: their certificates lose almost nothing.

If M is block upper triangular with zero diagonal blocks, three of them, then M^3 = 0 and
exp(M) = 1 + M + M^2 / 2: every output is a quadratic function of the features. Its expansion ends, and so
should the remainders of the certificates. They are norms, which do not see that; but a similarity that
scales block b by 2^(k b) divides M by 2^k and multiplies the readout by at most 4^k, so that a remainder of
third order falls by 2^k. Powers of two make no rounding errors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mlayer.nn import MLayer


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


@torch.no_grad()
def scaled_down(layer: MLayer, blocks: Sequence[int], power: int = 10) -> MLayer:
    """The same function as a layer of structure "full" whose M is smaller by 2^power a block.

    Only the blocks above the diagonal of exp(M) depend on the input; the diagonal ones are 1 and go into the
    output bias, the others are 0.
    """
    level = levels_of(blocks).to(layer.readout.device)
    scale = torch.exp2(float(power) * (level[:, None] - level)).to(layer.readout)  # (n, n), < 1 above
    above = (level[:, None] < level).to(scale)
    bias = layer.readout.diagonal(dim1=1, dim2=2).sum(1)
    if layer.output_bias is not None:
        bias = bias + layer.output_bias
    return MLayer.from_weights(
        layer.generators * scale,
        layer.readout * above / scale,
        matrix_bias=None if layer.matrix_bias is None else layer.matrix_bias * scale,
        output_bias=bias,
        embedding=layer.embedding,
        embedding_bias=layer.embedding_bias,
    )

"""Structures of blocks along the diagonal, given by their sizes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from numbers import Integral
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from mlayer.checks import several
from mlayer.errors import ArgumentError
from mlayer.exponential import expm
from mlayer.nn.structures.entries import Scattered
from mlayer.nn.structures.structure import Config

# Smaller matrices are exponentiated whole: taking them apart would cost more than it saves.
_WORTH_BLOCKS = 16


def _is_size(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) > 0


class Blocks(Scattered):
    """Structures that are defined by the sizes of blocks along the diagonal."""

    built_from = ("its block sizes", "[4, 4, 2]")

    def __init__(self, blocks: Sequence[int]) -> None:
        given = several("blocks", blocks, "positive integers", "Give the sizes of the blocks, as [4, 4, 2].")
        if not given or not all(_is_size(b) for b in given):
            raise ArgumentError(
                "blocks",
                "positive integers",
                repr(given[:20]),
                "Give the sizes of the blocks, for example [4, 4, 2].",
            )
        self.blocks = tuple(map(int, given))
        super().__init__(sum(self.blocks), self._mask(self.blocks))

    @staticmethod
    @abstractmethod
    def _mask(blocks: tuple[int, ...]) -> Tensor:
        """The mask of the entries that may be nonzero.  (n, n)"""

    def balancing_mask(self) -> Tensor:
        """The blocks on the diagonal."""
        owner = _owner(self.blocks)
        return owner[:, None] == owner

    def config(self) -> Config:
        """The name and the sizes of the blocks."""
        return {"name": self.name, "blocks": list(self.blocks)}

    @classmethod
    def from_config(cls, config: Config, size: int) -> Self:
        """The structure with the blocks of the file."""
        blocks = config["blocks"]
        if sum(blocks) != size:  # before memory is taken for a false number
            raise ArgumentError(
                "blocks", f"of sum {size}", f"sum {sum(blocks)}", "They must fill the matrix."
            )
        return cls(blocks)

    def extra_repr(self) -> str:
        """The sizes that repr() shows."""
        return f"{list(self.blocks)}"


def _owner(blocks: tuple[int, ...]) -> Tensor:
    """The block of each row.  (n,)"""
    owners = torch.arange(len(blocks), device="cpu")  # also inside of torch.device("meta")
    return torch.repeat_interleave(owners, torch.tensor(blocks, device="cpu"))


class BlockDiagonal(Blocks):
    """Square blocks on the diagonal: exp is block diagonal too. The sum of b^2 parameters per matrix.

    Args:
        blocks: sizes of the blocks; their sum is n.
    """

    name = "block_diagonal"
    similarities = "a block diagonal matrix of the same blocks"

    @staticmethod
    def _mask(blocks: tuple[int, ...]) -> Tensor:
        owner = _owner(blocks)
        return owner[:, None] == owner

    def exponential(self, matrices: Tensor) -> Tensor:
        """Block by block where that is less work, blocks of one size together."""
        n = self.size
        if n < _WORTH_BLOCKS or 2 * max(self.blocks) > n:
            return super().exponential(matrices)
        ends = list(accumulate(self.blocks))
        cuts = [(end - b, end) for b, end in zip(self.blocks, ends, strict=True)]
        rows: dict[int, Tensor] = {}
        for size in dict.fromkeys(self.blocks):
            alike = [cut for cut in cuts if cut[1] - cut[0] == size]
            blocks = expm(torch.stack([matrices[..., a:b, a:b] for a, b in alike], dim=-3))
            for k, (a, b) in enumerate(alike):
                rows[a] = pad(blocks[..., k, :, :], (a, n - b))
        return torch.cat([rows[a] for a, _ in cuts], dim=-2)


class BlockTriangular(Blocks):
    """Strictly block upper triangular: exp is a polynomial of degree len(blocks) - 1 in the features.

    With k blocks M^k = 0, so exp(M) = 1 + M + ... + M^(k - 1) / (k - 1)!. The expansion ends, and with it the
    remainders of the certificates (docs/theory/certificates.md, theorem 10).

    Args:
        blocks: sizes of the blocks; their sum is n. With blocks of size 1 it is "nilpotent".

    >>> import torch, mlayer
    >>> layer = mlayer.MLayer(4, 3, matrix_size=6, embedding_size=5, structure=BlockTriangular([2, 2, 2]))
    >>> M = layer.matrix(torch.ones(4))
    >>> bool((M @ M @ M == 0).all())
    True
    """

    name = "block_triangular"
    similarities = "a block upper triangular matrix of the same blocks"

    @staticmethod
    def _mask(blocks: tuple[int, ...]) -> Tensor:
        owner = _owner(blocks)
        return owner[:, None] < owner

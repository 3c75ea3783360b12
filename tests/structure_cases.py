"""One row per built-in structure: by it a new one gets the tests of structures, gauge, files and proofs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mlayer.nn import BlockDiagonal, BlockTriangular

SIZE = 5


def _random() -> Tensor:
    return torch.randn(SIZE, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def _with_diagonal(matrix: Tensor) -> Tensor:
    return matrix + 3 * torch.eye(SIZE, dtype=torch.float64)


@dataclass(frozen=True)
class StructureCase:
    """A structure of 5 x 5 matrices.

    Attributes:
        structure: as `MLayer` takes it.
        count: free parameters of one matrix.
        holds: whether matrices (k, 5, 5) are of the structure.
        similarity: a P with P A P^-1 of the structure for every A of it.
    """

    structure: str | nn.Module
    count: int
    holds: Callable[[Tensor], bool]
    similarity: Tensor


def _is_block_diagonal(A: Tensor) -> bool:
    return torch.equal(A, torch.stack([torch.block_diag(m[:2, :2], m[2:, 2:]) for m in A]))  # exact: copies


def _is_block_triangular(A: Tensor) -> bool:
    """Blocks 2, 1, 2: zero on and below the diagonal blocks, and M^3 = 0 to the bit."""
    below = A[:, :2, :2].any() or A[:, 2:, :3].any() or A[:, 3:].any()
    return not below and not torch.matrix_power(A, 3).any()


CASES: dict[str, StructureCase] = {
    "full": StructureCase("full", 25, lambda _: True, _with_diagonal(_random())),
    "nilpotent": StructureCase(
        "nilpotent", 10, lambda A: torch.equal(A, A.triu(1)), _with_diagonal(_random().triu())
    ),
    "skew": StructureCase("skew", 10, lambda A: torch.equal(A, -A.mT), torch.linalg.qr(_random()).Q),
    "block_diagonal": StructureCase(
        BlockDiagonal([2, 3]),
        13,
        _is_block_diagonal,
        torch.block_diag(torch.eye(2), torch.ones(3, 3) + torch.eye(3)).double(),
    ),
    "block_triangular": StructureCase(
        BlockTriangular([2, 1, 2]), 8, _is_block_triangular, _with_diagonal(_random().triu())
    ),
}

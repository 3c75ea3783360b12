"""Random layers for the certificates: every structure, sizes 1 to 12, large, small and degenerate."""

from __future__ import annotations

from copy import deepcopy

import torch

import structure_cases
from mlayer import MLayer
from mlayer.nn import BlockDiagonal

# Drawn in every size, block_diagonal as "blocks"; the other structures are as in the table of cases.
_SIZED = ("full", "nilpotent", "skew", "block_diagonal")
KINDS = (
    "full",
    "nilpotent",
    "skew",
    "blocks",
    "zero",
    "equal eigenvalues",
    "jordan",
    "ties",
    "large",
    "small",
    *(name for name in structure_cases.CASES if name not in _SIZED),
)


def random_layer(kind: str, seed: int) -> tuple[MLayer, torch.Tensor, torch.Tensor]:
    """A layer, five rows and their labels."""
    random = torch.Generator().manual_seed(seed)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=random))

    n = integer(1, 12) if kind != "nilpotent" else integer(2, 8)
    m, classes = integer(1, 9), integer(2, 4)
    d = [None, integer(1, 5)][integer(0, 1)]
    structure: str | torch.nn.Module = kind if kind in ("full", "nilpotent", "skew") else "full"
    if kind == "blocks" and n > 1:
        structure = BlockDiagonal([n // 2, n - n // 2])
    if kind == "skew" and n == 1:
        n = 2
    if kind in structure_cases.CASES and kind not in _SIZED:
        n, structure = structure_cases.SIZE, deepcopy(structure_cases.CASES[kind].structure)
    layer = MLayer(
        m,
        classes,
        matrix_size=n,
        embedding_size=d,
        structure=structure,
        dtype=torch.float64,
        generator=random,
    )
    size = {"large": 1.5, "small": 1e-3}.get(kind, 0.4)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=random, dtype=p.dtype) * size)
        if kind == "zero":
            layer.free_generators.zero_()
        if kind == "equal eigenvalues":
            layer.free_generators.copy_(torch.eye(n).expand_as(layer.free_generators) * size)
            assert layer.free_matrix_bias is not None
            layer.free_matrix_bias.zero_()
        if kind == "jordan":
            assert layer.free_matrix_bias is not None
            layer.free_matrix_bias.copy_(0.5 * torch.eye(n) + torch.diag(torch.ones(n - 1), 1))
        if kind == "ties":
            layer.readout[1] = layer.readout[0]
            assert layer.output_bias is not None
            layer.output_bias[1] = layer.output_bias[0]
    x = torch.rand(5, m, generator=random, dtype=torch.float64)
    if kind == "jordan":
        x[0] = 0
    labels = layer(x).argmax(1).detach()
    labels[-1] = (labels[-1] + 1) % classes  # a misclassified row
    return layer, x, labels

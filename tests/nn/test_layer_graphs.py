"""The layer under torch.compile and torch.export."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mlayer import MLayer
from mlayer.errors import ArgumentError
from structure_cases import CASES, SIZE

VARIANTS: list[dict[str, Any]] = [
    {},
    {"embedding_size": None, "matrix_bias": False, "output_bias": False},
    *({"structure": case.structure} for name, case in CASES.items() if name != "full"),
]


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch.compiler.reset()


def _make(**variant: Any) -> MLayer:
    generator = torch.Generator().manual_seed(0)
    return MLayer(
        **{"in_features": 5, "out_features": 3, "matrix_size": SIZE, "generator": generator, **variant}
    )


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_compile(variant: dict[str, Any]) -> None:
    layer = _make(**variant)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(compiled(x), layer(x))
    expected = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
    got = torch.autograd.grad(compiled(x).square().sum(), list(layer.parameters()))
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(compiled(x[:2]), layer(x[:2]))


def test_compile_of_output_and_penalty() -> None:
    layer = _make()
    compiled = torch.compile(layer.forward_with_activity, backend="aot_eager", fullgraph=True)
    x = torch.ones(6, 5)
    torch.testing.assert_close(compiled(x), layer.forward_with_activity(x))


def test_compile_under_autocast() -> None:
    layer = _make()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = torch.ones(6, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(compiled(x), layer(x))
        assert compiled(x).dtype == torch.float32


def test_compile_of_a_trajectory() -> None:
    layer = _make()
    compiled = torch.compile(layer.trajectory, backend="aot_eager", fullgraph=True)
    x, t = torch.ones(2, 5), torch.linspace(0, 1, 3)
    torch.testing.assert_close(compiled(x, t), layer.trajectory(x, t))


# torch.export looks at the .grad of inner tensors and warns about it.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_export_with_a_dynamic_batch(variant: dict[str, Any]) -> None:
    layer = _make(**variant)
    program = torch.export.export(
        layer, (torch.zeros(2, 5),), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False
    )
    exported = program.module()
    for count, size in ((1, 1.0), (3, 10.0), (11, 100.0)):
        x: Tensor = size * torch.randn(count, 5, generator=torch.Generator().manual_seed(count))
        expected = layer(x)
        scale = expected.abs().amax(-1, keepdim=True)
        assert ((exported(x) - expected).abs() <= 1e-4 * scale).all()


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("inside", [False, True])
def test_jit_script_is_refused_with_advice(inside: bool) -> None:
    layer = MLayer(2, 1, matrix_size=2)
    with pytest.raises(ArgumentError, match=r"must be torch\.export .* got torch\.jit\.script"):
        torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), layer) if inside else layer)


class _Penalties(torch.nn.Module):
    def __init__(self, layer: MLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer.forward_with_activity(x)[1], self.layer.activity(x, "l1")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_export_of_penalties_with_a_dynamic_batch() -> None:
    """They divide by the size of the batch, and once fixed it to that of the example."""
    layer = _make(matrix_size=3, embedding_size=2, init="balanced")
    program = torch.export.export(
        _Penalties(layer), (torch.zeros(2, 5),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    exported = program.module()
    for count in (0, 1, 7):
        x = torch.randn(count, 5, generator=torch.Generator().manual_seed(count))
        E = layer.exponential(x).detach().double()
        expected = torch.stack([E.square().sum(), E.abs().sum()]) / max(1, count)
        torch.testing.assert_close(torch.stack(exported(x)).double(), expected, rtol=1e-5, atol=0.0)

"""Initializers: the distributions they promise, and explicit generators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mlayer import MLayer
from mlayer.errors import ArgumentError
from mlayer.nn import Balanced, BlockDiagonal, Normal, Notebook, Periodic

NAMES = ("normal", "periodic", "notebook", "balanced")


def make(init: Any, seed: int = 0, **arguments: Any) -> MLayer:
    generator = torch.Generator().manual_seed(seed)
    return MLayer(
        **{"in_features": 300, "out_features": 10, "init": init, "generator": generator, **arguments}
    )


def biases(layer: MLayer) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    assert layer.embedding is not None
    assert layer.embedding_bias is not None
    assert layer.matrix_bias is not None
    assert layer.output_bias is not None
    return layer.embedding, layer.embedding_bias, layer.matrix_bias, layer.output_bias


def is_normal(sample: Tensor, mean: float, std: float) -> None:
    """Mean and deviation within five standard errors, and the tails of a normal distribution."""
    count = sample.numel()
    assert abs(sample.mean().item() - mean) < 5 * std / count**0.5
    assert abs(sample.std().item() - std) < 5 * std / (2 * count) ** 0.5
    beyond = ((sample - mean).abs() > 2 * std).float().mean().item()
    assert abs(beyond - 0.0455) < 5 * (0.0455 / count) ** 0.5


def test_normal() -> None:
    layer = make("normal")
    U, _, B, _ = biases(layer)
    for sample in (U, layer.generators, B, layer.readout):
        is_normal(sample.detach(), 0.0, 0.05)
    assert all(p.abs().sum() > 0 for p in layer.parameters())
    is_normal(make(Normal(0.2)).readout.detach(), 0.0, 0.2)


def test_periodic() -> None:
    layer = make("periodic", embedding_size=40)
    U, _, B, _ = biases(layer)
    is_normal(U.detach(), 0.1, 0.05)
    T = torch.cat([layer.generators, B[None]]).detach()
    is_normal(T.diagonal(dim1=-2, dim2=-1), -10.0, 0.01)
    is_normal(T[:, ~torch.eye(30, dtype=torch.bool)], 0.0, 0.01)
    blocks = make(Periodic(), matrix_size=5, structure=BlockDiagonal([2, 3]))
    assert (blocks.generators.diagonal(dim1=-2, dim2=-1) < -9).all()


def test_notebook() -> None:
    layer = make("notebook")
    U, u, B, V = biases(layer)
    assert not u.any()
    assert not V.any()
    for sample, limit in (
        (layer.generators, 0.05),
        (B, 0.05),
        (U, (6 / (300 + 35)) ** 0.5),
        (layer.readout, (6 / (900 + 10)) ** 0.5),
    ):
        assert 0.99 * limit < sample.abs().max() <= limit
        assert abs(sample.std().item() - limit / 3**0.5) < 0.05 * limit
    assert make(Notebook(0.1)).generators.abs().max() > 0.09


@pytest.mark.parametrize("in_features", [2, 30, 3000])
@pytest.mark.parametrize(("matrix_size", "embedding_size"), [(10, 35), (40, 10), (30, None)])
def test_balanced_keeps_the_norm(in_features: int, matrix_size: int, embedding_size: int | None) -> None:
    layer = make("balanced", in_features=in_features, matrix_size=matrix_size, embedding_size=embedding_size)
    x = torch.randn(64, in_features, generator=torch.Generator().manual_seed(1))
    norm = torch.linalg.matrix_norm(layer.matrix(x), 2).detach()
    assert 0.5 < norm.mean() < 2
    twice = make(
        Balanced(2.0), in_features=in_features, matrix_size=matrix_size, embedding_size=embedding_size
    )
    torch.testing.assert_close(torch.linalg.matrix_norm(twice.matrix(x), 2), 2 * norm)


@pytest.mark.parametrize("init", NAMES)
def test_generators_are_explicit(init: str) -> None:
    before = torch.get_rng_state()
    one, same, other = make(init), make(init), make(init, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    for name, parameter in one.named_parameters():
        assert torch.equal(parameter, dict(same.named_parameters())[name])
    assert not torch.equal(one.readout, other.readout)
    one.reset_parameters(torch.Generator().manual_seed(1))
    assert torch.equal(one.readout, other.readout)
    assert all(p.requires_grad for p in one.parameters())


@pytest.mark.parametrize("init", NAMES)
def test_without_embedding_and_biases(init: str) -> None:
    layer = make(init, embedding_size=None, in_features=4, matrix_bias=False, output_bias=False)
    assert layer(torch.ones(4)).isfinite().all()


def test_an_initializer_of_the_users() -> None:
    def ones(layer: MLayer, generator: torch.Generator | None) -> None:
        layer.readout.fill_(1.0)

    assert (make(ones).readout == 1).all()


def test_unknown_name() -> None:
    with pytest.raises(ArgumentError, match=r"init must be one of 'normal', .*; got 'glorot'"):
        make("glorot")


def test_not_callable() -> None:
    with pytest.raises(TypeError, match=r"init must be a name or a callable .*; got float"):
        make(0.05)


@pytest.mark.parametrize("structure", ["nilpotent", "skew"])
def test_periodic_needs_a_diagonal(structure: str) -> None:
    with pytest.raises(
        ArgumentError, match=rf"'periodic', which needs a diagonal, with structure '{structure}'"
    ):
        make("periodic", structure=structure)

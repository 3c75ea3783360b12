"""Muon against torch's own on matrices, against singular value decompositions, and on an M-layer."""

from __future__ import annotations

import pytest
import torch
from problems import product
from torch import Tensor, nn

import mlayer
from mlayer.errors import ArgumentError
from mlayer.training import Settings, train
from mlayer.training.muon import Muon, orthogonalized


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(6, 6), (4, 30), (30, 4), (1, 7), (5, 1)])
def test_singular_vectors_stay_and_values_become_ones(shape: tuple[int, int]) -> None:
    matrix = random(*shape)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    inside = left.T @ orthogonalized(matrix) @ right.T
    off = inside - torch.diag(inside.diagonal())
    assert off.abs().max() < 1e-10
    assert (
        inside.diagonal().min() > 0.3
    )  # the smallest singular value of a square matrix is far from the others
    assert inside.diagonal().max() < 1.3
    large = inside.diagonal()[values > 0.1 * values.norm()]
    assert large.min() > 0.6


@pytest.mark.parametrize("nesterov", [True, False])
def test_on_matrices_it_is_torchs(nesterov: bool) -> None:
    """torch's rate is 0.2 times ours here, and its iteration has the eight bits of bfloat16."""
    ours, theirs = (nn.Parameter(random(8, 20)) for _ in range(2))
    options = {"momentum": 0.9, "nesterov": nesterov, "weight_decay": 0.5}
    mine = Muon([ours], lr=0.01, **options)  # type: ignore[arg-type]
    reference = torch.optim.Muon(
        [theirs],
        lr=0.05,
        adjust_lr_fn="match_rms_adamw",
        **(options | {"weight_decay": 0.1}),  # type: ignore[arg-type]
    )
    for k in range(5):
        gradient = random(8, 20, seed=k + 1)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        reference.step()
    moved = (theirs - random(8, 20)).norm()
    assert (ours - theirs).norm() < 0.02 * moved
    assert moved > 0.1


def test_generators_move_as_a_matrix_and_biases_as_vectors() -> None:
    weights = [
        nn.Parameter(torch.zeros(3, 4, 4)),
        nn.Parameter(torch.zeros(5)),
        nn.Parameter(torch.zeros(())),
    ]
    gradients = [random(3, 4, 4, seed=1), random(5, seed=2), random(seed=3)]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient.to(weight.dtype)
    Muon(weights, lr=0.1, momentum=0.0, nesterov=False).step()
    flat = -weights[0].detach().flatten(1)
    left, _, right = torch.linalg.svd(gradients[0].flatten(1), full_matrices=False)
    assert torch.allclose(flat.double() / (0.1 * 4), left @ right, atol=0.35)
    for weight, gradient in zip(weights[1:], gradients[1:], strict=True):
        size = weight.detach().square().mean().sqrt()
        assert 0.06 < size < 0.13  # the root of the mean square of a step is about lr
        assert torch.allclose(-weight.detach() / size, (gradient / gradient.square().mean().sqrt()).float())


def test_no_gradient_moves_nothing_and_nan_stays_visible() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = Muon([weight], lr=0.1)
    optimizer.step()
    weight.grad = torch.zeros(2, 2)
    optimizer.step()
    assert weight.detach().eq(1).all()
    weight.grad = torch.full((2, 2), torch.nan)
    optimizer.step()
    assert weight.detach().isnan().all()


def test_it_trains_an_m_layer_by_name() -> None:
    layer = mlayer.MLayer(2, 1, matrix_size=4, embedding_size=3, generator=torch.Generator().manual_seed(0))
    data = product(64)
    settings = Settings(
        epochs=60,
        batch_size=16,
        optimizer="muon",
        learning_rate=0.01,
        schedule="one_cycle",
        loss="squared_error",
    )
    result = train(layer, data, settings)
    assert result.history[-1]["loss"] < 0.05 * result.history[0]["loss"]


@pytest.mark.parametrize(
    "options", [{"momentum": 1.0}, {"ns_steps": 0}, {"ns_steps": 2.5}, {"betas": (0.9, 0.99)}]
)
def test_wrong_options_are_named(options: dict[str, object]) -> None:
    layer = mlayer.MLayer(2, 1, matrix_size=2, embedding_size=2)
    with pytest.raises(ArgumentError, match=next(iter(options))):
        train(layer, product(8), Settings(epochs=1, optimizer="muon", optimizer_options=options))


def test_complex_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="real"):
        Muon([nn.Parameter(torch.zeros(2, 2, dtype=torch.complex64))])

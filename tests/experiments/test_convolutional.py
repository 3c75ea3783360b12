"""The convolutional net and its heads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from mlayer.experiments import convolutional, reproduce
from mlayer.experiments.shared.dense import parameter_count
from mlayer.experiments.shared.image_recipes import RECIPES
from mlayer.experiments.shared.over_seeds import paired
from mlayer.experiments.shared.residual_net import HEADS, ResidualNet, residual_builder

COUNTS = {"M-layer": 87_730, "ReLU": 87_710, "linear": 77_850, "linear, wider net": 87_090}


def build(head: str, seed: int = 3, shape: tuple[int, ...] = (32, 32, 3)) -> ResidualNet:
    generator = torch.Generator().manual_seed(seed)
    made = residual_builder(head, shape)(shape[0] * shape[1] * shape[2], 10, "notebook", generator)
    assert isinstance(made, ResidualNet)
    return made


@pytest.mark.parametrize("head", HEADS)
def test_parameter_counts(head: str) -> None:
    assert parameter_count(build(head)) == COUNTS[head]


def test_no_other_width_is_nearer_to_the_m_layer_s_count() -> None:
    """The reference is a separate count: convolutions without bias, two numbers per normalized channel."""

    def count(a: int, b: int, c: int) -> int:
        convolutions = 27 * a + 18 * a * a + 9 * a * b + 9 * b * b + a * b + 9 * b * c + 9 * c * c + b * c
        return convolutions + 2 * (a + 2 * a + 2 * b + 2 * c) + 11 * c - c + 10

    assert count(16, 32, 64) == COUNTS["linear"]
    assert min(range(40, 100), key=lambda c: abs(count(16, 32, c) - COUNTS["M-layer"])) == 70


def test_equal_trunks_start_equal() -> None:
    """The head must not move what the seed draws for the convolutions."""
    nets = [build(head) for head in HEADS[:3]]
    for net in nets[1:]:
        for one, other in zip(nets[0].trunk.parameters(), net.trunk.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


@torch.no_grad()
def test_the_trunk_is_the_residual_net_it_says() -> None:
    """Against convolutions written out with plain functions, channels first."""
    net = build("linear", shape=(8, 6, 3)).double().eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()  # type: ignore[union-attr]
            module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    x = torch.rand(5, 8 * 6 * 3, dtype=torch.float64)
    h = x.view(5, 8, 6, 3).permute(0, 3, 1, 2).contiguous()

    def normalized(h: torch.Tensor, of: nn.Module) -> torch.Tensor:
        assert isinstance(of, nn.BatchNorm2d)
        mean, var = (v.view(-1, 1, 1) for v in (of.running_mean, of.running_var))  # type: ignore[union-attr]
        return (h - mean) / (var + of.eps).sqrt() * of.weight.view(-1, 1, 1) + of.bias.view(-1, 1, 1)

    def convolved(h: torch.Tensor, of: nn.Module, stride: int) -> torch.Tensor:
        assert isinstance(of, nn.Conv2d)
        return nn.functional.conv2d(h, of.weight.contiguous(), stride=stride, padding=of.weight.shape[2] // 2)

    stem, norm, _, *blocks = net.trunk
    h = normalized(convolved(h, stem, 2), norm).relu()
    for block, stride in zip(blocks, (1, 2, 2), strict=True):
        assert isinstance(block.inner, nn.Sequential)
        assert isinstance(block.past, nn.Module)
        first, norm_1, _, second, norm_2 = block.inner
        inner = normalized(convolved(h, first, stride), norm_1).relu()
        inner = normalized(convolved(inner, second, 1), norm_2)
        past = h if isinstance(block.past, nn.Identity) else convolved(h, block.past, stride)
        h = (past + inner).relu()
    torch.testing.assert_close(net.features(x), h.mean((2, 3)), rtol=1e-10, atol=1e-10)


def test_the_recipe_is_ours_but_for_the_rate_the_epochs_and_the_penalty_of_others() -> None:
    ours = RECIPES["cifar10"]["our_recipe"]
    for head in HEADS:
        recipe = convolutional._recipe("cifar10", head, 0.2, 7)
        assert (recipe.settings.learning_rate, recipe.settings.epochs) == (0.2, 7)
        assert recipe.settings.activity_penalty == (
            ours.settings.activity_penalty if head == "M-layer" else 0
        )
        assert recipe.augmentation == ours.augmentation
        assert recipe.settings.weight_decay == ours.settings.weight_decay


def test_paired_differences_need_two_seeds_and_a_spread() -> None:
    assert paired({0: 1.0}, {0: 2.0, 1: 3.0}) is None
    found = paired({0: 1.0, 1: 2.0}, {0: 0.0, 1: 1.0})
    assert found == {"seeds": 2, "difference": 1.0, "p": None}


@pytest.mark.slow
def test_smoke_run(tmp_path: Path) -> None:
    record = reproduce("convolutional", "smoke", out=tmp_path)
    search, trainings = record["results"]["search"], record["results"]["trainings"]
    assert len(search) == 2 * len(HEADS)
    assert len(trainings) == 2 * len(HEADS)
    for row in trainings:
        tried = [each for each in search if each["head"] == row["head"]]
        best = max(tried, key=lambda each: each["validation_accuracy"])
        assert row["learning_rate"] == best["learning_rate"]
    assert record["headline"]["convolutional.digits.M-layer.mean"] > 30  # a tenth is chance
    assert "convolutional.digits.ReLU.m_layer_ahead_by" in record["headline"]
    assert (tmp_path / "convolutional.smoke.png").stat().st_size > 5000

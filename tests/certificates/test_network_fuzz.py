"""Random networks in front of an M-layer: nothing in a certified box changes the class.

"magnitudes": maps of one number whose weights are powers of ten far apart, so that products of them vanish or
overflow in float64; the truth is computed in Arb balls at both ends. "shapes": convolutions, pooling and
normalizations with all their options; attacked by corners and gradients, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flint
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mlayer
from certificate_truth import BITS
from mlayer.certificates import certify
from mlayer.errors import ArgumentError

arb, F64 = flint.arb, torch.float64


def one_number(random: np.random.Generator) -> tuple[nn.Sequential, float]:
    """Maps of one number with exp(g h) - 1/2 behind them, and an eps that moves it by about g h = -1."""
    front: list[nn.Module] = []
    exponent = 0.0
    for _ in range(int(random.integers(2, 7))):
        power = float(random.uniform(-250, 60))
        kind = random.choice(["linear", "normal", "relu"])
        if kind == "relu":
            front.append(nn.ReLU())
            continue
        # Within what the last map and eps can make up for.
        power = power if -540 < exponent + power < 280 else -exponent * random.uniform(0.4, 0.5)
        module = nn.Linear(1, 1) if kind == "linear" else nn.BatchNorm1d(1)
        module = module.to(F64)
        with torch.no_grad():
            module.weight.fill_(10.0**power * random.choice([-1.0, 1.0]))
            if isinstance(module, nn.BatchNorm1d):
                spread = float(random.choice([1.0, 1e-12, 1e100, 1e-200]))
                module.running_var.fill_(spread)  # type: ignore[union-attr]
                power -= math.log10(math.sqrt(spread + module.eps))
            else:
                module.bias.zero_()
        exponent += power
        front.append(module)
    layer = mlayer.MLayer(1, 2, matrix_size=1, embedding_size=None, dtype=F64)
    with torch.no_grad():
        layer.free_generators.fill_(1.0)
        layer.free_matrix_bias.zero_()  # type: ignore[union-attr]
        layer.readout.copy_(torch.tensor([[[1.0]], [[0.0]]]))
        layer.output_bias.copy_(torch.tensor([0.0, 0.5]))  # type: ignore[union-attr]
    last = nn.Linear(1, 1, dtype=F64)
    with torch.no_grad():
        last.weight.fill_(10.0 ** min(max(-exponent + random.uniform(-30, 30), -280), 280))
        last.bias.zero_()
    eps = 10.0 ** min(max(random.uniform(-20, 20) - exponent - math.log10(last.weight.item()), -290), 290)
    return nn.Sequential(*front, last, layer).eval(), eps


def exact_margin(network: nn.Sequential, x: Any) -> Any:
    """exp(h) - 1/2 at one number, in balls."""
    h = x
    for module in list(network)[:-1]:
        if isinstance(module, nn.ReLU):
            h = h if h > 0 else arb(0)
        elif isinstance(module, nn.Linear):
            h = h * arb(module.weight.item()) + arb(module.bias.item())
        elif isinstance(module, nn.BatchNorm1d):
            mean, variance = (arb(v.item()) for v in (module.running_mean, module.running_var))  # type: ignore[union-attr]
            root = (variance + arb(module.eps)).sqrt()
            h = (h - mean) / root * arb(module.weight.item()) + arb(module.bias.item())
    if h < -1000:
        return -arb(1) / 2
    return (h if h < 1000 else arb(1000)).exp() - arb(1) / 2


def false_of_magnitudes(seed: int) -> list[str]:
    network, eps = one_number(np.random.default_rng(seed))
    x, labels = torch.zeros(1, 1, dtype=F64), torch.tensor([0])
    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        if not bool(certify(network, x, labels, eps=eps).certified[0]):
            return []
        return [f"at {p}" for p in (-eps, eps) if not exact_margin(network, arb(p)) > 0]
    except ArgumentError:  # a model out of range
        return []
    finally:
        flint.ctx.prec = before


def a_front(random: np.random.Generator, shape: tuple[int, ...]) -> tuple[list[nn.Module], int]:
    """Modules for images of this shape, with random options, and the number of features behind them."""
    modules: list[nn.Module] = []
    image = torch.zeros(1, *shape)

    def pick(*choices: Any) -> Any:
        return choices[int(random.integers(len(choices)))]

    def convolution(channels: int) -> nn.Module:
        groups = pick(1, channels)
        return nn.Conv2d(
            channels, groups * pick(1, 2), pick(1, 2, 3, (1, 3)), stride=pick(1, 2, (1, 2)),
            padding=pick(0, 1, (0, 1)), dilation=pick(1, 2), groups=groups, bias=pick(True, False),
        )  # fmt: skip

    def normalization(channels: int) -> nn.Module:
        module = nn.BatchNorm2d(channels, eps=pick(1e-5, 1e-12), affine=pick(True, False))
        tensors = [module.running_mean, *([module.weight.data, module.bias.data] if module.affine else [])]
        for tensor in tensors:
            tensor.normal_()  # type: ignore[union-attr]
        module.running_var.uniform_().pow_(pick(1, 8))  # type: ignore[union-attr]
        return module

    kinds: list[Callable[[int], nn.Module]] = [
        convolution,
        normalization,
        lambda _: nn.AvgPool2d(
            pick(2, 3, (2, 1)), pick(None, 1, 2), pick(0, 0, 1), count_include_pad=pick(True, False)
        ),
        lambda _: nn.MaxPool2d(pick(2, 3, (2, 1)), pick(None, 1, 2), pick(0, 0, 1), pick(1, 1, 2)),
        lambda _: nn.Sequential(nn.ReLU(inplace=pick(True, False)), nn.Dropout(0.5)),
    ]
    for _ in range(int(random.integers(1, 6))):
        module = kinds[int(random.integers(len(kinds)))](image.shape[1]).eval()
        try:
            behind = module(image.clone())
        except RuntimeError:  # too small an image for these options
            continue
        image = behind
        modules.append(module)
    return [*modules, nn.Flatten()], image.numel()


def false_of_shapes(seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    shape = (int(random.integers(1, 3)), *random.integers(3, 6, 2).tolist())
    front, features = a_front(random, shape)
    layer = mlayer.MLayer(features, 3, matrix_size=3, embedding_size=4, init="balanced")
    for parameter in layer.parameters():
        parameter.data.normal_().mul_(0.4)
    network = nn.Sequential(*front, layer).eval().to(F64)
    x = torch.rand(2, *shape, dtype=F64)
    labels = network(x.clone()).argmax(1)
    box = (0.0, 1.0) if seed % 2 else None
    found = []
    for row, radius in enumerate(certify(network, x, labels, box=box).radius.tolist()):
        low, high = x[row] - min(radius, 1e3), x[row] + min(radius, 1e3)
        if box is not None:
            low, high = low.clamp_min(0.0), high.clamp_max(1.0)
        if radius > 0 and float(_least(network, low, high, int(labels[row]))) < 0:
            found.append(f"row {row}, radius {radius}")
    return found


def _least(network: nn.Sequential, low: Tensor, high: Tensor, label: int) -> Tensor:
    """The least margin at random corners, each moved to those that the gradient points to."""
    points = torch.where(torch.rand(50, *low.shape) < 0.5, low, high)
    least = torch.tensor(torch.inf, dtype=F64)
    for _ in range(4):
        points = points.detach().requires_grad_(True)
        outputs = network(points * 1.0)
        rivals = outputs.scatter(1, torch.full((len(points), 1), label), -torch.inf)
        margins = outputs[:, label] - rivals.amax(1)
        least = torch.minimum(least, margins.detach().min())
        (gradient,) = torch.autograd.grad(margins.sum(), points)
        points = torch.where(gradient > 0, low, torch.where(gradient < 0, high, points.detach()))
    return least


FAMILIES = {"magnitudes": false_of_magnitudes, "shapes": false_of_shapes}


@pytest.mark.parametrize(("family", "seeds"), [("magnitudes", 12), ("shapes", 3)])
def test_no_false_certificate_of_a_network(family: str, seeds: int) -> None:
    for seed in range(20, 20 + seeds):
        assert FAMILIES[family](seed) == [], seed


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(10))
@pytest.mark.parametrize("family", FAMILIES)
def test_no_false_certificate_of_many_networks(family: str, block: int) -> None:
    size = {"magnitudes": 200, "shapes": 20}[family]
    for seed in range(100 + size * block, 100 + size * (block + 1)):
        assert FAMILIES[family](seed) == [], seed

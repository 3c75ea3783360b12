"""Convolutions and averages that keep their weights are the maps of their dense matrices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import mlayer
from mlayer.certificates.networks import steps
from mlayer.certificates.networks.convolved import Convolved
from mlayer.certificates.networks.relax import negative_part, positive_part
from mlayer.certificates.networks.steps import Affine, MaxPool, Relu, Step, read_front

SHAPE = (4, 9, 8)
OPTIONS: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": (4, 3), "stride": 2, "padding": 1},
    {"kernel_size": (2, 3), "stride": (3, 2), "dilation": (3, 2), "padding": (2, 0)},
    {"kernel_size": 3, "groups": 2, "stride": (2, 1), "bias": False},
    {"kernel_size": (5, 3), "stride": (3, 2), "count_include_pad": False},
    {"kernel_size": 3, "padding": 1, "count_include_pad": True},
]


def made(front: list[nn.Module], monkeypatch: pytest.MonkeyPatch, dense: int) -> Step:
    with monkeypatch.context() as patch:
        patch.setattr(steps, "_DENSE", dense)
        image = nn.Sequential(*front)(torch.zeros(1, *SHAPE, dtype=torch.float64))
        (step,) = read_front([*front, nn.Flatten()], SHAPE, image.numel())
    return step


def with_statistics(norm: Any) -> Any:
    for tensor in (norm.running_mean, norm.weight.data, norm.bias.data):
        tensor.normal_()
    return norm


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("normalized", [False, True])
def test_the_same_map(options: dict[str, Any], normalized: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    averages = "count_include_pad" in options
    front: list[nn.Module] = [nn.AvgPool2d(**options) if averages else nn.Conv2d(4, 6, **options)]
    if normalized:
        front.append(with_statistics(nn.BatchNorm2d(4 if averages else 6)))
    front = [module.double().eval().requires_grad_(False) for module in front]
    kept, dense = made(front, monkeypatch, 0), made(front, monkeypatch, 10**9)
    assert isinstance(kept, Convolved)
    assert isinstance(dense, Affine)
    assert (kept.inputs, kept.outputs) == (dense.inputs, dense.outputs)
    assert (kept.relative, kept.b.tolist(), kept.error.tolist()) == (
        dense.relative,
        dense.b.tolist(),
        dense.error.tolist(),
    )
    h = torch.randn(5, kept.inputs, dtype=torch.float64)
    slopes = torch.randn(5, 2, kept.outputs, dtype=torch.float64)
    for part in (torch.positive, torch.abs, positive_part, negative_part):
        torch.testing.assert_close(kept.ahead(h, part), dense.ahead(h, part), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            kept.behind(slopes, part), dense.behind(slopes, part), rtol=1e-12, atol=1e-12
        )
    truth = nn.Sequential(*front)(h.view(5, *SHAPE)).flatten(1)
    torch.testing.assert_close(kept.ahead(h, torch.positive) + kept.b, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(-1,), (9, 8, 4), (3, 12, 8)])
@pytest.mark.parametrize("pooled", [False, True])
def test_normalizations_that_divide_channels(
    shape: tuple[int, ...], pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries of one channel have different scales behind a Flatten or an Unflatten."""
    torch.manual_seed(2)
    monkeypatch.setattr(steps, "_DENSE", 0)
    first = nn.AvgPool2d(1) if pooled else nn.Conv2d(4, 4, 3, padding=1)
    front: list[nn.Module] = [first, nn.Flatten()]
    if len(shape) == 3:
        front.append(nn.Unflatten(1, shape))
    norm = nn.BatchNorm1d(4 * 9 * 8) if len(shape) == 1 else nn.BatchNorm2d(shape[0])
    front += [with_statistics(norm), nn.Flatten()]
    front = [module.double().eval().requires_grad_(False) for module in front]
    x = torch.randn(3, *SHAPE, dtype=torch.float64)
    h = x.flatten(1)
    for step in read_front(front, SHAPE, 4 * 9 * 8):
        assert not isinstance(step, Relu | MaxPool)
        slopes = torch.randn(3, 2, step.outputs, dtype=torch.float64)
        forward = (slopes * step.ahead(h, torch.positive)[:, None]).sum(-1)
        backward = (step.behind(slopes, torch.positive) * h[:, None]).sum(-1)
        torch.testing.assert_close(forward, backward, rtol=1e-11, atol=1e-11)
        h = step.ahead(h, torch.positive) + step.b
    torch.testing.assert_close(h, nn.Sequential(*front)(x), rtol=1e-12, atol=1e-12)


def test_the_same_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    layer = mlayer.MLayer(6, 3, matrix_size=3, embedding_size=4, init="balanced")
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(3, 6, 2),
        nn.Flatten(),
        nn.Linear(6 * 1 * 1, 6),
        layer,
    ).eval()
    x = torch.rand(6, 1, 4, 4)
    labels = network(x).argmax(1)
    found = mlayer.certify(network, x, labels)
    monkeypatch.setattr(steps, "_DENSE", 0)
    kept = mlayer.certify(network, x, labels)
    assert bool((kept.radius > 0).all())
    torch.testing.assert_close(kept.radius, found.radius, rtol=1e-2, atol=0)

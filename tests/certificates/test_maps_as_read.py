"""The affine maps that modules are read as: stored entries within the stated errors of the true ones."""

from __future__ import annotations

from typing import Any

import flint
import pytest
import torch
from torch import nn

from certificate_truth import BITS
from mlayer.certificates.networks import steps
from mlayer.certificates.networks.steps import MaxPool, Relu, read_front
from network_truth import each, exact_front

VECTOR, IMAGE = (9,), (2, 4, 4)
FRONTS: dict[str, tuple[list[nn.Module], tuple[int, ...]]] = {
    "normalization alone": ([nn.BatchNorm1d(9)], VECTOR),
    "two normalizations": ([nn.BatchNorm1d(9), nn.BatchNorm1d(9)], VECTOR),
    "linear": ([nn.Linear(9, 5), nn.BatchNorm1d(5)], VECTOR),
    "convolution": ([nn.Conv2d(2, 3, 2, padding=1), nn.BatchNorm2d(3)], IMAGE),
    "averages": ([nn.AvgPool2d(3, padding=1, stride=1)], IMAGE),
    "averages of what is there": (
        [nn.AvgPool2d(3, padding=1, stride=1, count_include_pad=False), nn.BatchNorm2d(2)],
        IMAGE,
    ),
}


@pytest.mark.parametrize("dense", [0, 10**9])
@pytest.mark.parametrize("name", FRONTS)
def test_entries_and_errors(name: str, dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_DENSE", dense)
    generator = torch.Generator().manual_seed(3)
    front, shape = FRONTS[name]
    for module in front:
        module.double().eval().requires_grad_(False)
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            for statistic in (module.running_mean, module.weight, module.bias):
                assert statistic is not None
                statistic.copy_(torch.randn(module.num_features, generator=generator))
            assert module.running_var is not None
            module.running_var.uniform_(0.3, 2, generator=generator)
    size = torch.Size(shape).numel()
    out = nn.Sequential(*front)(torch.zeros(1, *shape, dtype=torch.float64)).numel()
    before, flint.ctx.prec = flint.ctx.prec, BITS

    def exact(entry: int | None) -> list[Any]:
        h = torch.zeros(size, dtype=torch.float64)
        if entry is not None:
            h[entry] = 1
        found: list[Any] = []
        each(exact_front(front, each(h.reshape(shape).tolist(), flint.arb)), found.append)
        return found

    try:
        bias = exact(None)
        inexact = 0
        (step,) = read_front([*front, nn.Flatten()], shape, out)
        assert not isinstance(step, Relu | MaxPool)
        for b, true, error in zip(step.b.tolist(), bias, step.error.tolist(), strict=True):
            assert abs(true - b) <= error
            inexact += bool(abs(true - b) > 0)
        A = step.ahead(torch.eye(size, dtype=torch.float64), torch.positive)
        for entry, row in enumerate(A.tolist()):
            for a, with_it, without in zip(row, exact(entry), bias, strict=True):
                off = abs(with_it - without - a)
                # Balls of so many bits are wider than 0 by less than any rounding of float64.
                assert off <= flint.arb(step.relative) * abs(a) + flint.arb(2) ** -400
                inexact += bool(off > flint.arb(2) ** -400)
        assert inexact > 0
    finally:
        flint.ctx.prec = before

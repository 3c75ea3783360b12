"""The inputs that an attack returns: within eps and the box as exact numbers, and misclassified exactly."""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mlayer
from certificate_truth import changes_class, stored
from mlayer.certificates import attack, certify

F64 = torch.float64


def decaying() -> mlayer.MLayer:
    """Outputs exp(h) and 1/2: class 0 where h > -log 2."""
    return mlayer.MLayer.from_weights(
        generators=torch.ones(1, 1, 1, dtype=F64),
        readout=torch.tensor([[[1.0]], [[0.0]]], dtype=F64),
        output_bias=torch.tensor([0.0, 0.5], dtype=F64),
    )


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("unit", [1.0, 0.3])
def test_points_are_within_eps_and_the_box(norm: Any, unit: float) -> None:
    """Sums of an input and a step are rounded: never away from the input, nor out of the box."""
    found = 0
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        layer = mlayer.MLayer(3, 3, matrix_size=3, embedding_size=4, generator=generator).double()
        for parameter in layer.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
        far = 10.0 ** (2 * seed)
        layer.embedding.data.div_(far)  # type: ignore[union-attr]
        x = torch.randn(3, 3, generator=generator).double() * far
        labels = layer(x).argmax(1)
        box = (x.amin(0) - 0.1 * far, x.amax(0) + 0.1 * far) if norm == "linf" else None
        smallest = attack(layer, x, labels, norm=norm, box=box, scale=unit, starts=1)
        least = float(smallest.radius.min())
        for eps in (None, 1.0001 * least) if np.isfinite(least) else ():
            result = attack(
                layer, x, labels, eps, norm, box=box, scale=unit, starts=1, pgd_steps=5, pgd_restarts=1
            )
            for row in torch.nonzero(result.success)[:, 0].tolist():
                moved = result.adversarial[row]
                steps = [
                    Fraction(a) - Fraction(b) for a, b in zip(moved.tolist(), x[row].tolist(), strict=True)
                ]
                most = Fraction(float(result.radius[row]) if eps is None else eps) * Fraction(unit)
                size = max(map(abs, steps)) ** 2 if norm == "linf" else sum(s * s for s in steps)
                assert size <= most**2
                if box is not None:
                    assert bool(((moved >= box[0]) & (moved <= box[1])).all())
                found += 1
    assert found > 8


def test_no_false_success_at_the_root_of_a_polynomial() -> None:
    """Entries of exp(M) that cancel within it: relative to themselves they are rounded by anything."""
    found = 0
    for seed in range(16):
        random = np.random.default_rng(seed)
        n = int(random.integers(2, 5))
        S = np.zeros((2, n, n))
        S[0, 0, n - 1] = 1  # the sum over all paths from the first to the last
        T, B = (np.triu(random.standard_normal((k, n, n)), 1) for k in (2, 1))
        U, u, x = (random.standard_normal(shape) for shape in ((2, 2), (2,), (4, 2)))
        layer = mlayer.MLayer.from_weights(
            *map(torch.from_numpy, (T, S)), matrix_bias=torch.from_numpy(B[0]),
            embedding=torch.from_numpy(U), embedding_bias=torch.from_numpy(u),
        )  # fmt: skip
        rows = torch.from_numpy(x)
        labels = layer(rows).argmax(1)
        result = attack(layer, rows, labels)
        for row in torch.nonzero(result.success)[:, 0].tolist():
            assert changes_class(stored(layer), result.adversarial[row].tolist(), int(labels[row])), seed
            found += 1
    assert found > 30


@pytest.mark.parametrize("kind", ["linear", "normalization", "two"])
def test_no_false_success_behind_a_front_that_cancels(kind: str) -> None:
    """Large terms of the front cancel: what float64 sees below zero may be their rounding."""
    for seed in range(8):
        random = np.random.default_rng(seed)
        big, start = 10.0 ** random.uniform(13, 16), random.uniform(0.1, 1)
        front = nn.Linear(3, 1, dtype=F64)
        modules: list[nn.Module] = [front]
        with torch.no_grad():
            front.weight.copy_(torch.tensor([[big, 1.0, -big]]))
            front.bias.zero_()
            if kind == "normalization":  # its mean cancels a bias
                front.weight.copy_(torch.tensor([[0.0, 1.0, 0.0]]))
                front.bias.fill_(big)
                normal = nn.BatchNorm1d(1, affine=False, dtype=F64)
                normal.running_mean.fill_(big)  # type: ignore[union-attr]
                modules.append(normal)
            elif kind == "two":  # the second map cancels what the first one has rounded
                front = nn.Linear(3, 2, dtype=F64)
                front.weight.copy_(torch.tensor([[big, 1.0, 0.0], [0.0, 0.0, big]]))
                front.bias.zero_()
                last = nn.Linear(2, 1, dtype=F64)
                last.weight.copy_(torch.tensor([[1.0, -1.0]]))
                last.bias.zero_()
                modules = [front, nn.ReLU(), last]
        network = nn.Sequential(*modules, decaying()).eval()
        x = torch.tensor([[start, 1.0, start]], dtype=F64)
        labels = torch.tensor([0])
        found = attack(network, x, labels, scale=torch.tensor([0.0, 1.0, 0.0]), starts=1, pgd_steps=0)
        # Exactly: h = x_1, over sqrt(1 + eps) behind a normalization.
        h = float(found.adversarial[0, 1]) / (1.00001**0.5 if kind == "normalization" else 1.0)
        assert not (bool(found.success[0]) and np.exp(h) > 0.5)


def test_successes_of_plain_fronts_are_kept() -> None:
    """The allowance for rounding moves radii of ordinary networks in single precision by little."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(27, 6), nn.ReLU(), mlayer.MLayer(6, 3, matrix_size=4),
    ).eval()  # fmt: skip
    x = torch.rand(3, 1, 6, 6)
    labels = network(x).argmax(1)
    single, double = attack(network, x, labels), attack(network.double(), x.double(), labels)
    assert bool(single.success.all())
    assert torch.allclose(single.radius, double.radius, rtol=2e-2)
    again = network.float()(single.adversarial.float())
    assert bool((again.argmax(1) != labels).all())
    # A third class was above the one that was searched for.
    assert again.argmax(1).equal(single.target)


def test_no_success_where_the_layer_overflows() -> None:
    """exp(90) is beyond single precision: the layer has no class there, whatever the exact function says."""
    layer = mlayer.MLayer.from_weights(
        generators=torch.ones(1, 1, 1),
        readout=torch.tensor([[[0.0]], [[1e-38]]]),
        output_bias=torch.tensor([10.0, 0.0]),
    )
    x, labels = torch.tensor([[88.0]]), torch.tensor([0])
    found = [attack(one, x.to(one.readout.dtype), labels) for one in (layer, deepcopy(layer).double())]
    assert not bool(found[0].success[0])
    assert bool(found[1].success[0])
    assert float(found[1].radius[0]) == pytest.approx(np.log(1e39) - 88, rel=1e-5)


def test_slopes_that_vanish_certify_nothing() -> None:
    """A plane with slopes below the range of float64, over features of 1e69, is no plane without slopes."""
    front = nn.Linear(2, 2, dtype=F64)
    layer = mlayer.MLayer.from_weights(
        generators=torch.ones(1, 1, 1, dtype=F64),
        embedding=torch.tensor([[2.0**-230, 0.0]], dtype=F64),
        matrix_bias=torch.full((1, 1), -600.0, dtype=F64),
        readout=torch.tensor([[[1.0]], [[0.0]]], dtype=F64),
        output_bias=torch.tensor([0.0, 0.5 * np.exp(-600.0)], dtype=F64),
    )
    with torch.no_grad():
        front.weight.copy_(2.0**230 * torch.eye(2, dtype=F64))
        front.bias.zero_()
    # The margin is exp(-600) (exp(x_0) - 1/2): broken from log 2 = 0.693 on.
    x, labels = torch.zeros(1, 2, dtype=F64), torch.tensor([0])
    assert not bool(certify(nn.Sequential(front, layer).eval(), x, labels, eps=0.75).certified[0])
    reach = torch.tensor([[0.75 * 2.0**230, 0.0]], dtype=F64)
    found = mlayer.bounds(layer, -reach, reach)
    below = found.lower_slopes[0, 0, 0] * -reach[0, 0] + found.lower_constant[0, 0]
    assert float(below) <= np.exp(-600.75) * (1 + 1e-9)

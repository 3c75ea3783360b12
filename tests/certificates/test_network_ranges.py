"""Normalizations whose factors vanish in float64: folded into the map before them, they were taken as 0."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mlayer
from mlayer.certificates import attack, certify
from mlayer.certificates.networks.certifier import NetworkCertifier
from mlayer.certificates.networks.network import as_network
from mlayer.certificates.problem.region import make_region
from mlayer.errors import ArgumentError, ArgumentTypeError

F64 = torch.float64


def _linear(weight: float) -> nn.Module:
    module = nn.Linear(1, 1, bias=False, dtype=F64)
    module.weight.data.fill_(weight)
    return module


def _normal(weight: float, variance: float = 1.0) -> nn.Module:
    module = nn.BatchNorm1d(1, dtype=F64)
    module.weight.data.fill_(weight)
    module.running_var.fill_(variance)  # type: ignore[union-attr]
    return module


def _exponential() -> mlayer.MLayer:
    """The first class where exp(h) > 1/2."""
    one, none = torch.ones(1, 1, dtype=F64), torch.zeros(1, 1, dtype=F64)
    return mlayer.MLayer.from_weights(
        one[None], torch.stack([one, none]), output_bias=torch.tensor([0.0, 0.5], dtype=F64)
    )


@pytest.mark.parametrize(
    ("front", "eps"),
    [
        ([_linear(1e-200), _normal(1e-200), _linear(1e280)], 1e125),
        ([_normal(1e-200), _normal(1e-200), _linear(1e280)], 1e125),
        # Numbers that float32 has, too.
        ([*(_normal(1e-38, 1e38) for _ in range(6)), *(_linear(1e38) for _ in range(7))], 1e82),
    ],
    ids=["folded", "twice", "float32"],
)
def test_factors_whose_product_vanishes_still_move_the_margin(front: list[nn.Module], eps: float) -> None:
    """The exact h at -eps is -10^5 or less, and exp(h) nearly 0."""
    network = nn.Sequential(*front, _exponential()).eval()
    x = torch.zeros(1, 1, dtype=F64)
    assert network(x - eps).argmax(1).tolist() == [1]
    assert certify(network, x, torch.tensor([0]), eps=eps).certified.tolist() == [False]
    small = certify(network, x, torch.tensor([0]), eps=1e-9 * eps)
    assert small.certified.tolist() == [True]


def test_a_factor_that_vanishes_itself_is_refused() -> None:
    network = nn.Sequential(_normal(1e-200, 1e300), _linear(1e280), _exponential()).eval()
    with pytest.raises(ArgumentError, match="normalizations multiply by at least"):
        certify(network, torch.zeros(1, 1, dtype=F64), torch.tensor([0]), eps=1e75)
    still = nn.Sequential(_normal(0.0), _linear(1e280), _exponential()).eval()
    assert certify(still, torch.zeros(1, 1, dtype=F64), torch.tensor([0]), eps=1.0).certified.tolist() == [
        True
    ]


def test_windows_of_padding_alone_are_refused() -> None:
    """Their maximum is -inf: torch has no gradient of it."""
    pool = nn.MaxPool2d(2, stride=1, padding=1, dilation=2)
    model = nn.Sequential(pool, nn.ReLU(), nn.Flatten(), _exponential()).eval()
    x, labels = torch.rand(1, 1, 1, 1, dtype=F64), torch.tensor([0])
    for function in (certify, attack):
        with pytest.raises(ArgumentTypeError, match="Each of its windows must hold an input"):
            function(model, x, labels)


def test_margins_without_a_bound_are_infinite() -> None:
    """Not the smallest number of float64: exp(1e4) is far beyond it."""
    network, x = as_network(nn.Sequential(_linear(1e4), _exponential()).eval(), torch.ones(1, 1, dtype=F64))
    certifier = NetworkCertifier(network, make_region(1, "linf", None, None))
    found = certifier.margins(x, torch.tensor([1]), torch.ones(1, dtype=F64))
    assert found.tolist() == [[-torch.inf, torch.inf]]

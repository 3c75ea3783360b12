"""A box at the call, also one for each row: the answers of certifiers made for these boxes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mlayer
from certificate_layers import random_layer
from mlayer.certificates import Certifier
from mlayer.errors import ArgumentError, ArgumentTypeError

EPS = 0.05


def boxes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A box for each row, which cuts the ball of radius EPS on some sides."""
    random = torch.Generator().manual_seed(1)
    low, high = (2 * EPS * torch.rand(x.shape, generator=random, dtype=torch.float64) for _ in range(2))
    return x.double() - low, x.double() + high


@pytest.mark.parametrize("kind", ["full", "nilpotent", "small"])
@pytest.mark.parametrize("eps", [None, EPS])
def test_each_row_has_its_own_box(kind: str, eps: float | None) -> None:
    layer, x, labels = random_layer(kind, 5)
    low, high = boxes(x)
    together = Certifier(layer, fit_steps=0)(x, labels, eps=eps, box=(low, high))
    for k in range(len(x)):
        one = Certifier(layer, fit_steps=0, box=(low[k], high[k]))(x[k : k + 1], labels[k : k + 1], eps=eps)
        assert together.certified[k] == one.certified[0]
        assert float(together.radius[k]) == pytest.approx(float(one.radius[0]), rel=1e-12)


def test_a_shared_box_replaces_that_of_the_certifier() -> None:
    layer, x, labels = random_layer("full", 5)
    x = x.clamp(-1, 1)
    labels = layer(x).argmax(1)
    narrow = Certifier(layer, fit_steps=0, box=(-1, 1))
    wide = Certifier(layer, fit_steps=0, box=(-3, 3))
    found = wide(x, labels, box=(-1, 1)).radius
    assert found.tolist() == narrow(x, labels).radius.tolist() != wide(x, labels).radius.tolist()
    assert len(wide(x[:0], labels[:0], box=(x[:0], x[:0])).radius) == 0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"box": (1, 0)}, ArgumentError, "box must be a pair with low <= high"),
        ({"box": 3}, ArgumentTypeError, r"box must be a pair \(low, high\); got int"),
        ({"box": (torch.zeros(2, 9), 1)}, ArgumentError, r"box\[0\] must be a number or a vector of \d, or"),
        ({"box": (5.0, 6.0)}, ArgumentError, "x must be inside the box"),
        ({"box": (-9, 9), "rigorous": True}, ArgumentError, "box must be None with proofs"),
    ],
)
def test_mistakes(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    layer, x, labels = random_layer("full", 5)
    with pytest.raises(error, match=words):
        Certifier(layer, fit_steps=0)(x, labels, **arguments)


def test_a_ball_has_no_box() -> None:
    layer, x, labels = random_layer("full", 5)
    with pytest.raises(ArgumentError, match="box must be None with norm='l2'"):
        Certifier(layer, norm="l2", fit_steps=0)(x, labels, box=(-9, 9))


def test_what_the_caller_writes_later_changes_no_certificate() -> None:
    """Scale and box in float64 were used where they stood: after a change the radius was infinite."""
    generator = torch.Generator().manual_seed(0)
    layer = mlayer.MLayer(4, 3, 4, 3, init="balanced", generator=generator).double()
    x = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    labels = layer(x).argmax(1)
    scale, low, high = torch.ones(4).double(), torch.full((4,), -3.0).double(), torch.full((4,), 3.0).double()
    certifier = mlayer.Certifier(layer, scale=scale, box=(low, high), fit_steps=0)
    before = certifier(x, labels).radius
    assert bool(before.isfinite().all())  # some point of the box has another class
    scale.fill_(1e3)
    low.copy_(x[0])
    high.copy_(x[0])
    assert torch.equal(certifier(x, labels).radius, before)

    ends = [x - 0.5, x + 0.5]
    wanted = certifier(x, labels, box=(x - 0.5, x + 0.5)).radius

    def spoil(*_: object) -> None:
        for end in ends:
            end.copy_(x)

    # exact: the same question again
    assert torch.equal(certifier(x, labels, box=(ends[0], ends[1]), progress=spoil).radius, wanted)

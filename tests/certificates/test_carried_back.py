"""Functionals carried back through one step: not above those of the step, in rational numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mlayer
from mlayer.certificates import certify
from mlayer.certificates.networks.relax import Box, Functional, back, through
from mlayer.certificates.networks.steps import Affine, MaxPool, Relu, Step
from mlayer.certificates.networks.zonotope import zonotope

Random = np.random.Generator
Numbers = list[Fraction]
F64 = torch.float64
WIDTH, OUT = 24, 12


def affine(random: Random) -> Step:
    A, b = random.standard_normal((OUT, WIDTH)), random.standard_normal(OUT) * 1e8
    A[1::2] = -A[::2] * (1 + 2.0**-40)
    return Affine(torch.from_numpy(A), torch.from_numpy(b), 0.0, torch.zeros(OUT, dtype=F64))


def relu(random: Random) -> Step:
    del random
    return Relu()


def largest(random: Random) -> Step:
    """Windows of one to four inputs; -1 stands for padding, which comes first."""
    windows = random.integers(0, WIDTH, (OUT, 4))
    for window in windows:
        window[: random.integers(0, 4)] = -1
    return MaxPool(torch.from_numpy(windows))


def exact(step: Step, h: Numbers) -> Numbers:
    if isinstance(step, Relu):
        return [max(v, Fraction(0)) for v in h]
    if isinstance(step, MaxPool):
        return [max(h[k] for k in window if k >= 0) for window in step.windows.tolist()]
    assert isinstance(step, Affine)
    rows, biases = step.A.tolist(), step.b.tolist()
    return [
        sum((Fraction(a) * v for a, v in zip(row, h, strict=True)), Fraction(b))
        for row, b in zip(rows, biases, strict=True)
    ]


def value(slopes: Tensor, constant: Tensor, h: Numbers) -> Fraction:
    return sum((Fraction(s) * v for s, v in zip(slopes.tolist(), h, strict=True)), Fraction(float(constant)))


@pytest.mark.parametrize("make", [affine, relu, largest])
def test_below_the_functional_at_every_corner(make: Callable[[Random], Step]) -> None:
    for seed in range(30):
        random = np.random.default_rng(seed)
        step = make(random)
        out = WIDTH if isinstance(step, Relu) else OUT
        middle, reach = (
            random.standard_normal(WIDTH) * 1e8,
            random.uniform(0, 10.0 ** random.uniform(-9, 8), WIDTH),
        )
        box = Box(*(torch.from_numpy(end)[None] for end in (middle - reach, middle + reach)))
        slopes = torch.from_numpy(random.choice([1.0, -1.0, -1.0 / 3], out))
        behind = Functional(slopes[None, None], torch.from_numpy(random.standard_normal((1, 1))))
        found = back(step, behind, box)
        for _ in range(6):
            corner = torch.from_numpy(random.random(WIDTH) < 0.5)
            h = [Fraction(v) for v in torch.where(corner, box.low[0], box.high[0]).tolist()]
            below = value(found.slopes[0, 0], found.constant[0, 0], h)
            assert below <= value(slopes, behind.constant[0, 0], exact(step, h)), seed


@pytest.mark.parametrize("make", [affine, relu, largest])
def test_between_the_sides_of_a_zonotope_at_every_corner(make: Callable[[Random], Step]) -> None:
    """The feature itself is carried back, so it is bounded from both sides."""
    for seed in range(30):
        random = np.random.default_rng(seed)
        step = make(random)
        out = WIDTH if isinstance(step, Relu) else OUT
        middle, reach = (
            random.standard_normal(WIDTH) * 1e8,
            random.uniform(0, 10.0 ** random.uniform(-9, 8), WIDTH),
        )
        box = Box(*(torch.from_numpy(end)[None] for end in (middle - reach, middle + reach)))
        slopes = torch.from_numpy(random.choice([1.0, -1.0, -1.0 / 3], (2, out)))
        constant = torch.from_numpy(random.standard_normal(2))
        found = zonotope([step], [box], slopes, constant)
        along, far = found.directions[0, :WIDTH], found.reach[0, :WIDTH]
        width = [
            sum((abs(Fraction(v)) for v in column), Fraction(0))
            for column in (found.directions * found.reach[..., None])[0, WIDTH:].T.tolist()
        ]
        start = box.low[0] + (box.high[0] - box.low[0]) / 2
        for _ in range(6):
            corner = torch.from_numpy(random.random(WIDTH) < 0.5)
            h = [Fraction(v) for v in torch.where(corner, box.low[0], box.high[0]).tolist()]
            moved = [v - Fraction(m) for v, m in zip(h, start.tolist(), strict=True)]
            assert all(abs(v) <= Fraction(r) for v, r in zip(moved, far.tolist(), strict=True))
            for a in range(2):
                truth = value(slopes[a], constant[a], exact(step, h))
                off = truth - value(along[:, a], found.center[0, a], moved)
                assert abs(off) <= width[a] * (1 + Fraction(1, 10**15)), seed
        sizes = (box.high - box.low).sum()  # and not far away
        assert make is not relu or float(found.directions[0, WIDTH:].abs().sum()) <= 4 * float(sizes) + 1e-3


def test_upper_ends_that_cancel() -> None:
    """Each window is bounded by its largest upper end; 400 of them, of both signs, add up to little."""
    count = 400
    for seed in range(10):
        random = np.random.default_rng(seed)
        high = random.standard_normal(2 * count) * 1e8
        low = high - 1.0 - np.repeat(np.abs(high[::2] - high[1::2]), 2)
        box = Box(torch.from_numpy(low)[None], torch.from_numpy(high)[None])
        step = MaxPool(torch.arange(2 * count).reshape(count, 2))
        ends = high.reshape(count, 2).max(1)
        slopes = -random.uniform(0.5, 1.5, count)
        slopes[-1] = slopes[:-1] @ ends[:-1] / -ends[-1]
        if slopes[-1] >= 0:
            continue
        zero = torch.zeros(1, 1, dtype=F64)
        found = back(step, Functional(torch.from_numpy(slopes)[None, None], zero), box)
        truth = value(torch.from_numpy(slopes), zero, [Fraction(v) for v in ends.tolist()])
        assert not found.slopes.any()
        assert Fraction(float(found.constant)) <= truth, seed


@pytest.mark.parametrize("eps", [1e304, 1e308])
def test_windows_of_numbers_that_overflow(eps: float) -> None:
    """Ends of -infinity, as padding has: there is no certificate, and no error."""
    convolution = nn.Conv2d(1, 1, 1, dtype=F64)
    nn.init.constant_(convolution.weight, 1e5)
    layer = mlayer.MLayer(9, 2, matrix_size=2, dtype=F64)
    model = nn.Sequential(convolution, nn.MaxPool2d(2, padding=1), nn.Flatten(), layer).eval()
    x = torch.zeros(1, 1, 4, 4, dtype=F64)
    found = certify(model, x, model(x).argmax(1), eps=eps)
    assert not found.certified.any()
    assert mlayer.bounds(model, x - eps, x + eps).lower.tolist() == [[-torch.inf, -torch.inf]]


@pytest.mark.parametrize("kind", ["interval", "small input", "minimum"])
def test_denormal_factors_that_are_taken_as_zero(kind: str, flushing: Callable[[], None]) -> None:
    """Threads of torch may take them as 0, and what they are multiplied by may be as large."""
    small, large = 2.0**-1030, 2.0**1000

    def number(*values: float) -> Tensor:
        return torch.tensor([values], dtype=torch.float64)

    zero = torch.zeros(1, dtype=torch.float64)
    if kind == "minimum":
        functional, box = Functional(number(small)[None], number(0.0)), Box(number(-large), number(large))
        flushing()
        assert float(functional.minimum(box)[0, 0]) <= -(2.0**-30)
        return
    factor, value = (small, large) if kind == "interval" else (large, small)
    step = Affine(number(factor), zero, 0.0, zero)
    flushing()
    found = through(step, Box(number(-value), number(value)))
    assert float(found.low[0, 0]) <= -(2.0**-30)
    assert float(found.high[0, 0]) >= 2.0**-30

"""Zonotopes hold what the steps compute where nothing but the charge for rounding is between the two."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import torch
from torch import Tensor

from mlayer.certificates.networks.relax import Box, through
from mlayer.certificates.networks.steps import Affine, MaxPool, Relu, Step
from mlayer.certificates.networks.zonotope import zonotope

Rational = list[Fraction]


def tensor(values: object) -> Tensor:
    """Float64 numbers."""
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def exact(step: Step, h: Rational) -> Rational:
    """The numbers that a step computes."""
    if isinstance(step, Relu):
        return [max(v, Fraction(0)) for v in h]
    if isinstance(step, MaxPool):
        return [max(h[k] for k in window) for window in step.windows.tolist()]
    assert isinstance(step, Affine)
    return [dot(row, h) + Fraction(b) for row, b in zip(step.A.tolist(), step.b.tolist(), strict=True)]


def dot(row: list[float], h: Rational) -> Fraction:
    """The exact sum of products."""
    return sum((Fraction(a) * v for a, v in zip(row, h, strict=True)), Fraction(0))


def outside(steps: list[Step], box: Box, slopes: Tensor, constant: Tensor) -> int:
    """The number of corners that the zonotope of one feature misses."""
    boxes = [box]
    for step in steps:
        boxes.append(through(step, boxes[-1]))
    found = zonotope(steps, boxes, slopes, constant)
    n = box.low.shape[1]
    along, reach = found.directions[0, :n, 0].tolist(), found.reach[0, :n].tolist()
    rest = sum(
        Fraction(abs(v)) * Fraction(r)
        for v, r in zip(found.directions[0, n:, 0].tolist(), found.reach[0, n:].tolist(), strict=True)
    )
    start = (box.low[0] + (box.high[0] - box.low[0]) / 2).tolist()
    missed = 0
    for ends in product((box.low[0].tolist(), box.high[0].tolist()), repeat=min(n, 3)):
        h = [Fraction(ends[min(i, len(ends) - 1)][i]) for i in range(n)]
        moved = [v - Fraction(s) for v, s in zip(h, start, strict=True)]
        assert all(abs(v) <= Fraction(r) for v, r in zip(moved, reach, strict=True))
        value = h
        for step in steps:
            value = exact(step, value)
        truth = dot(slopes[0].tolist(), value) + Fraction(float(constant))
        missed += abs(truth - Fraction(float(found.center)) - dot(along, moved)) > rest
    return missed


def test_the_center_of_the_box() -> None:
    for seed in range(30):
        random = np.random.default_rng(seed)
        n = int(random.integers(1, 9))
        low = random.standard_normal(n) * 10.0 ** random.uniform(0, 8)
        box = Box(tensor([low]), tensor([low + 10.0 ** random.uniform(-9, 9, n)]))
        assert (
            outside([], box, tensor(random.standard_normal((1, n))), tensor([random.standard_normal()])) == 0
        )


def test_products_of_maps_that_cancel() -> None:
    """The box is around 0, so that its center adds nothing."""
    for seed in range(30):
        random = np.random.default_rng(seed)
        n, k = int(random.integers(1, 4)), 30
        A = random.standard_normal((k, n))
        slopes = random.standard_normal((1, k))
        slopes[0, -1] = -(slopes[0, :-1] @ A[:-1, 0]) / A[-1, 0]
        far = tensor([10.0 ** random.uniform(-3, 6, n)])
        zero = torch.zeros(k, dtype=torch.float64)
        assert outside([Affine(tensor(A), zero, 0.0, zero)], Box(-far, far), tensor(slopes), zero[:1]) == 0


def test_biases_that_cancel() -> None:
    for seed in range(30):
        random = np.random.default_rng(seed)
        k = 30
        b, slopes = random.standard_normal(k), random.standard_normal((1, k))
        constant = -(slopes @ b)
        zero, far = torch.zeros(k, dtype=torch.float64), tensor([[1e-18]])
        step = Affine(tensor(np.full((k, 1), 1e-18)), tensor(b), 0.0, zero)
        assert outside([step], Box(-far, far), tensor(slopes), tensor(constant)) == 0


def test_middles_of_windows_that_cancel() -> None:
    """No entry is the largest throughout; small middles are lost beside two large ones that cancel."""
    count = 3000
    low = np.full(count, 7e-9)
    low[0] = low[-1] = 1e8
    low = low.repeat(2)
    slopes = np.ones((1, count))
    slopes[0, -1] = -1
    windows = MaxPool(torch.arange(2 * count).reshape(count, 2))
    box = Box(tensor([low]), tensor([np.nextafter(low, np.inf)]))
    assert outside([windows], box, tensor(slopes), tensor([0.0])) == 0


def test_windows_that_share_their_largest_entry() -> None:
    for seed in range(30):
        random = np.random.default_rng(seed)
        k = 40
        slopes = random.standard_normal((1, k))
        slopes[0, -1] = -slopes[0, :-1].sum()
        box = Box(tensor([[-1.0, -9.0]]), tensor([[1.0, -8.0]]))
        assert outside([MaxPool(torch.tensor([[0, 1]] * k))], box, tensor(slopes), tensor([0.0])) == 0


def test_entries_too_small_to_multiply() -> None:
    """Below 1e-70 they become part of the error."""
    far = tensor([[1e10, 1e-75]])
    assert outside([], Box(-far, far), tensor([[1e-75, 1e10]]), tensor([0.0])) == 0

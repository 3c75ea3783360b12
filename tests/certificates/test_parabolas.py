"""Batches of parabolas: each margin is a + b t + h t^2 of one input, whose truth is known as a fraction.

Rows and rivals differ in size by orders of magnitude: a number that is taken from another row or rival shows.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from mlayer import MLayer
from mlayer.certificates import Certifier

CLASSES, ROWS = 9, 12
FAR = 1e9  # stands for an infinite radius
Parabola = tuple[Fraction, Fraction, Fraction]


def case(seed: int) -> tuple[MLayer, torch.Tensor]:
    """exp(M) = 1 + M + M^2 / 2 of strictly triangular matrices of size 3."""
    random = np.random.default_rng(seed)
    T, B = np.triu(random.standard_normal((2, 3, 3)), 1)
    S = random.standard_normal((CLASSES, 3, 3)) * 10.0 ** random.uniform(-2, 2, (CLASSES, 3, 3))
    V = random.standard_normal(CLASSES) * 10.0 ** random.uniform(-1, 2, CLASSES)
    layer = MLayer.from_weights(
        torch.from_numpy(T)[None],
        torch.from_numpy(S),
        matrix_bias=torch.from_numpy(B),
        output_bias=torch.from_numpy(V),
        structure="nilpotent",
    )
    x = random.standard_normal((ROWS, 1)) * 10.0 ** random.uniform(-2, 1, (ROWS, 1))
    return layer, torch.from_numpy(x)


def outputs_near(layer: MLayer, x: float) -> list[Parabola]:
    """Each output as a polynomial of the step from x."""
    T, B = layer.generators[0].tolist(), layer.matrix_bias.tolist()  # type: ignore[union-attr]
    slope = [[Fraction(v) for v in row] for row in T]
    start = [[Fraction(B[i][j]) + slope[i][j] * Fraction(x) for j in range(3)] for i in range(3)]
    found: list[Parabola] = []
    for S, V in zip(layer.readout.tolist(), layer.output_bias.tolist(), strict=True):  # type: ignore[union-attr]
        s = [[Fraction(v) for v in row] for row in S]
        half = s[0][2] / 2
        value = Fraction(V) + sum(s[k][k] for k in range(3)) + half * start[0][1] * start[1][2]
        first = half * (start[0][1] * slope[1][2] + slope[0][1] * start[1][2])
        for i, j in ((0, 1), (0, 2), (1, 2)):
            value += s[i][j] * start[i][j]
            first += s[i][j] * slope[i][j]
        found.append((value, first, half * slope[0][1] * slope[1][2]))
    return found


def least(parabola: Parabola, low: Fraction, high: Fraction) -> Fraction:
    """The minimum over an interval."""
    a, b, h = parabola
    points = [low, high]
    if h > 0:
        points.append(min(max(-b / (2 * h), low), high))
    return min(a + b * t + h * t * t for t in points)


def keeps(outputs: list[Parabola], label: int, low: Fraction, high: Fraction) -> bool:
    """Whether the label's output is the largest on the whole interval."""
    others = [other for j, other in enumerate(outputs) if j != label]
    margins = [tuple(p - q for p, q in zip(outputs[label], other, strict=True)) for other in others]
    return all(least(margin, low, high) > 0 for margin in margins)  # type: ignore[arg-type]


def region(point: float, box: tuple[float, float], radius: float) -> tuple[Fraction, Fraction]:
    """The steps of a radius that stay in the box."""
    low, high = (Fraction(end) - Fraction(point) for end in box)
    reach = Fraction(min(radius, FAR))
    return max(-reach, low), min(reach, high)


@pytest.mark.parametrize("kind", ["linf", "l2", "box"])
@pytest.mark.parametrize("seed", range(5))
def test_radii_and_decisions_of_a_batch(seed: int, kind: str) -> None:
    layer, x = case(seed)
    points = x[:, 0].tolist()
    near = [outputs_near(layer, point) for point in points]
    labels = [[output[0] for output in row].index(max(output[0] for output in row)) for row in near]
    box = (min(points) - 0.1, max(points) + 0.5) if kind == "box" else (-2 * FAR, 2 * FAR)
    options: dict[str, Any] = {"box": box} if kind == "box" else {"norm": kind}
    certifier = Certifier(layer, fit_steps=0, **options)
    sizes = {1.0}
    for method in ("best", "second_order"):
        tight = 0
        radii = certifier(x, torch.tensor(labels), method=method).radius.tolist()
        for row, label, point, radius in zip(near, labels, points, radii, strict=True):
            assert radius == 0 or keeps(row, label, *region(point, box, radius))
            tight += radius == math.inf or not keeps(row, label, *region(point, box, 1.01 * radius))
        assert tight >= 0.75 * ROWS
        sizes |= {share * radius for radius in radii if 0 < radius < math.inf for share in (0.99, 1.3)}
    for eps in sorted(sizes)[::3]:
        certified = certifier(x, torch.tensor(labels), eps=eps).certified.tolist()
        for row, label, point, claimed in zip(near, labels, points, certified, strict=True):
            assert not claimed or keeps(row, label, *region(point, box, eps)), eps

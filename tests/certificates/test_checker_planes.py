"""The checker's linear functions: least values, balls around caps, and levels that claim too much."""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from itertools import product
from types import SimpleNamespace
from typing import Any

import flint
import numpy as np
import pytest
import torch

from mlayer import MLayer
from mlayer.certificates import certify
from mlayer.certificates.checker import Layer, ProofRegion
from mlayer.certificates.checker.balls import ball
from mlayer.certificates.checker.frame import Frame
from mlayer.certificates.checker.margins import INFINITE, ProofPlane, ProofRow
from mlayer.certificates.proofs import check_proof

INPUTS = 3
TRUE = math.log(3)


def balls(values: np.ndarray) -> list[Any]:
    return [ball(float(value)) for value in values]


@pytest.mark.parametrize("seed", range(20))
def test_against_points_of_the_box(seed: int) -> None:
    """Any nu and any center, for planes that are positive in a part of the box."""
    random = np.random.default_rng(seed)
    low, high = -random.random(INPUTS), random.random(INPUTS)
    slopes, at = random.standard_normal(INPUTS), random.uniform(-1, 1, INPUTS)
    w = random.random(INPUTS) + 0.1
    points = np.concatenate(
        [np.where(random.random((64, INPUTS)) < 0.5, low, high), random.uniform(low, high, (2000, INPUTS))]
    )
    values = (points - at) @ slopes
    value = -float(np.quantile(values, random.uniform(0.1, 0.7)))
    row: Any = SimpleNamespace(low=balls(low), high=balls(high), frame=SimpleNamespace(w=balls(w)))
    plane = ProofPlane(ball(value), balls(slopes), balls(at))
    assert float(plane.least(row)) == pytest.approx(value + values.min(), abs=1e-9)
    cap = points[value + values <= 0]
    assert len(cap) > 0
    for nu in (0.0, 0.1, 1.0, 10.0):
        for center in (0 * low, cap.mean(0), points[0], low, high):
            far = float(plane.cap(row, ball(nu), balls(center)).upper())
            assert far >= ((cap - center) ** 2 @ w).max() - 1e-12
    assert float(plane.cap(row, ball(0.0), balls(0 * low))) == pytest.approx(w @ np.maximum(low**2, high**2))


def exponential(sign: float) -> tuple[MLayer, dict[str, Any]]:
    """3 - exp(sign x) against 0, whose radius at 0 is log 3, and a proof of a smaller one."""
    one, none = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    layer = MLayer.from_weights(
        sign * one[None], torch.stack([-one, none]), output_bias=torch.tensor([3.0, 0.0], dtype=torch.float64)
    )
    found = certify(layer, none, torch.tensor([0]), eps=0.5, method="second_order", fit_steps=0, proof=True)
    assert found.proof is not None
    return layer, found.proof.as_lists()


def accepts(layer: MLayer, proof: dict[str, Any], eps: float, levels: list[dict[str, Any]]) -> bool:
    proof = copy.deepcopy(proof)
    proof["rows"][0]["eps"] = eps
    proof["rows"][0]["rivals"]["1"]["levels"] = levels
    (verdict,) = check_proof(layer, torch.zeros(1, 1).double(), torch.tensor([0]), proof)
    assert verdict.accepted or "malformed" not in verdict.reason
    return verdict.accepted


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_levels_prove_more_than_the_truth(sign: float) -> None:
    """All kinds of levels, alone and behind another one, at points, shifts and centers that may be false."""
    layer, proof = exponential(sign)
    accepted, tried = 0, 0
    for eps in (0.9, 1.1, 1.2):
        firsts = [
            {"kind": kind, "mu": 1e-6, "point": [point], "shift": [shift], "shift_ridge": 0.0}
            for kind in ("quadratic", "touching")
            for point in (0.0, sign * eps, 0.7 * sign * eps, -sign * eps)
            for shift in (1e-9, 0.51, 0.7, 1.5, 2.2)
        ]
        chains: list[list[dict[str, Any]]] = [
            [{"kind": "linear", "mu": 1e-6}],
            *([level] for level in firsts),
        ]
        for level in firsts[:: 7 if eps < TRUE else 3]:
            for nu, center in product((0.0, 0.3, 3.0), (0.0, 0.5 * sign * eps, 0.9 * sign * eps)):
                mu = 1e-6 + max(sign * center, 0.0)
                chains.append([firsts[1], {**level, "mu": mu, "nu": nu, "center": [center]}])
        for levels in chains:
            found = accepts(layer, proof, eps, levels)
            assert not (found and eps > TRUE), (eps, levels)
            accepted, tried = accepted + found, tried + 1
    assert accepted >= 2
    assert tried > 150


@pytest.mark.parametrize("seed", range(10))
def test_the_region_is_the_one_that_is_asked_about(seed: int) -> None:
    """Both ends of every input, in units of its scale, as fractions; inputs of scale 0 are left out."""
    random = np.random.default_rng(seed)
    x, scale = random.standard_normal(INPUTS), 10.0 ** random.uniform(-3, 3, INPUTS)
    scale[random.integers(INPUTS)] *= random.integers(2)
    low, high = x - random.random(INPUTS) * scale, x + random.random(INPUTS) * scale
    U = [1.0] * INPUTS
    layer = Layer(1, 1, INPUTS, 2, [0.0], [1.0], U, [0.0], [1.0, 0.0], [1.0, 0.0])
    for box in (None, (low.tolist(), high.tolist())):
        region = ProofRegion("linf", scale.tolist(), *(box or (None, None)))
        names = {"norm": region.norm, "scale": region.scale, "low": region.low, "high": region.high}
        frame = Frame(layer, region, names)
        for eps in (0.25, 0.6, INFINITE):
            row = ProofRow(frame, x.tolist(), eps)
            if box is None and eps == INFINITE:
                assert not row.bounded
                continue
            ends = zip(row.low, row.high, (i for i in range(INPUTS) if scale[i] > 0), strict=True)
            for found_low, found_high, i in ends:
                least, most = -Fraction(10**9), Fraction(10**9)
                if eps != INFINITE:
                    least, most = -Fraction(eps), Fraction(eps)
                if box is not None:
                    at, unit = Fraction(x[i]), Fraction(scale[i])
                    least = max(least, (Fraction(box[0][i]) - at) / unit)
                    most = min(most, (Fraction(box[1][i]) - at) / unit)
                for found, exact in ((found_low, least), (found_high, most)):
                    assert found.overlaps(flint.arb(exact.numerator) / exact.denominator)
                    assert abs(float(found) - float(exact)) < 1e-12

"""`mlayer.bounds` against the exact function: in Arb balls at corners and points of boxes, hard families."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import flint
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mlayer
from certificate_families import FAMILIES
from certificate_truth import BITS, changes_class, outputs, stored
from mlayer.certificates.boxes.directions import Directions
from mlayer.certificates.boxes.planes import Expansion, tail
from mlayer.certificates.boxes.splitting import Parts, refined
from mlayer.errors import ArgumentError, ArgumentTypeError

WIDTHS = (0.0, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 30.0)


def points_of(low: Any, high: Any, random: np.random.Generator) -> list[list[float]]:
    """Corners and a few points inside, as float64 numbers of the box."""
    ends = list(zip(low, high, strict=True))
    found = [list(corner) for corner in product(*ends)] if len(low) <= 3 else []
    for _ in range(4):
        found.append([float(np.clip(a + (b - a) * random.random(), a, b)) for a, b in ends])
        found.append([float(end[random.integers(2)]) for end in ends])
    return found


def violations(layer: mlayer.MLayer, low: Any, high: Any, C: Any, seed: int) -> list[str]:
    """Points at which a bound is certainly wrong. Everything is exact but the exponential, a ball."""
    random = np.random.default_rng(seed)
    found = mlayer.bounds(
        layer, torch.tensor([low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64), C
    )
    weights, wrong = stored(layer), []
    rows = torch.eye(layer.out_features).double() if C is None else C
    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        arb = flint.arb
        for point in points_of(low, high, random):
            values = outputs(weights, point)
            for k, row in enumerate(rows.tolist()):
                truth = sum((arb(c) * v for c, v in zip(row, values, strict=True)), arb(0))
                for side, sign in (("lower", 1), ("upper", -1)):
                    slopes = getattr(found, f"{side}_slopes")[0, k].tolist()
                    constant = getattr(found, f"{side}_constant")[0, k].item()
                    number = getattr(found, side)[0, k].item()
                    assert not np.isnan(number)
                    assert not np.isnan(constant)
                    if np.isinf(number):
                        assert number == -sign * np.inf
                        assert constant == number
                        continue
                    plane = sum((arb(s) * arb(x) for s, x in zip(slopes, point, strict=True)), arb(constant))
                    if sign * (truth - arb(number)) < 0 or sign * (truth - plane) < 0:
                        wrong.append(f"{side} of {row} at {point}: {truth}, {number}, {plane}")
        return wrong
    finally:
        flint.ctx.prec = before


def check_case(family: str, seed: int, width: float, combine: bool) -> None:
    random = np.random.default_rng([seed, len(family)])
    case = FAMILIES[family](random)
    scale = case.options.get("scale", torch.ones(case.x.shape[1])).numpy()
    reach = width * scale * np.where(random.random(case.x.shape[1]) < 0.2, 0.0, random.random())
    c = case.layer.out_features
    C = None
    if combine:
        some = random.standard_normal((1, c))
        C = torch.from_numpy(np.vstack([np.eye(c)[0] - np.eye(c)[1], some, np.zeros((1, c))]))
    for x in case.x[:2]:
        low, high = (x - reach).tolist(), (x + reach * random.random()).tolist()
        assert violations(case.layer.double(), low, high, C, seed) == []


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 10**6), st.sampled_from(WIDTHS), st.booleans())
def test_bounds_hold_for_the_exact_function(family: str, seed: int, width: float, combine: bool) -> None:
    check_case(family, seed, width, combine)


@pytest.mark.fuzz
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_bounds_hold_for_many_layers(family: str) -> None:
    for seed in range(60):
        check_case(family, seed, WIDTHS[seed % len(WIDTHS)], seed % 2 == 0)


@pytest.mark.parametrize("embedding", [None, 2, 6])
def test_tight_on_small_boxes(embedding: int | None) -> None:
    generator = torch.Generator().manual_seed(3)
    layer = mlayer.MLayer(4, 3, matrix_size=5, embedding_size=embedding, generator=generator).double()
    x = torch.rand(6, 4, generator=generator).double()
    for eps, share in ((1e-3, 0.9999), (0.05, 0.99)):
        found = mlayer.bounds(layer, x - eps, x + eps)
        corners = torch.tensor(list(product((-eps, eps), repeat=4))).double()
        with torch.no_grad():
            values = layer((x[:, None] + corners).flatten(0, 1)).unflatten(0, (6, -1))
        assert bool((values.amax(1) - values.amin(1) > share * (found.upper - found.lower)).all())


def test_splits_make_numbers_tighter_and_keep_them_sound() -> None:
    generator = torch.Generator().manual_seed(5)
    layer = mlayer.MLayer(2, 2, matrix_size=4, generator=generator).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.25)
    x = torch.zeros(2, 2).double()
    C = torch.tensor([[1.0, -1.0], [0.5, 2.0]]).double()
    grid = torch.cartesian_prod(*[torch.linspace(-0.8, 0.8, 61).double()] * 2)
    with torch.no_grad():
        values = layer(grid) @ C.T
    whole = mlayer.bounds(layer, x - 0.8, x + 0.8, C)
    split = mlayer.bounds(layer, x - 0.8, x + 0.8, C, splits=12)
    each = mlayer.bounds(layer, x - 0.8, x + 0.8, C.expand(2, 2, 2), splits=12)
    assert torch.allclose(split.lower, each.lower)
    for found, share in ((whole, 0.0), (split, 0.8)):
        width = values.amax(0) - values.amin(0)
        assert bool((found.lower <= values.amin(0)).all())
        assert bool((found.upper >= values.amax(0)).all())
        assert bool((width >= share * (found.upper - found.lower)).all())
    assert bool((split.upper - split.lower < 0.9 * (whole.upper - whole.lower)).all())


@pytest.mark.parametrize(
    ("center", "size", "bias"),
    [(-750.0, 1.0, 1e-290), (-750.0, 1.0, 1e-197), (-1000.0, 1.0, 1e-280), (-650.0, 1e-70, 1e-230)],
)
def test_growth_that_vanishes_at_the_center_alone(center: float, size: float, bias: float) -> None:
    """b - s exp(center + 300 t): s e^center is 0 in float64, what it is multiplied by is up to e^300."""
    one = torch.ones(1, 1, dtype=torch.float64)
    layer = mlayer.MLayer.from_weights(
        299.9 * one[None], torch.stack([-size * one, 0 * one]), matrix_bias=center * one,
        output_bias=torch.tensor([bias, 0.0], dtype=torch.float64),
    )  # fmt: skip
    assert violations(layer, [-1.0], [1.0], None, 0) == []
    front = torch.nn.Linear(1, 1, dtype=torch.float64)
    front.load_state_dict({"weight": one, "bias": one[0] * 0})
    network = torch.nn.Sequential(front, layer).eval()
    found = mlayer.certify(network, 0 * one, torch.tensor([0]), eps=1.0)
    assert not (changes_class(stored(layer), [1.0], 0) and bool(found.certified[0]))


def test_a_box_of_one_point() -> None:
    layer = mlayer.MLayer(3, 2, matrix_size=4, embedding_size=2, generator=torch.Generator().manual_seed(0))
    x = torch.rand(4, 3)
    found = mlayer.bounds(layer, x, x)
    with torch.no_grad():
        values = layer.double()(x.double())
    assert bool((found.upper - found.lower < 1e-10).all())
    assert bool(((found.lower <= values) & (values <= found.upper)).all())


def test_rows_do_not_depend_on_each_other() -> None:
    layer = mlayer.MLayer(3, 2, matrix_size=4, generator=torch.Generator().manual_seed(0)).double()
    x = torch.tensor([[0.1, 0.2, 0.3], [1e6, 1.0, 1.0], [40.0, -30.0, 1.0]]).double()
    together = mlayer.bounds(layer, x - 0.1, x + 0.1)
    for row in range(3):
        alone = mlayer.bounds(layer, x[row : row + 1] - 0.1, x[row : row + 1] + 0.1)
        assert torch.allclose(together.lower[row], alone.lower[0], rtol=1e-9, atol=0)
    assert bool(together.lower[0].isfinite().all())


def test_a_combination_for_each_row() -> None:
    layer = mlayer.MLayer(3, 3, matrix_size=4, generator=torch.Generator().manual_seed(0)).double()
    x, C = torch.rand(4, 3).double(), torch.randn(4, 2, 3).double()
    found = mlayer.bounds(layer, x - 0.1, x + 0.1, C)
    for row in range(4):
        alone = mlayer.bounds(layer, x[row : row + 1] - 0.1, x[row : row + 1] + 0.1, C[row])
        assert torch.allclose(found.lower[row], alone.lower[0], rtol=1e-9)
    assert mlayer.bounds(layer, x[:0], x[:0], C[:0]).lower.shape == (0, 2)
    assert mlayer.bounds(layer, x[:0], x[:0]).upper_slopes.shape == (0, 3, 3)


def test_huge_boxes_have_no_bound_but_no_nan() -> None:
    layer = mlayer.MLayer(2, 2, matrix_size=3, generator=torch.Generator().manual_seed(0)).double()
    high = torch.full((1, 2), 1e300, dtype=torch.float64)
    found = mlayer.bounds(layer, -high, high)
    assert bool((found.lower == -torch.inf).all())
    assert bool((found.upper == torch.inf).all())
    assert bool((found.lower_slopes == 0).all())


def test_the_tail_of_the_exponential_series() -> None:
    q = torch.tensor([0.0, 1e-9, 0.5, 3.0, 80.0, 299.0, 1e4]).double()
    for first in (2, 3):
        found = tail(q, q, first)
        for value, bound in zip(q[:-1].tolist(), found[:-1].tolist(), strict=True):
            exact = math.fsum(value**j / math.factorial(j) for j in range(first, first + 120))
            assert exact * (1 - 1e-12) <= bound
            if value <= 3:
                assert bound <= exact * (1 + 1e-8) + 1e-280
        assert found[-1] == torch.inf


def test_the_tail_with_a_smaller_growth() -> None:
    q, nu = torch.tensor([0.5, 3.0, 400.0]).double(), torch.tensor([0.0, 2.0, 0.1]).double()
    for first in (2, 3):
        for a, b, bound in zip(q.tolist(), nu.tolist(), tail(q, nu, first).tolist(), strict=True):
            exact = a**first * math.fsum(b**j / math.factorial(first + j) for j in range(100))
            assert exact * (1 - 1e-12) <= bound <= exact * (1 + 1e-8)


def wave(size: float, frequency: float) -> mlayer.MLayer:
    """size sin(frequency x), by rotations."""
    rotation = torch.tensor([[[0.0, frequency], [-frequency, 0.0]]]).double()
    readout = torch.tensor([[[0.0, size], [0.0, 0.0]]]).double()
    return mlayer.MLayer.from_weights(generators=rotation, readout=readout)


@pytest.mark.parametrize("width", [1.0, 10.0, 1e4])
def test_waves_over_several_periods(width: float) -> None:
    """Rotations do not grow, however wide the box is: the interval is that of the readout."""
    low = torch.tensor([[-0.3]]).double()
    found = mlayer.bounds(wave(8.0, 20.0), low, low + width)
    assert -8.0 * (1 + 1e-5) <= float(found.lower) <= -8.0
    assert 8.0 <= float(found.upper) <= 8.0 * (1 + 1e-5)


def test_splits_end_where_the_interval_is_that_of_the_values() -> None:
    # Between a trough and the next crest of 8 sin(20 x), both inside, with room on one side.
    low, high = (torch.tensor([[end * math.pi / 20]]).double() for end in (-0.7, 0.4))
    truth = -8.0, 8 * math.sin(0.4 * math.pi)
    exact = mlayer.bounds(wave(8.0, 20.0), low, high, splits=100)
    assert truth[0] - 0.016 <= float(exact.lower) <= truth[0]
    assert truth[1] <= float(exact.upper) <= truth[1] + 0.016
    calls = []

    def straight(a: torch.Tensor, b: torch.Tensor) -> Parts:
        calls.append(len(a))
        return Parts(a[:, 0], b[:, 0], a[:, 0].clone(), b[:, 0].clone())

    ends = refined(straight, low, high, torch.ones(1).double(), 100)
    assert calls == [1]
    assert [float(end) for end in ends] == [float(low), float(high)]


@pytest.mark.parametrize("splits", [1, 6, 7, 40])
def test_parts_are_cut_several_at_once_and_no_more_than_asked(splits: int) -> None:
    """x (1 - x) on two rows, bounded by the products of the ends."""
    low, high = torch.tensor([[-1.0], [0.25]]).double(), torch.tensor([[2.0], [3.0]]).double()
    calls = []

    def product(a: torch.Tensor, b: torch.Tensor) -> Parts:
        calls.append(len(a))
        ends = torch.cat([x * (1 - y) for x in (a, b) for y in (a, b)], 1)
        values = torch.cat([x * (1 - x) for x in (a, b, (a + b) / 2)], 1)
        return Parts(ends.amin(1), ends.amax(1), values.amin(1), values.amax(1))

    lower, upper = refined(product, low, high, torch.ones(2, 1).double(), splits)
    assert calls[0] == 2
    assert sum(calls[1:]) <= 2 * 2 * splits
    assert len(calls) - 1 <= 2 + splits / 2
    assert (lower <= torch.tensor([-2.0, -6.0])).all()
    assert (upper >= torch.tensor([0.25, 0.25])).all()
    if splits == 40:
        torch.testing.assert_close(lower, torch.tensor([-2.0, -6.0]).double(), atol=0.02, rtol=0)
        torch.testing.assert_close(upper, torch.tensor([0.25, 0.25]).double(), atol=0.05, rtol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": torch.nn.Linear(2, 2)}, "layer must be an MLayer"),
        ({"low": torch.zeros(1, 3)}, "low must be of shape"),
        ({"high": torch.zeros(2, 2)}, "high must be of shape"),
        ({"low": torch.ones(1, 2) * 2}, "low must be at most high"),
        ({"high": torch.full((1, 2), torch.inf)}, "high must be finite"),
        ({"C": torch.zeros(1, 3)}, "C must be of shape"),
        ({"C": torch.zeros(2, 1, 2)}, "C must be of shape"),
        ({"C": torch.ones(1, 2, dtype=torch.int64)}, "C must be a floating point tensor"),
        ({"C": torch.full((1, 2), torch.nan)}, "C must be finite"),
        ({"splits": -1}, "splits must be an integer from 0"),
        ({"splits": 1.5}, "splits must be an integer from 0"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str) -> None:
    good = {"layer": mlayer.MLayer(2, 2, matrix_size=2), "low": torch.zeros(1, 2), "high": torch.ones(1, 2)}
    with pytest.raises((ArgumentError, ArgumentTypeError), match=message):
        mlayer.bounds(**{**good, **change})


@pytest.mark.parametrize("seed", range(6))
def test_planes_hold_for_every_expansion_within_its_errors(seed: int) -> None:
    """Value, gradient and second derivative are the worst that their errors allow, at each point."""
    random = torch.Generator().manual_seed(seed)
    layer = mlayer.MLayer(3, 2, matrix_size=3, embedding_size=2, dtype=torch.float64, generator=random)
    center, reach = (torch.rand(1, 3, generator=random).double() for _ in range(2))
    here = Expansion(Directions(layer), center, reach, layer.readout.detach(), torch.zeros(2).double())
    for name in ("f_error", "g_error", "H_error"):
        error = torch.rand(getattr(here, name).shape, generator=random).double()
        setattr(here, name, 10.0 ** (-seed / 2) * (error + error.mT if name == "H_error" else error))
    first, *second = here.planes()
    t = torch.rand(400, 3, generator=random).double() * 2 - 1
    t[:200] = t[:200].sign()
    z = (t @ here.U[0])[:, None]  # (points, 1, d)
    lines = here.f - here.f_error + (here.g * z - here.g_error * z.abs()).sum(-1)
    pairs = z[..., None] * z[..., None, :]
    curves = lines + (here.H * pairs - here.H_error * pairs.abs()).sum((-2, -1))
    for plane, truth in ((first, lines), *((plane, curves) for plane in second)):
        assert (plane.value + (plane.slopes * t[:, None]).sum(-1) <= truth).all()


@pytest.mark.parametrize("seed", range(6))
def test_combinations_that_cancel(seed: int) -> None:
    """A third of two outputs of 1e15 that differ by about 1: products with 1/3 are right to about 0.1."""
    random = np.random.default_rng(seed)
    S, V = random.standard_normal((1, 2, 2)) * 1e15, random.standard_normal(1) * 1e15
    layer = mlayer.MLayer.from_weights(
        torch.from_numpy(random.standard_normal((2, 2, 2)) * 0.1),
        torch.from_numpy(np.concatenate([S, S + random.integers(-4, 5, (1, 2, 2))])),
        output_bias=torch.from_numpy(np.concatenate([V, V + random.integers(-4, 5, 1)])),
    )
    C = torch.tensor([[1 / 3, -1 / 3], [-0.7, 0.7]], dtype=torch.float64)
    for width in (0.0, 1e-3):
        assert violations(layer, [-width] * 2, [width] * 2, C, seed) == []

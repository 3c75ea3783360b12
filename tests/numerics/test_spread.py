"""Intervals by the row: the coverage holds in each group, and one width stays where that is as good."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mlayer.numerics.conformal import half_width
from mlayer.numerics.spread import Spread


def rows(kind: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, predictions, absolute errors, and a group for each row."""
    draw = np.random.default_rng(seed)
    x = np.column_stack([draw.uniform(0, 4, count), draw.integers(0, 2, count)])
    noise = np.abs(draw.standard_normal(count))
    prediction = 1 + x[:, 0] ** 2
    size = {
        "equal": np.ones(count),
        "groups": np.where(x[:, 1] > 0, 3.0, 0.3),
        "shares": 0.1 * prediction,
    }[kind]
    group = x[:, 1] if kind == "groups" else prediction > 5
    return x, prediction, size * noise, group


@pytest.mark.parametrize("kind", ["groups", "shares"])
def test_each_group_has_the_coverage(kind: str) -> None:
    inside: dict[bool, list[float]] = {False: [], True: []}
    constant: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(20):
        spread = Spread.of(*rows(kind, 400, seed)[:3])
        assert spread is not None
        x, prediction, errors, _ = rows(kind, 200, 100 + seed)
        quantile, wide = half_width(errors / spread.at(x, prediction), 0.9), half_width(errors, 0.9)
        x, prediction, errors, group = rows(kind, 1000, 200 + seed)
        for one in (False, True):
            there = group == one
            inside[one].append(float((errors <= quantile * spread.at(x, prediction))[there].mean()))
            constant[one].append(float((errors <= wide)[there].mean()))
    for one in (False, True):
        assert 0.87 < np.mean(inside[one]) < 0.94
    # What it is for: with one width a group has nearly all, the other too few.
    assert np.mean(constant[False]) > 0.97
    assert np.mean(constant[True]) < 0.84


def test_the_guarantee_does_not_depend_on_the_sizes() -> None:
    """The coverage of the quantile of scores is the requested one for every choice of sizes."""
    wrong = Spread(np.array([2]), np.zeros(1), np.ones(1), np.array([0.0, 1.0, -0.5]), -2.0, 2.0)
    held = []
    for seed in range(300):
        x, prediction, errors, _ = rows("shares", 61, seed)
        scores = errors / wrong.at(x, prediction)
        held.append(scores[-1] <= half_width(scores[:-1], 0.9))
    assert abs(np.mean(held) - 0.9) < 4 * np.sqrt(0.09 / 300)


def test_equal_errors_have_one_width() -> None:
    found = [Spread.of(*rows("equal", 300, seed)[:3]) for seed in range(20)]
    assert sum(spread is not None for spread in found) <= 1


def test_sizes_stay_in_the_range_of_the_training_rows() -> None:
    x, prediction, errors, _ = rows("shares", 400, 0)
    spread = Spread.of(x, prediction, errors)
    assert spread is not None
    far = spread.at(np.full((3, 2), 1e9), np.array([1e12, -1e12, np.nan]))
    inside = spread.at(x, prediction)
    assert np.isfinite(far).all()
    assert far.max() <= inside.max() * (1 + 1e-9)


def test_weights_count_as_copies_do() -> None:
    x, prediction, errors, _ = rows("groups", 200, 0)
    weighted = Spread.of(x, prediction, errors, np.full(200, 2.0))
    plain = Spread.of(x, prediction, errors)
    assert weighted is not None
    assert plain is not None
    np.testing.assert_allclose(weighted.weights, plain.weights, rtol=1e-9)


def test_json_and_damage() -> None:
    x, prediction, errors, _ = rows("groups", 300, 0)
    spread = Spread.of(x, prediction, errors)
    assert spread is not None
    entry = json.loads(json.dumps(spread.as_json()))
    again = Spread.from_json(entry, 2)
    np.testing.assert_array_equal(again.at(x, prediction), spread.at(x, prediction))
    for name, value in (
        ("columns", [7]),
        ("columns", [-1]),
        ("scale", [0.0] * len(entry["scale"])),
        ("weights", entry["weights"][:-1]),
        ("middle", ["a"]),
        ("low", float("nan")),
        ("high", 1e5),
        ("low", entry["high"] + 1),
    ):
        with pytest.raises((ValueError, TypeError)):
            Spread.from_json(entry | {name: value}, 2)


def test_huge_units_do_not_overflow() -> None:
    x, prediction, errors, _ = rows("groups", 300, 0)
    spread = Spread.of(1e200 * x, 1e200 * prediction, 1e200 * errors)
    assert spread is not None
    assert np.isfinite(spread.at(1e200 * x, 1e200 * prediction)).all()

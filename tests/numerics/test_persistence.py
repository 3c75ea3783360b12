"""Random walks and autoregressions with noise, and the least errors of their forecasts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlayer.numerics.arrays import Array
from mlayer.numerics.horizon import HorizonErrors
from mlayer.numerics.persistence import Persistence


def level(phi: float, noise: float, count: int, draw: np.random.Generator) -> Array:
    steps, values = draw.normal(size=count), np.zeros(count)
    for t in range(1, count):
        values[t] = phi * values[t - 1] + steps[t]
    return values + noise * draw.normal(size=count)


def without_line(values: Array) -> Array:
    t = np.arange(len(values))
    return np.asarray(values - np.polyval(np.polyfit(t, values, 1), t))


@pytest.mark.parametrize(("phi", "theta"), [(1.0, 0.0), (1.0, 0.6), (0.9, 0.3), (0.5, 0.5), (0.0, 0.0)])
def test_deviations_are_those_of_the_moving_average(phi: float, theta: float) -> None:
    """Against the weights of past innovations, from the definition of the process step by step."""
    weights, last = [1.0], 1.0
    for lag in range(1, 30):
        last = phi * last - (theta if lag == 1 else 0.0)
        weights.append(last)
    wanted = 2.5 * np.sqrt(np.cumsum(np.square(weights)))
    found = Persistence(phi, theta, 2.5).deviations(np.arange(1.0, 31.0))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert Persistence(phi, theta, 2.5).deviations(np.array([0.0]))[0] == pytest.approx(2.5)


def test_walks_are_told_from_what_returns() -> None:
    draw = np.random.default_rng(0)

    def walks(phi: float, noise: float, count: int) -> float:
        found = [Persistence.of([without_line(level(phi, noise, count, draw))]) for _ in range(12)]
        return float(np.mean([each is not None and each.wanders for each in found]))

    assert walks(1.0, 0.0, 250) > 0.8
    assert walks(1.0, 1.0, 250) > 0.8
    assert walks(0.8, 0.0, 250) < 0.2
    assert walks(0.0, 1.0, 250) < 0.2


def test_intervals_hold_random_walks() -> None:
    """Nine tenths of the values that follow, on average over walks, up to a fifth of the rows ahead."""
    draw = np.random.default_rng(1)
    steps, inside = np.arange(1.0, 51.0), []
    for _ in range(60):
        walk = np.cumsum(draw.normal(0, 3, 300))
        found = Persistence.of([without_line(walk[:250])])
        assert found is not None
        inside.append(np.abs(walk[250:] - walk[249]) <= 1.645 * found.deviations(steps))
    assert 0.84 < np.mean(inside) < 0.96


def test_several_series_and_none() -> None:
    draw = np.random.default_rng(2)
    both = Persistence.of([level(1.0, 0.0, 200, draw), 5 + level(1.0, 0.0, 200, draw)])
    assert both is not None
    assert both.wanders
    assert both.deviation == pytest.approx(1.0, rel=0.1)
    assert Persistence.of([np.zeros(5)]) is None
    assert Persistence.of([np.full(50, 3.0)]) is None


def test_an_interval_is_no_narrower_than_the_level_wanders() -> None:
    horizons = np.linspace(1, 40, 400)
    lucky = np.full(400, 0.5)  # errors of forecasts that were chosen to do well
    floor = Persistence(1.0, 0.0, 1.0)
    found = HorizonErrors.of(2 * horizons, horizons, lucky, (floor, 2.0, False))
    half = found.half_widths(np.array([2.0, 32.0, 200.0]), np.ones(3), 0.9)
    assert (half >= 1.6448 * np.sqrt([1.0, 16.0, 100.0])).all()
    again = HorizonErrors.from_json(found.as_json())
    np.testing.assert_allclose(again.half_widths(np.array([2.0, 32.0, 200.0]), np.ones(3), 0.9), half)
    shares = HorizonErrors.of(2 * horizons, horizons, lucky, (replace(floor, deviation=0.1), 2.0, True))
    for each in (shares, HorizonErrors.from_json(shares.as_json())):  # a tenth of the forecast, 50, in a step
        half = each.half_widths(np.array([2.0, 32.0, 200.0]), np.full(3, 50.0), 0.9)
        np.testing.assert_allclose(half, 5 * 1.6448536 * np.sqrt([1.0, 16.0, 100.0]), rtol=1e-6)
    damaged = found.as_json()
    damaged["floor"] = {**damaged["floor"], "phi": 1.5}
    with pytest.raises(ValueError, match="persistence"):
        HorizonErrors.from_json(damaged)
    damaged["floor"] = {**damaged["floor"], "phi": 1.0, "step": 0.0}
    with pytest.raises(ValueError, match="step"):
        HorizonErrors.from_json(damaged)

"""Slopes and slow seasons beyond doubt, and what is left to chance."""

from __future__ import annotations

import numpy as np
import pytest

from mlayer.estimators.continuation import CALENDAR, FOUND, NONE, Continuation, ends
from mlayer.estimators.past import Past
from mlayer.estimators.rows import Rows
from mlayer.estimators.wandering import price_of_ways, wandering_beside
from mlayer.estimators.waves import WaveFit, solved
from mlayer.numerics.arrays import Array
from mlayer.numerics.persistence import Persistence

AS_FITTED = Continuation(FOUND, np.inf, 1.0, False)
LAST_ROWS = Continuation(FOUND, 8.0, 0.0, False)
T = np.arange(300.0)


def two_slow_cycles(slope: float) -> Array:
    """A week, two cycles of a slow season, a line and noise."""
    noise = np.random.default_rng(0).normal(size=len(T))
    return 3 * np.sin(2 * np.pi * T / 7) + 4 * np.sin(2 * np.pi * T / 150) + slope * T + noise


def rows_of(y: Array) -> tuple[Rows, WaveFit]:
    """Standardized rows, and the waves of the week and of the slow season."""
    x = (T - T.mean()) / T.std()
    data = Rows(x[:, None], ((y - y.mean()) / y.std())[:, None], np.ones(len(x)))
    frequencies = 2 * np.pi * T.std() / np.array([7.0, 150.0])
    return data, solved(WaveFit(frequencies, np.zeros(2, dtype=np.int64)), data)


@pytest.mark.parametrize(("slope", "sure"), [(0.05, True), (-0.05, True), (0.0, False)])
def test_a_slope_beyond_doubt_costs_nothing(slope: float, sure: bool) -> None:
    """It cost 0.3 of the logarithm of the mean squared error: forecasts of a year went wrong by a slope."""
    data, waves = rows_of(two_slow_cycles(slope))
    past = Past(data, 0)
    price = price_of_ways(ends(data, past.moments, waves, {CALENDAR, FOUND}))
    assert (price(AS_FITTED) < price(LAST_ROWS)) == sure
    assert price(Continuation(NONE, np.inf, 0.0, False)) == 0.0


def test_the_slope_of_a_random_walk_has_its_price() -> None:
    for seed in range(20):
        data, waves = rows_of(np.cumsum(np.random.default_rng(seed).normal(size=len(T))))
        price = price_of_ways(ends(data, Past(data, 0).moments, waves, {FOUND}))
        for season in (NONE, FOUND):
            line = Continuation(season, np.inf, 1.0, False)
            assert price(line) == line.price > Continuation(season, np.inf, 0.0, False).price


def test_two_cycles_of_a_season_are_no_walk() -> None:
    """Left out as too few cycles, they made the level look like a walk: intervals were twice too wide."""
    data, waves = rows_of(two_slow_cycles(0.05))
    past = Past(data, 0)
    known = ends(data, past.moments, waves, {CALENDAR, FOUND})
    found = wandering_beside(known, waves, data, past.moments)
    assert found is not None
    assert found.deviations(np.array([100.0]))[0] < 1.2 * found.deviation
    assert FOUND in known


def test_slow_waves_of_a_random_walk_are_not_kept() -> None:
    kept = 0
    for seed in range(20):
        data, waves = rows_of(np.cumsum(np.random.default_rng(100 + seed).normal(size=len(T))))
        past = Past(data, 0)
        known = ends(data, past.moments, waves, {FOUND})
        found = wandering_beside(known, waves, data, past.moments)
        assert found is not None
        kept += not found.wanders
    assert kept <= 2


def test_origins_count_that_knew_the_waves() -> None:
    """Before the others another model was fitted, whose errors say nothing of this one."""
    data, waves = rows_of(two_slow_cycles(0.05))
    slow = WaveFit(waves.frequencies * np.array([1.0, 1.25]), waves.inputs)
    past = Past(data, 0)
    past.compare((0.5, 0.6, 0.8, 0.9), lambda origin: slow if origin < 0.7 else waves)
    assert past._found_before(waves) == [0.8, 0.9]


@pytest.mark.parametrize(("phi", "theta"), [(1.0, 0.0), (1.0, 0.7), (0.8, 0.2), (0.0, 0.0)])
def test_lines_by_chance(phi: float, theta: float) -> None:
    """Against lines fitted to simulated series."""
    draw, count = np.random.default_rng(1), 200
    shocks = draw.normal(0, 2.0, (800, count + 100))
    values = np.zeros_like(shocks)
    for t in range(1, values.shape[1]):
        values[:, t] = phi * values[:, t - 1] + shocks[:, t] - theta * shocks[:, t - 1]
    slopes = np.polyfit(np.arange(count), values[:, -count:].T, 1)[0]
    wanted = float(slopes.std()) * count
    assert Persistence(phi, theta, 2.0).deviation_of_line(count) == pytest.approx(wanted, rel=0.2)


def test_few_rows_leave_every_slope_in_doubt() -> None:
    """A model of five numbers has made the residuals of 24 rows small by itself."""
    y = two_slow_cycles(0.3)[:24]
    x = (T[:24] - T[:24].mean()) / T[:24].std()
    data = Rows(x[:, None], ((y - y.mean()) / y.std())[:, None], np.ones(24))
    price = price_of_ways(ends(data, Past(data, 0).moments, None, {CALENDAR}))
    line = Continuation(NONE, np.inf, 1.0, False)
    assert price(line) == line.price

"""A level that shifts: the rows before it are moved; shortly before the end, no explosive forecast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlayer.estimators import MLayerRegressor
from mlayer.estimators.continuation import Continuation, Moments
from mlayer.estimators.rows import Rows
from mlayer.estimators.shifts import level_shifts
from mlayer.estimators.wandering import has_shifted
from mlayer.estimators.waves import WaveFit, bounded, solved
from mlayer.numerics.arrays import Array


def series(rows: int, at: int, size: float, seed: int = 0) -> tuple[Array, Array]:
    t = np.arange(rows, dtype=float)
    noise = np.random.default_rng(seed).normal(0, 3, rows)
    return t[:, None], 100 + 10 * np.sin(2 * np.pi * t / 7) + noise + size * (t >= at)


@pytest.mark.parametrize(("seed", "at", "size"), [(2, 194, -80.0), (3, 188, 60.0)])
def test_a_forecast_continues_the_new_level(seed: int, at: int, size: float) -> None:
    """Slow waves that imitate the jump left the range of the series by a factor of up to thousands."""
    x, y = series(220, at, size, seed)
    model = MLayerRegressor(random_state=0, periodic=[0])
    setattr(model, "_series", True)  # noqa: B010 - as for a table with one row at each date
    model.fit(x[:200], y[:200])
    error = np.sqrt(np.square(model.predict(x[200:]) - y[200:]).mean())
    assert error < 8  # noise of 3, the season of 7; the mean level would miss by the jump


@pytest.mark.parametrize("period", [470.0, 600.0, 330.0])
def test_waves_that_explode_are_dropped_and_seasons_stay(period: float) -> None:
    x, y = series(470, 460, 60.0)
    data = Rows((x - x.mean()) / x.std(), ((y - y.mean()) / y.std())[:, None], np.ones(470))
    slow = 2 * np.pi * np.std(x) / (period * np.array([1.0, 1.03, 1.08]))
    frequencies = np.array([*slow, 2 * np.pi * np.std(x) / 7])
    wild = solved(WaveFit(frequencies, np.zeros(4, dtype=np.int64)), data)
    calm = bounded(wild, data, [0])
    later = data.x[-200:] + 200 / np.std(x)
    swings = [np.ptp(model.columns(later) @ model.coefficients) for model in (wild, calm)]
    assert swings[0] > 4 * np.ptp(data.y) > swings[1]
    assert frequencies[-1] in calm.frequencies


def test_a_sound_season_is_left_as_it_is() -> None:
    """The same holds for a season that grows, and for two waves close together."""
    t = np.arange(300) / 86.6
    for y in ((1 + t) * np.sin(9 * t), np.sin(9 * t) + np.sin(9.6 * t)):
        data = Rows(t[:, None], y[:, None], np.ones(300))
        grown = replace(WaveFit(np.array([9.0, 9.6]), np.zeros(2, dtype=np.int64)), groups=(0,))
        model = solved(grown, data)
        assert bounded(model, data, [0]) is model


@pytest.mark.parametrize(
    ("size", "at", "shifted"), [(60, 190, True), (-60, 193, True), (0, 190, False), (60, 199, False)]
)
def test_a_shift_is_told_from_chance_and_from_single_outliers(size: float, at: int, shifted: bool) -> None:
    for seed in range(10):
        x, y = series(200, at, size, seed)
        data = Rows(x, y[:, None], np.ones(200))
        season = solved(WaveFit(np.array([2 * np.pi / 7]), np.zeros(1, dtype=np.int64)), data)
        assert has_shifted(season, data, Moments(x, 0)) == shifted


def test_the_level_of_the_last_rows() -> None:
    way = Continuation("waves", np.inf, 1.0, True).from_the_last_rows
    assert (way.memory, way.drift, way.local) == (2.0, 0.0, False)
    assert way.description == "the level of the last rows plus the season"
    assert Continuation("none", 0.3, 0.5, False).from_the_last_rows == Continuation("none", 0.3, 0.5, False)


def _fitted(x: Array, y: Array) -> MLayerRegressor:
    model = MLayerRegressor(random_state=0, periodic=[0])
    setattr(model, "_series", True)  # noqa: B010 - as for a table with one row at each date
    return model.fit(x, y)


@pytest.mark.parametrize("at", [[80], [60, 140]])
def test_shifts_in_the_past_are_found_and_removed(at: list[int]) -> None:
    """Across a shift, half of it is taken for a trend, and the season bends."""
    x, y = series(300, at[0], 40.0)
    for later in at[1:]:
        y -= 25.0 * (x[:, 0] >= later)
    model = _fitted(x[:240], y[:240])
    days, sizes = np.array(model.shifts_).T
    np.testing.assert_allclose(days + 1, at, atol=2)
    np.testing.assert_allclose(sizes, [40.0, -25.0][: len(at)], atol=4)
    ahead = model.predict(x[240:]) - y[240:]
    assert np.sqrt(np.square(ahead).mean()) < 1.4 * 3  # the noise
    assert model.way_ is not None
    assert model.way_.season != "none"


def test_what_wanders_bends_or_swings_has_no_shifts() -> None:
    t = np.arange(160.0)
    draw = np.random.default_rng(3)
    walk, noise = np.cumsum(draw.normal(size=160)), draw.normal(size=160)
    bent, season = 30 / (1 + np.exp(-(t - 80) / 16)), 5 * np.sin(2 * np.pi * t / 40)
    moments = Moments(t[:, None], 0)
    for y in (walk, noise, bent + noise, season + noise):
        rows = Rows(t[:, None], ((y - y.mean()) / y.std())[:, None], np.ones(160))
        assert level_shifts(rows, moments, 1.0, lambda _: None) is None
    assert not _fitted(t[:, None], np.exp(0.01 * t) * (20 + season) + noise).shifts_

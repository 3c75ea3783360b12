"""Forecasts: how a series continues after its last row, and intervals that grow with the horizon."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlayer.errors import FileFormatError
from mlayer.estimators.continuation import Continuation, End, Moments, plain
from mlayer.estimators.past import Past
from mlayer.estimators.rows import Rows
from mlayer.estimators.waves import WaveFit, solved
from mlayer.numerics.horizon import HorizonErrors
from mlayer.tables import Plan, Training, fit_table, load_table_model, open_table, predict_table
from mlayer.tables.fit.split import is_series


def table_of(values: object, start: str = "2022-01-01", freq: str = "D") -> pd.DataFrame:
    y = np.asarray(values)
    dates = pd.date_range(start, periods=len(y), freq=freq).strftime("%Y-%m-%d")
    return pd.DataFrame({"date": dates, "y": y})


def rows_of(x: object, y: object) -> Rows:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    return Rows(x.reshape(len(x), -1), y.reshape(len(y), 1), np.ones(len(x)))


def test_a_random_walk_continues_at_its_last_value(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    walk = 100 + np.cumsum(draw.normal(size=240))
    table = table_of(walk)
    result = fit_table(table.head(200), Plan("y"))
    assert any(remark.kind == "forecast" for remark in result.remarks)
    later = table.tail(40)
    predicted = result.model.predict(later).outputs
    assert np.abs(predicted - walk[199]).max() < 4  # steps have deviation 1
    half = result.model.half_widths(later, 0.9)
    # Of a walk of unit steps: 1.645 sqrt(h).
    assert half[0] < 4
    assert 2 < half[39] / half[0] < 12
    assert (np.diff(half) > 0).all()
    result.model.save(tmp_path / "m.safetensors")
    again = load_table_model(tmp_path / "m.safetensors")
    np.testing.assert_allclose(again.half_widths(later, 0.9), half, rtol=1e-4)
    later.to_csv(tmp_path / "later.csv", index=False)
    predict_table(again, open_table(tmp_path / "later.csv"), tmp_path / "out.csv", interval=0.9)
    out = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose((out["high"] - out["low"]) / 2, half, rtol=1e-4)


@pytest.mark.parametrize("seed", [9001, 9004])
def test_chance_of_a_random_walk_is_not_continued(seed: int) -> None:
    """Waves of one missed by 2.9 times what the last value does; intervals of the other were too narrow."""
    walk = 100 + np.cumsum(np.random.default_rng(seed).normal(size=240))
    table = table_of(walk, start="2020-01-01")
    result = fit_table(table.head(200), Plan("y"))
    later = table.tail(40)
    predicted = result.model.predict(later).outputs
    last = np.sqrt(np.square(walk[200:] - walk[199]).mean())
    assert np.sqrt(np.square(walk[200:] - predicted).mean()) < 1.3 * last
    half = result.model.half_widths(later, 0.9, predicted)
    assert (half > 0.85 * 1.645 * np.sqrt(np.arange(1, 41))).all()
    assert half[-1] < 3 * 1.645 * np.sqrt(40)


def test_a_short_series_is_held_out_by_time_and_has_finite_intervals() -> None:
    t = np.arange(24)
    draw = np.random.default_rng(0)
    table = table_of(50 + t + draw.normal(0, 2, 24), freq="MS")
    result = fit_table(table, Plan("y"))
    assert result.model.facts["split"] == "time"
    later = table_of(np.zeros(6), start="2024-01-01", freq="MS")
    assert np.isfinite(result.model.half_widths(later, 0.9)).all()
    assert "The 90% intervals, +- " in result.verdict


def test_what_is_a_series() -> None:
    months = (pd.date_range("2020-01-01", periods=24, freq="MS") - pd.Timestamp(0)).days.to_numpy(float)
    draw = np.random.default_rng(0)
    assert is_series(months)
    assert is_series(np.repeat(np.arange(40.0), 3))
    assert is_series(np.arange(40.0)[draw.random(40) > 0.1])
    assert not is_series(np.arange(8.0))
    assert not is_series(draw.integers(0, 300, 200).astype(float))  # the first orders of customers
    assert not is_series(np.where(np.arange(40) == 3, np.nan, np.arange(40.0)))


@pytest.mark.parametrize("memory", [0.3, 8.0, np.inf])
@pytest.mark.parametrize(("drift", "local"), [(0.0, False), (0.5, False), (1.0, True)])
def test_the_level_is_the_weighted_mean_of_what_the_slope_leaves(
    memory: float, drift: float, local: bool
) -> None:
    """Against the definition, row by row, without a season; groups have separate levels."""
    draw = np.random.default_rng(1)
    t = np.repeat(np.arange(50.0), 2)
    group = np.tile([0.0, 1.0], 50)
    y = 3 * group + 0.2 * t + draw.normal(size=100)
    data = rows_of(np.column_stack([t, group]), y)
    moments = Moments(data.x, 0)
    assert moments.groups == [1]
    base = solved(WaveFit(np.empty(0), np.empty(0, dtype=np.int64)), data)
    model = End(base, data, moments).model(Continuation("none", memory, drift, local))
    slope = np.linalg.lstsq(np.column_stack([np.ones(100), t, group]), y, rcond=None)[0][1]
    if local:
        root = np.sqrt(np.exp((t - 49) / (0.25 * 50)))[:, None]
        columns = np.column_stack([t, 1 - group, group]) * root
        slope = np.linalg.lstsq(columns, y * root[:, 0], rcond=None)[0][0]
    for g in (0.0, 1.0):
        mine = group == g
        weight = np.exp(-(49 - t[mine]) / memory)
        level = np.average(y[mine] - drift * slope * (t[mine] - 49), weights=weight)
        wanted = level + drift * slope * (np.array([49.0, 60.0]) - 49)
        found = model.columns(np.array([[49.0, g], [60.0, g]])) @ model.coefficients
        np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-9)


def test_an_event_is_no_group() -> None:
    draw = np.random.default_rng(0)
    t, store = np.repeat(np.arange(100.0), 2), np.tile([0.0, 1.0], 100)
    promotion = (draw.random(200) < 0.3).astype(float)
    assert Moments(np.column_stack([t, store, promotion]), 0).groups == [1]


def test_forecasts_of_the_past_see_no_later_row() -> None:
    """Rows after an origin, changed at will, leave the forecast from it as it was."""
    draw = np.random.default_rng(2)
    t, y = np.arange(60.0), draw.normal(size=60)
    spoiled = np.where(t > 50, 1e6, y)
    way = Continuation("none", 2.0, 0.5, True)
    forecasts = []
    for values in (y, spoiled):
        data = rows_of(t, values)
        base = plain(data, Moments(data.x, 0))
        horizons, found, _ = Past(data, 0).errors(way, base, 100)
        number = np.cumsum(horizons == 1) - 1  # of the origin, which is as far from the end as it has rows
        early = (60 - np.bincount(number))[number] <= 51
        assert 0 < early.sum() < len(early)
        forecasts.append(found[early])
    np.testing.assert_allclose(*forecasts)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_intervals_grow_as_the_errors_do(power: float) -> None:
    draw = np.random.default_rng(0)
    h = draw.integers(1, 40, 4000).astype(float)
    errors = np.abs(draw.normal(size=4000)) * 3 * h**power
    found = HorizonErrors.of(h, np.full(4000, 1.0), errors)
    at = np.array([1.0, 10.0, 39.0])
    wanted = 1.645 * 3 * at**power
    half = found.half_widths(at, np.ones(3), 0.9)
    assert (half > 0.85 * wanted).all()
    assert (half < 1.5 * wanted).all()  # up to 1.43 for what only one stretch of the past has shown
    assert HorizonErrors.from_json(found.as_json()).growth == found.growth


@pytest.mark.parametrize(
    ("power", "factors", "wanted"), [(0.5, True, 0.5), (0.5, False, 0.0), (0.0, True, 0.0)]
)
def test_errors_of_groups_with_factors_may_be_those_of_counts(
    power: float, factors: bool, wanted: float
) -> None:
    """One width held 0.8 of large groups and all of small ones."""
    draw = np.random.default_rng(0)
    forecasts, horizons = draw.choice([4.0, 60.0, 900.0], 3000), draw.uniform(1, 20, 3000)
    errors = np.abs(draw.normal(size=3000)) * 5 * (forecasts / 60) ** power
    found = HorizonErrors.of(horizons, forecasts, errors, factors=factors)
    assert found.relative == wanted
    if factors:
        for part in (forecasts == 4.0, forecasts == 60.0, forecasts == 900.0):
            half = HorizonErrors.from_json(found.as_json()).half_widths(horizons[part], forecasts[part], 0.9)
            assert 0.85 < np.mean(errors[part] <= half) < 0.97


def test_errors_of_a_growing_series_are_shares_of_it() -> None:
    draw = np.random.default_rng(0)
    forecasts = np.exp(draw.uniform(0, 4, 2000))
    errors = np.minimum(np.abs(draw.normal(0, 0.1, 2000)), 0.9) * forecasts
    found = HorizonErrors.of(draw.integers(1, 20, 2000).astype(float), forecasts, errors)
    assert found.relative
    half = found.half_widths(np.array([1.0, 1.0]), np.array([10.0, 50.0]), 0.9)
    assert half[1] == pytest.approx(5 * half[0])


def test_a_damaged_horizon_is_refused(tmp_path: Path) -> None:
    model = fit_table(table_of(np.arange(40.0) % 7), Plan("y", task="regression")).model
    model.facts["horizon"]["growth"] = [-1.0, 0.0, 0.0]
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(FileFormatError, match="damaged table entry"):
        load_table_model(tmp_path / "m.safetensors")


def test_without_time_a_series_is_fitted_all_the_same() -> None:
    t = np.arange(400)
    values = 20 + 5 * np.sin(2 * np.pi * t / 7) + np.random.default_rng(0).normal(size=400)
    result = fit_table(table_of(values), Plan("y", training=Training(time_limit=1e-3)))
    half = result.model.half_widths(table_of(np.zeros(5), start="2023-03-01"), 0.9)
    assert np.isfinite(half).all()
    assert np.isfinite(result.predictions.outputs).all()

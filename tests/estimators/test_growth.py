"""Series that grow at a constant rate or have a factor for each group, against what made them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import PoissonRegressor

from mlayer.estimators.continuation import NONE, Continuation, Moments, ends
from mlayer.estimators.growth import Multiplier, may_grow, may_multiply
from mlayer.estimators.rows import Rows
from mlayer.estimators.wandering import floor_of
from mlayer.estimators.waves import WaveFit, solved, wave_layer
from mlayer.numerics.persistence import Persistence
from mlayer.tables import Plan, TableModel, fit_table

MONTHS = np.arange(96)
NOISE = np.random.default_rng(0).normal(size=96)


def rows_of(values: np.ndarray) -> Rows:
    times = (MONTHS - MONTHS.mean()) / MONTHS.std()
    return Rows(times[:, None], values[:, None] / values.std(), np.ones(len(values)))


def test_the_layer_is_the_formula() -> None:
    """A line and a wave, times an exponential, less a constant."""
    draw = np.random.default_rng(1)
    x = draw.normal(size=(60, 2))
    z = 3 + x @ np.array([[0.5], [-0.2]]) + np.cos(4 * x[:, [0]] - 1)
    rows = Rows(x, z, np.ones(60))
    waves = solved(WaveFit(np.array([4.0]), np.array([0])), rows)
    growth = Multiplier(np.array([0.9, 0.0]), 0.9 * 1.5, 0.7)
    layer = growth.layer(wave_layer(waves, 2))
    new = draw.normal(size=(40, 2))
    truth = 3 + new @ np.array([[0.5], [-0.2]]) + np.cos(4 * new[:, [0]] - 1)
    truth = np.exp(0.9 * (new[:, [0]] - 1.5)) * truth - 0.7
    np.testing.assert_allclose(layer(torch.from_numpy(new)).detach().numpy(), truth, rtol=1e-9)
    grown = Rows(x, growth.applied(z, x), rows.weight)
    np.testing.assert_allclose(growth.removed(grown, 0).y, z, rtol=1e-12)


def test_the_rate_is_that_of_the_logarithms() -> None:
    values = 50 * np.exp(0.02 * MONTHS + 0.05 * NOISE)
    found = Multiplier.of_growth(rows_of(values), 0, 0.0)
    assert found.rates[0] / MONTHS.std() == pytest.approx(np.polyfit(MONTHS, np.log(values), 1)[0])


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (50 * np.exp(0.02 * MONTHS + 0.05 * NOISE), True),
        (50 * np.exp(0.02 * MONTHS + 0.25 * NOISE), True),  # of much noise
        (900 * np.exp(-0.02 * MONTHS + 0.05 * NOISE), True),
        (50 + 4 * MONTHS + 10 * NOISE, False),  # a line
        (200 + 1.25 * MONTHS + 5 * NOISE, False),  # a line whose logarithms are nearly one
        (100 * np.exp(0.0028 * MONTHS + 0.0003 * NOISE), False),  # by a third in all
        (100 * np.exp(0.05 * NOISE), False),  # nothing grows
        (1000 / (1 + np.exp(5 - MONTHS / 10)) * np.exp(0.02 * NOISE), False),  # towards a saturation
        (50 * np.exp(0.03 * MONTHS - 0.018 * np.maximum(MONTHS - 64, 0) + 0.05 * NOISE), False),  # slower
        (50 * np.exp(0.02 * MONTHS) - 60, False),  # not positive
    ],
    ids=[
        "growth",
        "noise",
        "decay",
        "line",
        "flat line",
        "little",
        "level",
        "saturation",
        "slower",
        "negative",
    ],
)
def test_growth_is_told_from_its_look_alikes(values: np.ndarray, wanted: bool) -> None:
    assert may_grow(rows_of(values), 0, 0.0) == wanted


def test_growth_is_seen_wherever_in_a_season_the_rows_end() -> None:
    """The line through the last third alone rises or falls with the season."""
    for phase in range(12):
        season = 0.3 * np.sin(2 * np.pi * (MONTHS + phase) / 12)
        assert may_grow(rows_of(np.exp(0.012 * MONTHS + season + 0.03 * NOISE)), 0, 0.0)
        slowing = np.log1p(np.exp(0.12 * (MONTHS - 40)) / 3) - np.log1p(np.exp(0.12 * (MONTHS - 60)))
        assert not may_grow(rows_of(np.exp(slowing + season + 0.03 * NOISE)), 0, 0.0)


def test_a_growing_season_is_continued_within_its_intervals() -> None:
    """A straight line lagged by 13 % after a year, and intervals of 0.9 held 0.25 to 0.6 of the values."""
    covered = []
    for seed in range(3):
        noise = np.random.default_rng(seed).normal(0, 0.03, 96)
        sales = 120 * np.exp(0.018 * MONTHS + noise) * (1 + 0.12 * np.sin(2 * np.pi * MONTHS / 12))
        frame = pd.DataFrame({"month": pd.date_range("2015-01-01", periods=96, freq="MS"), "sales": sales})
        result = fit_table(frame[:84], Plan("sales"))
        assert any("growing at a constant rate" in str(remark) for remark in result.remarks)
        found = result.model.predict(frame[84:]).outputs
        assert np.sqrt(np.mean(np.square(found / sales[84:] - 1))) < 0.05
        covered += list(np.abs(found - sales[84:]) <= result.model.half_widths(frame[84:], 0.9, found))
        assert_growth_ends(result.model, float(sales[:84].max()))
    assert np.mean(covered) >= 0.85


def assert_growth_ends(model: TableModel, most: float) -> None:
    """Growth at the rate for half of the extent, then ever slower, in all no more than that of the table."""
    slows = model.facts["horizon"]["slows"]
    rate, after = slows["rate"], slows["after"]
    assert rate == pytest.approx(0.018 / 30.44, rel=0.1)
    assert after == pytest.approx(83 * 30.44 / 2, rel=0.01)
    last = np.datetime64("2021-12-01")
    ahead = np.array([30, 300, 1200, 2000, 9000, 40000])
    frame = pd.DataFrame({"month": last + ahead.astype("timedelta64[D]")})
    raw = model.outputs(model.encode(frame)[0])
    found = model.predict(frame).outputs
    days = np.arange(40000) + 0.5  # the rate of each day, summed
    rates = rate * np.exp(-np.maximum(days - after, 0.0) / after)
    wanted = [np.exp(rates[:h].sum() - rate * h) for h in ahead]
    np.testing.assert_allclose(found / raw, wanted, rtol=1e-3)
    assert found.max() < 1.5 * most * np.exp(rate * 2 * after) < raw.max()


def panel(
    draw: np.random.Generator, weeks: int = 60, noise: str = "counts"
) -> tuple[pd.DataFrame, np.ndarray]:
    """Two stores times three products: a table, and the means behind it."""
    parts, means = [], []
    t = np.arange(weeks)
    for store, size in {"Lyon": 1.0, "Nice": 3.0}.items():
        for product, level in {"bread": 20.0, "milk": 80.0, "beer": 300.0}.items():
            mean = level * size * (1 + 0.3 * np.sin(2 * np.pi * t / 12))
            units = draw.poisson(mean) if noise == "counts" else mean + draw.normal(0, 20, weeks)
            week = pd.date_range("2022-01-03", periods=weeks, freq="W-MON")
            parts.append(pd.DataFrame({"week": week, "store": store, "product": product, "units": units}))
            means.append(mean)
    return pd.concat(parts, ignore_index=True), np.concatenate(means)


def standardized(frame: pd.DataFrame) -> tuple[Rows, np.ndarray, float]:
    """Rows of the panel, its series and what was subtracted from the targets."""
    codes = pd.get_dummies(frame[["store", "product"]]).to_numpy(float)
    place = np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)
    y, x = frame["units"].to_numpy(float), np.column_stack([frame["week"].astype(int), codes])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    rows = Rows(x, ((y - y.mean()) / y.std())[:, None], np.ones(len(y)))
    return rows, place == np.arange(6)[:, None], float(y.mean() / y.std())


def test_factors_are_those_of_a_regression_of_counts() -> None:
    """The independent fit is that of scikit-learn."""
    frame, _ = panel(np.random.default_rng(3))
    rows, _, offset = standardized(frame)
    found = Multiplier.of_groups(rows, [1, 2, 3, 4, 5], offset)
    truth = rows.y[:, 0] + offset
    other = (
        PoissonRegressor(alpha=0, tol=1e-10, max_iter=1000).fit(rows.x[:, 1:], truth).predict(rows.x[:, 1:])
    )
    ratio = other / found.factor(rows.x)[:, 0]
    np.testing.assert_allclose(ratio, ratio.mean(), rtol=1e-4)
    assert found.rates[0] == 0.0
    np.testing.assert_allclose(found.again(rows, 0).rates, found.rates)


def test_factors_are_tried_where_larger_series_vary_more() -> None:
    rows, series, offset = standardized(panel(np.random.default_rng(3))[0])
    groups = [1, 2, 3, 4, 5]
    assert may_multiply(rows, series, groups, offset)
    assert not may_multiply(rows, series[:1], groups, offset)
    assert not may_multiply(rows, series, groups, offset - 1.0)  # negative targets
    for level in (5.0, 50.0):  # constant, and of one spread whatever its mean
        y = level * rows.x[:, [1]] + 0.1 * np.random.default_rng(0).normal(size=(len(rows.x), 1))
        assert not may_multiply(Rows(rows.x, y, rows.weight), series, groups, 100.0)


def test_stores_times_products_are_forecast_by_factors() -> None:
    """Levels that add up, and seasons of one size, missed the means by 60 %."""
    frame, means = panel(np.random.default_rng(5))
    late = (frame["week"] >= frame["week"].unique()[48]).to_numpy()
    result = fit_table(frame[~late], Plan("units"))
    assert any("times a factor for each group" in str(remark) for remark in result.remarks)
    found = result.model.predict(frame[late]).outputs
    assert np.sqrt(np.mean(np.square(found / means[late] - 1))) < 0.12
    half = result.model.half_widths(frame[late], 0.9, found)
    assert np.mean(np.abs(found - frame["units"][late]) <= half) >= 0.8


@pytest.mark.parametrize("seed", range(3))
def test_steps_of_a_price_are_shares_of_it(seed: int) -> None:
    """A price that has doubled has steps twice as large as its first ones."""
    steps = np.random.default_rng(seed).normal(0.002, 0.03, 400)
    last = Continuation(NONE, 0.3, 0.0, False)
    for values, wanted in ((100 * np.exp(np.cumsum(steps)), True), (100 + np.cumsum(steps), False)):
        unit = float(values.std())
        x = np.linspace(-1.7, 1.7, 400)[:, None]
        rows = Rows(x, (values - values.mean())[:, None] / unit, np.ones(400))
        end = ends(rows, Moments(x, 0), None, set())[NONE]
        walk = Persistence(1.0, 0.0, float(np.diff(values).std()) / unit)
        found, shares = floor_of(walk, last, end, values.mean() / unit, has_factor=False)
        assert shares == wanted
        assert found.deviation == pytest.approx(steps.std() if wanted else walk.deviation, rel=0.05)
        assert floor_of(replace(walk, phi=0.5), last, end, values.mean() / unit, has_factor=False)[1] is False
        divided = ends(Rows(x, 4 + rows.y, rows.weight), Moments(x, 0), None, set())[NONE]
        found, shares = floor_of(walk, last, divided, 0.0, has_factor=True)
        assert shares
        assert found.deviation == pytest.approx(walk.deviation / 4)

"""Series that grow at a constant rate, against the formula that made them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from mlayer.estimators.growth import GrowthRate, may_grow
from mlayer.estimators.rows import Rows
from mlayer.estimators.waves import WaveFit, solved, wave_layer
from mlayer.tables import Plan, fit_table

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
    growth = GrowthRate(time=0, offset=0.7, rate=0.9, end=1.5)
    layer = growth.layer(wave_layer(waves, 2))
    new = draw.normal(size=(40, 2))
    truth = 3 + new @ np.array([[0.5], [-0.2]]) + np.cos(4 * new[:, [0]] - 1)
    truth = np.exp(0.9 * (new[:, [0]] - 1.5)) * truth - 0.7
    np.testing.assert_allclose(layer(torch.from_numpy(new)).detach().numpy(), truth, rtol=1e-9)
    grown = Rows(x, growth.applied(z, x), rows.weight)
    np.testing.assert_allclose(growth.removed(grown).y, z, rtol=1e-12)


def test_the_rate_is_that_of_the_logarithms() -> None:
    values = 50 * np.exp(0.02 * MONTHS + 0.05 * NOISE)
    found = GrowthRate.of(rows_of(values), 0, 0.0)
    assert found.rate / MONTHS.std() == pytest.approx(np.polyfit(MONTHS, np.log(values), 1)[0])


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (50 * np.exp(0.02 * MONTHS + 0.05 * NOISE), True),
        (900 * np.exp(-0.02 * MONTHS + 0.05 * NOISE), True),
        (50 + 4 * MONTHS + 10 * NOISE, False),  # a line
        (100 * np.exp(0.05 * NOISE), False),  # nothing grows
        (1000 / (1 + np.exp(5 - MONTHS / 10)) * np.exp(0.02 * NOISE), False),  # towards a saturation
        (50 * np.exp(0.02 * MONTHS) - 60, False),  # not positive
    ],
    ids=["growth", "decay", "line", "level", "saturation", "negative"],
)
def test_growth_is_told_from_its_look_alikes(values: np.ndarray, wanted: bool) -> None:
    assert may_grow(rows_of(values), 0, 0.0) == wanted


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
    assert np.mean(covered) >= 0.85

"""The wave of a year in rows of less than two years."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mlayer.estimators.rows import Rows
from mlayer.estimators.wandering import is_year
from mlayer.estimators.waves import WaveFit, solved
from mlayer.numerics.persistence import Persistence
from mlayer.tables import Plan, fit_table

NOISE = Persistence(0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("period", "days", "found", "sure"),
    [
        (365.25, 584, NOISE, True),
        (350.0, 584, NOISE, True),
        (365.25, 400, NOISE, False),  # 1.1 cycles
        (500.0, 700, NOISE, False),  # a curved trend, or something else
        (365.25, 584, Persistence(1.0, 0.0, 1.0), False),  # a random walk
        (365.25, 584, Persistence(0.97, 0.0, 1.0), False),
        (365.25, 584, None, False),
        (365.25, 1800, NOISE, False),  # many cycles: forecasts of the past have seen it
    ],
)
def test_is_year(period: float, days: int, found: Persistence | None, sure: bool) -> None:
    unit = 100.0  # days
    t = np.arange(days)[:, None] / unit
    data = Rows(t, np.sin(2 * np.pi / period * unit * t), np.ones(days))
    waves = solved(WaveFit(2 * np.pi / np.array([7.0, period]) * unit, np.zeros(2, dtype=int)), data)
    assert is_year(waves, data, found, 1 / unit) == sure


def test_a_weak_year_is_continued() -> None:
    draw, t = np.random.default_rng(6), np.arange(584 + 180)
    phases = draw.uniform(0, 6), draw.uniform(0, 6)
    y = 200 + 20 * np.sin(2 * np.pi * t / 7 + phases[0]) + 12 * np.sin(2 * np.pi * t / 365.25 + phases[1])
    y += 0.02 * t + 8 * draw.standard_normal(len(t))
    table = pd.DataFrame({"date": pd.date_range("2022-03-01", periods=len(t)), "y": y})
    result = fit_table(table.iloc[:584], Plan("y"))
    assert [round(period) for _, period in result.model.facts["periods"]][1:] == [7]
    assert result.model.facts["periods"][0][1] == pytest.approx(365, rel=0.07)
    errors = result.model.predict(table.iloc[584:]).outputs - y[584:]
    assert np.sqrt(np.mean(errors**2)) < 11  # 8 of noise; 20 without the year

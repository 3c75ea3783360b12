"""Tables of many rows: what a fit with the defaults is spared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlayer.estimators import MLayerClassifier, MLayerRegressor, series, waves
from mlayer.estimators.parameters import SMALL_TABLE, plan
from mlayer.estimators.waves import time_like
from mlayer.tables import columns
from mlayer.tables.fit import split


@pytest.mark.parametrize("kind", [MLayerClassifier, MLayerRegressor])
@pytest.mark.parametrize(
    ("arguments", "rows", "epochs"),
    [
        ({}, 40_000, 10),
        ({}, 5_000, 80),
        ({}, 1_000_000, 4),
        ({"effort": "thorough"}, 40_000, 40),
        ({"max_iter": 50}, 40_000, 50),  # as it was asked for
        ({"solver": "adam"}, 40_000, 300),
        ({}, 4_000, 300),  # iterations of L-BFGS
    ],
)
def test_rows_are_visited_a_bounded_number_of_times(
    kind: type[Any], arguments: dict[str, Any], rows: int, epochs: int
) -> None:
    assert plan(kind(**arguments), rows, 5, 2, seed=0).recipe.max_iter == epochs


def test_rounded_quantities_are_not_times() -> None:
    """Three digits of a normal distribution are spaced as evenly as days are; searches took half of a fit."""
    draw = np.random.default_rng(0)
    days = np.arange(800.0)
    assert time_like(days)
    assert time_like(np.repeat(days[draw.random(800) > 0.1], 3))  # gaps, and three rows of a day
    assert time_like(np.delete(days, slice(300, 340)))
    assert not time_like(draw.normal(size=20_000).round(2))
    assert not time_like(draw.exponential(size=20_000).round(2))
    assert not time_like(draw.uniform(size=500))


def test_waves_are_looked_for_in_some_of_the_rows_first(monkeypatch: pytest.MonkeyPatch) -> None:
    searched, find = [], waves.find_waves

    def recorded(rows: Any, *arguments: Any) -> Any:
        searched.append(len(rows.x))
        return find(rows, *arguments)

    monkeypatch.setattr(series, "find_waves", recorded)
    draw = np.random.default_rng(0)
    x = np.arange(float(SMALL_TABLE + 500))[:, None]
    MLayerRegressor(max_iter=1, random_state=0).fit(x, draw.normal(size=len(x)))
    assert searched
    assert max(searched) <= SMALL_TABLE
    searched.clear()
    wave = np.sin(2 * np.pi * x[:, 0] / 50) + 0.1 * draw.normal(size=len(x))
    model = MLayerRegressor(max_iter=1, random_state=0).fit(x, wave)
    assert searched[-1] == len(x)  # the waves that are used are those of all rows
    assert model.periods_[0][1] == pytest.approx(50, rel=1e-3)


def test_a_part_of_a_long_column_shows_that_it_has_no_dates(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[int]] = {"name": [], "day": []}
    infer = columns.infer_column

    def recorded(column: Any, *arguments: Any) -> Any:
        seen[column.name].append(len(column))
        return infer(column, *arguments)

    monkeypatch.setattr(split, "infer_column", recorded)
    names = np.array(["red", "green", "blue"])[np.arange(9000) % 3]
    days = pd.date_range("2000-01-01", periods=9000).strftime("%d.%m.%Y")
    found = split._date(pd.DataFrame({"name": names, "day": days}), ())
    assert found is not None
    assert found.name == "day"
    assert seen["day"][-1] == 9000
    assert max(seen["name"]) < 3000

"""Tables with dates: forecasts of groups, a hold-out by time, bounded answers, intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlayer.errors import ArgumentError
from mlayer.tables import Plan, Training, fit_table, load_table_model, open_table, predict_table
from mlayer.tables.fit.split import drives, last_dates


def sales(days: int = 400, seed: int = 0) -> pd.DataFrame:
    """Two stores with seasons of their own and a promotion, one row a day each."""
    draw = np.random.default_rng(seed)
    parts = []
    for store, base, size in (("A", 100, 10.0), ("B", 180, -25.0)):
        t = np.arange(days)
        promo = draw.random(days) < 0.15
        y = base + 0.05 * t + size * np.sin(2 * np.pi * t / 7) + 12 * promo + draw.normal(0, 2, days)
        dates = pd.date_range("2022-01-01", periods=days).strftime("%Y-%m-%d")
        parts.append(pd.DataFrame({"date": dates, "store": store, "promo": promo.astype(int), "sales": y}))
    return pd.concat(parts).reset_index(drop=True)


def test_a_group_column_does_not_destroy_the_forecast() -> None:
    table = sales()
    late = table["date"] >= "2022-12-01"
    result = fit_table(table[~late], Plan("sales"))
    predicted = result.model.predict(table[late]).outputs
    assert np.sqrt(np.mean((predicted - table.loc[late, "sales"]) ** 2)) < 2.6  # the noise has 2
    assert result.periods == ["7.0 days"]
    assert "a period of 7.0 days" in result.verdict
    assert result.model.facts["split"] == "time"


def test_the_last_dates_are_held_out_where_time_drives() -> None:
    table = sales(100)
    result = fit_table(table, Plan("sales"))
    assert result.series is not None
    assert result.series.before[0].max() < result.series.after[0].min()
    assert len(result.series.after[0]) == 20
    random = fit_table(table, Plan("sales", split="random", training=Training(epochs=5)))
    assert random.series is None
    with pytest.raises(ArgumentError, match="split must be 'random' without a column of dates"):
        fit_table(table.drop(columns="date"), Plan("sales", split="time"))


def test_a_shift_of_the_level_is_said_and_does_not_widen_intervals() -> None:
    t = np.arange(200)
    y = 50 + 30 * (t >= 90) + 4 * np.sin(2 * np.pi * t / 7) + np.random.default_rng(5).normal(0, 1, 200)
    table = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=200), "y": y})
    result = fit_table(table, Plan("y"))
    (said,) = (str(remark) for remark in result.remarks if remark.kind == "shift")
    assert "shifts after 2024-03-30 by" in said  # day 89
    assert result.half is not None
    assert 1.2 < result.half.mean() < 3.0  # 1.64 of the noise; more than 30 with the shift among the errors


def test_what_drives() -> None:
    draw = np.random.default_rng(0)
    days = np.arange(200.0)
    assert drives(days, np.sin(days / 9) + 0.1 * draw.standard_normal(200))
    assert not drives(days, draw.standard_normal(200))
    assert not drives(days[:20], days[:20])
    train, test = last_dates(np.array([3.0, 1.0, np.nan, 2.0, 4.0, 4.0]), 0.25)
    assert (train.tolist(), test.tolist()) == ([0, 1, 2, 3], [4, 5])


def test_without_waves_a_forecast_stays_in_bounds() -> None:
    """A step: no season goes on, so later dates count as the last one."""
    draw = np.random.default_rng(0)
    days = pd.date_range("2022-01-01", periods=300)
    step = np.where(np.arange(300) > 150, 50.0, 20.0)
    table = pd.DataFrame({"date": days.strftime("%Y-%m-%d"), "x": draw.normal(size=300)})
    table["y"] = step + 5 * table["x"] ** 2 + draw.normal(0, 1, 300)
    result = fit_table(table, Plan("y", training=Training(epochs=60)))
    assert result.periods == []
    assert any(remark.kind == "held" for remark in result.remarks)
    far = pd.DataFrame({"date": ["2023-06-01", "2052-01-01"], "x": [0.0, 0.0]})
    answers = result.model.predict(far).outputs
    assert answers[0] == pytest.approx(answers[1], rel=1e-9)
    assert 0 < answers[0] < 100


def test_dates_in_a_classifier_are_held() -> None:
    table = sales(60).assign(kind=lambda t: np.where(t["sales"] > 140, "high", "low"))
    result = fit_table(table.drop(columns="sales"), Plan("kind", training=Training(epochs=20)))
    far = table.head(1).assign(date="2090-01-01")
    held = table.head(1).assign(date=table["date"].max())
    answers = [result.model.predict(rows).outputs for rows in (far, held)]
    np.testing.assert_allclose(answers[0], answers[1], atol=0.05)
    assert "they count as its first or last date" in str(result.model.predict(far).remarks)


def test_intervals_hold_what_they_promise(tmp_path: Path) -> None:
    """The rows are new, and the file is the command's."""
    draw = np.random.default_rng(0)
    table = pd.DataFrame({"a": draw.normal(size=1500), "b": draw.normal(size=1500)})
    table["y"] = 3 * table["a"] - table["b"] + draw.laplace(0, 1, 1500)
    result = fit_table(table.head(900), Plan("y", training=Training(epochs=30)))
    result.model.save(tmp_path / "m.safetensors")
    table.tail(600).to_csv(tmp_path / "new.csv", index=False)
    model = load_table_model(tmp_path / "m.safetensors")
    for coverage in (0.5, 0.9):
        predict_table(model, open_table(tmp_path / "new.csv"), tmp_path / "out.csv", interval=coverage)
        out = pd.read_csv(tmp_path / "out.csv")
        truth = table.tail(600)["y"].to_numpy()
        inside = ((out["low"] <= truth) & (truth <= out["high"])).mean()
        assert inside == pytest.approx(coverage, abs=0.08)  # 180 errors behind it
    assert "90% requested" in result.verdict


def test_intervals_need_a_quantity() -> None:
    table = sales(40).assign(kind=lambda t: np.where(t["sales"] > 140, "high", "low"))
    result = fit_table(table.drop(columns="sales"), Plan("kind", training=Training(epochs=2)))
    with pytest.raises(ArgumentError, match=r"must be one for a quantity.*Leave the interval out; --proba"):
        result.model.half_width(0.9)

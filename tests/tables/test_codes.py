"""Whole numbers that stand for groups, and tables with many categories or far-out cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlayer.tables import Plan, Training, fit_table, load_table_model, open_table
from mlayer.tables.columns import Category, Number, infer_column
from mlayer.tables.fit.codes import with_codes
from mlayer.tables.schema import learn_schema
from mlayer.tables.target import learn_target

QUICK = Training(epochs=5)


def _stores(days: int = 120) -> pd.DataFrame:
    """Stores 7, 3 and 9 with levels in no order and weeks of their own."""
    draw = np.random.default_rng(0)
    t = np.arange(days)
    parts = []
    for store, level, size in ((7, 50.0, 4.0), (3, 90.0, -8.0), (9, 10.0, 12.0)):
        y = level + size * np.sin(2 * np.pi * t / 7) + draw.normal(0, 1, days)
        dates = pd.date_range("2024-01-01", periods=days).strftime("%Y-%m-%d")
        parts.append(pd.DataFrame({"date": dates, "store": store, "sales": y}))
    return pd.concat(parts).sort_values(["date", "store"]).reset_index(drop=True)


def _coded(frame: pd.DataFrame, target: str) -> dict[str, bool]:
    """The columns that become categories of numbers."""
    what = learn_target(frame[target], "regression")
    rest = frame.drop(columns=target)
    schema, _ = with_codes(learn_schema(rest)[0], rest, what, frame[target].to_numpy(), 200)
    return {column.name: isinstance(column, Category) for column in schema.columns}


def test_numbered_stores_are_groups(tmp_path: Path) -> None:
    table = _stores()
    late = table["date"] >= "2024-04-15"
    result = fit_table(table[~late], Plan("sales"))
    assert any(remark.kind == "codes" for remark in result.remarks)
    result.model.save(tmp_path / "m.safetensors")
    model = load_table_model(tmp_path / "m.safetensors")
    wanted = table[late]
    error = np.sqrt(np.mean((model.predict(wanted).outputs - wanted["sales"]) ** 2))
    assert error < 1.4  # the noise has 1; as sizes, the stores leave 19
    written = wanted.assign(store=[f"0{store}" for store in wanted["store"]])  # text, as 07
    np.testing.assert_array_equal(model.predict(written).outputs, model.predict(wanted).outputs)
    unseen = model.predict(wanted.head(1).assign(store=8))
    assert "category that the training table did not have" in str(unseen.remarks[0])


def test_sizes_stay_numbers_and_codes_do_not() -> None:
    draw = np.random.default_rng(0)
    rooms, code = draw.integers(1, 7, 900), draw.integers(1, 7, 900)
    effect = np.array([0.0, 9.0, -7.0, 8.0, -9.0, 3.0, -8.0])[code]
    frame = pd.DataFrame({"rooms": rooms, "code": code, "noise": draw.integers(0, 5, 900)})
    frame["y"] = 3.0 * rooms + 0.3 * rooms**2 + effect + draw.normal(0, 1, 900)
    assert _coded(frame, "y") == {"rooms": False, "code": True, "noise": False}


def test_frequent_categories_stand_alone() -> None:
    texts = [f"S{k % 30:02d}" for k in range(600)] + [f"T{k}" for k in range(60)]
    found = infer_column(pd.Series(texts, name="shop"), 200)
    assert isinstance(found.column, Category)
    assert len(found.column.categories) == 30
    assert found.column.lumped == 60
    few = infer_column(pd.Series(texts, name="shop"), 8).column
    assert isinstance(few, Category)
    assert len(few.categories) == 8


def test_far_out_cells_are_limited_and_said() -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.normal(size=300), "b": draw.normal(size=300)})
    frame["y"] = 3 * frame["a"] + frame["b"]
    frame.loc[[5, 100, 133], "a"] = [99999.0, -99999.0, 4e6]
    found = infer_column(frame["a"], 20)
    assert isinstance(found.column, Number)
    assert any(r.kind == "far" and r.count == 3 for r in found.remarks)
    result = fit_table(frame, Plan("y", training=Training(epochs=30)))
    assert result.metrics["RMSE"] < 1.5  # 3 if the column drowns in three of its cells
    far = result.model.predict(pd.DataFrame({"a": [1e9, 1e12], "b": [0.0, 0.0]})).outputs
    assert far[0] == pytest.approx(far[1], rel=1e-9)


@pytest.mark.parametrize("share", [0.19, 0.0])
def test_cells_of_a_heavy_tail_stay_if_the_target_follows_them(share: float) -> None:
    draw = np.random.default_rng(1)
    tax = np.sinh(draw.normal(0, 2.5, 400))
    frame = pd.DataFrame({"tax": tax, "b": draw.normal(size=400)})
    frame["total"] = tax * share + frame["b"] + 0.01 * draw.normal(size=400)
    result = fit_table(frame, Plan("total", training=Training(epochs=30)))
    kinds = [remark.kind for remark in result.remarks if remark.column == "tax"]
    assert kinds == (["giveaway"] if share else ["far"])
    assert result.metrics["RMSE"] < 0.05 + 0.05 * (not share)
    far = result.model.predict(pd.DataFrame({"tax": [1e4, 1e4 + 100.0], "b": [0.0, 0.0]})).outputs
    assert far[1] - far[0] == pytest.approx(100 * share, abs=0.5)


@pytest.mark.parametrize("values", [[0.0] * 90 + [5.0] * 10, list(np.exp(np.linspace(-3, 3, 100)))])
def test_usual_columns_have_no_limits(values: list[float]) -> None:
    found = infer_column(pd.Series(values, name="x"), 20)
    assert isinstance(found.column, Number)
    assert found.column.least == found.column.most
    assert not found.remarks


def test_a_series_is_fitted_again_to_all_rows(tmp_path: Path) -> None:
    """A level that rose in the last fifth: a model that has not seen it would stay below."""
    days = pd.date_range("2023-01-01", periods=300)
    level = np.where(np.arange(300) < 240, 10.0, 30.0) + np.random.default_rng(0).normal(0, 0.5, 300)
    frame = pd.DataFrame({"date": days.strftime("%Y-%m-%d"), "y": level})
    result = fit_table(frame, Plan("y", split="time"))
    assert result.model.facts["fitted to"] == "all rows"
    frame.to_csv(tmp_path / "t.csv", index=False)
    last = result.model.predict(open_table(tmp_path / "t.csv").read().tail(1)).outputs[0]
    assert last == pytest.approx(30, abs=6)
    assert result.metrics["RMSE"] > 10  # measured before, without those rows
    random = fit_table(frame, Plan("y", split="random", training=QUICK))
    assert "fitted to" not in random.model.facts

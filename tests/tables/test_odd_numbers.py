"""Columns of numbers that are durations, hold words for missing cells, or are codes with zeros in front."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from least_squares import LeastSquares
from mlayer.tables import Plan, fit_table, load_table_model, open_table
from mlayer.tables.columns import Category, Number, column_from_json, infer_column
from mlayer.tables.columns.durations import hours
from mlayer.tables.export.encode_rows import encode_rows
from mlayer.tables.fit.labeled import read_with_target
from mlayer.tables.predict import predict_table


def learn(cells: object, name: str = "c") -> tuple[object, list[str]]:
    found = infer_column(pd.Series(cells, name=name), 50)
    return found.column, [str(remark) for remark in found.remarks]


@pytest.mark.parametrize(
    "delta",
    [
        timedelta(hours=1, minutes=30),
        timedelta(seconds=59),
        timedelta(days=2, hours=3),
        timedelta(hours=23.5),
    ],
)
def test_durations_against_the_standard_library(delta: timedelta) -> None:
    wanted = delta.total_seconds() / 3600
    for text in (str(delta), str(pd.Timedelta(delta))):  # "2 days, 3:00:00" and "2 days 03:00:00"
        assert hours(text) == pytest.approx(wanted, rel=1e-14)
    column, _ = learn([str(delta), "0:10:00", "5:00:00"])
    assert isinstance(column, Number)
    entry = column.as_json()
    assert column_from_json(entry) == column
    assert encode_rows([entry], [{"c": str(delta)}]) == [[pytest.approx(wanted, rel=1e-14)]]


@pytest.mark.parametrize("text", ["7:65", "12:30:61", "2024-01-01", "1:2", "13:00 pm", "x 1:30", "1:30 h"])
def test_what_is_no_duration(text: str) -> None:
    assert math.isnan(hours(text))
    column = Number("c", fill=3.0, flag=True, decimal=":")
    assert encode_rows([column.as_json()], [{"c": text}]) == [[3.0, 1.0]]


def test_differences_of_times_of_pandas_are_hours() -> None:
    column, _ = learn(pd.to_timedelta([90, 30, 45], unit="min"))
    assert isinstance(column, Number)
    assert (column.low, column.high) == (0.5, 1.5)


def test_a_duration_may_be_the_target(tmp_path: Path) -> None:
    kilometers = np.arange(60) / 2
    table = pd.DataFrame({"km": kilometers, "time": [str(timedelta(minutes=6 * k)) for k in kilometers]})
    table.to_csv(tmp_path / "t.csv", index=False)
    rows = read_with_target(open_table(tmp_path / "t.csv"), "time")
    assert rows.truth == pytest.approx(0.1 * kilometers)
    result = fit_table(rows, Plan("time"), estimator=LeastSquares())
    result.model.save(tmp_path / "m.safetensors")
    model = load_table_model(tmp_path / "m.safetensors")
    made = predict_table(model, open_table(tmp_path / "t.csv"), tmp_path / "p.csv")
    assert made.metrics["RMSE"] < 1e-6
    assert any("in hours" in str(remark) for remark in result.remarks)


@pytest.mark.parametrize("words", [["-", "unknown", "k.A."], ["broken sensor", "offline"]])
def test_numbers_with_many_words_for_missing(words: list[str]) -> None:
    cells = [words[k % len(words)] if k % 4 == 0 else f"{k / 8}" for k in range(80)]
    column, remarks = learn(cells)
    assert isinstance(column, Number)
    assert column.flag
    assert any("20 cells that are not numbers were taken as missing" in remark for remark in remarks)
    amounts, _ = learn([cell if cell in words else f"{cell} kg" for cell in cells])
    assert isinstance(amounts, Number)
    assert amounts.unit == "kg"


def test_sizes_in_numbers_and_letters_are_categories() -> None:
    column, _ = learn(["36", "38", "40", "S", "M", "L"] * 20)
    assert isinstance(column, Category)
    column, _ = learn([f"{k}" if k % 2 else f"above {k}" for k in range(80)])
    assert not isinstance(column, Number)


def test_codes_keep_their_zeros(tmp_path: Path) -> None:
    cities = {"01067": 1.0, "80331": 2.0, "10115": 5.0}
    table = pd.DataFrame({"zip": list(cities) * 20, "size": range(60)})
    table["price"] = table["zip"].map(cities) + 0.1 * table["size"]
    table.to_csv(tmp_path / "t.csv", index=False)
    result = fit_table(
        read_with_target(open_table(tmp_path / "t.csv"), "price"), Plan("price"), estimator=LeastSquares()
    )
    column = next(c for c in result.model.schema.columns if c.name == "zip")
    assert isinstance(column, Category)
    assert set(column.categories) == set(cities)
    made = predict_table(result.model, open_table(tmp_path / "t.csv"), tmp_path / "p.csv")
    assert made.metrics["RMSE"] < 1e-6
    assert isinstance(learn(["07", "11", "12"] * 5)[0], Number)

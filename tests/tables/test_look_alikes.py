"""Ordinary columns that resemble dates, missing cells or totals are read as what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from least_squares import LeastSquares
from mlayer.tables import Plan, fit_table, open_table, predict_table
from mlayer.tables.columns import infer_column
from mlayer.tables.fit.labeled import read_with_target
from mlayer.tables.target import guess_task

DRAW = np.random.default_rng(0)
DAYS = DRAW.integers(33_000, 58_000, 200).astype(float)
SECONDS = DRAW.integers(400_000_000, 2_000_000_000, 200).astype(float)


def kind(name: str, cells: Any) -> str:
    column = infer_column(pd.Series(cells, name=name), 50).column
    assert column is not None
    return column.kind


@pytest.mark.parametrize("name", ["steps_per_day", "visitors per day", "sensor_data", "asset_tag"])
def test_numbers_that_only_end_like_a_day_are_numbers(name: str) -> None:
    assert kind(name, DAYS) == "number"
    assert kind("order_date", DAYS) == "date"


def test_fractions_of_measurements_are_no_times_of_the_day() -> None:
    assert kind("date", DAYS + 0.37) == "number"
    assert kind("date", DAYS + 0.25) == "date"


@pytest.mark.parametrize("name", ["cpu_time", "real_time", "response time", "phone_at", "heat"])
def test_numbers_that_only_end_like_a_time_are_numbers(name: str) -> None:
    assert kind(name, SECONDS) == "number"
    assert kind("created_at", SECONDS) == "date"
    assert kind("timestamp", 4e9 + SECONDS) == "number"  # nanoseconds, or the end of this century


@pytest.mark.parametrize(
    "cells",
    [
        [*map(str, range(1, 23)), "X", "Y", "MT"] * 8,
        [*map(str, range(30, 60)), "S", "M", "L", "XL"] * 6,
        [*map(str, range(1, 40)), *["A", "B", "C", "N"] * 4] * 4,
        [*map(str, range(40)), "above", "below"] * 2 + ["above"] * 60,
    ],
    ids=["chromosomes", "sizes", "routes", "words"],
)
def test_names_among_numbers_are_categories(cells: list[str]) -> None:
    assert kind("c", cells) == "category"


def test_a_target_of_points_and_words_stays_a_classification() -> None:
    cells = [f"{k / 4}" if k % 5 < 3 else ("pass" if k % 2 else "fail") for k in range(300)]
    assert guess_task(pd.Series(cells, name="y"))[0] == "classification"
    known = [cell if cell[0].isdigit() else "unknown" for cell in cells]
    assert guess_task(pd.Series(known, name="y"))[0] == "regression"


@pytest.mark.parametrize(
    "cells",
    [
        ["Jan 05", "Feb 17", "Mar 29", "Apr 11", "May 30", "Jun 02"] * 9,
        ["Q1-01", "Q2-10", "Q3-22"] * 9,
        ["1Q24", "2Q30", "4Q10"] * 9,
        ["1000W12", "3000W40", "2500W10"] * 9,
    ],
    ids=["days of a year", "products", "parts", "powers"],
)
def test_names_with_digits_are_no_dates(cells: list[str]) -> None:
    assert kind("c", cells) == "category"


def test_months_and_quarters_with_short_years_are_dates() -> None:
    months = [f"{month} {year}" for year in (21, 22, 23) for month in ("Jan", "Apr", "Jul", "Oct")]
    quarters = [f"{quarter}Q{year}" for year in (21, 22, 23) for quarter in (1, 2, 3, 4)]
    assert kind("c", months * 3) == kind("c", quarters * 3) == "date"


def test_a_missing_code_does_not_make_codes_numbers(tmp_path: Path) -> None:
    lines = [f"{'NA' if k == 3 else f'{k % 9:02}067'},{k}" for k in range(60)]
    (tmp_path / "t.csv").write_text("zip,y\n" + "\n".join(lines))
    rows = read_with_target(open_table(tmp_path / "t.csv"), "y")
    assert rows.frame["zip"].dropna().tolist()[:2] == ["00067", "01067"]


def test_categories_called_mean_do_not_hide_totals_nor_make_them(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"x": np.arange(40.0), "stat": ["mean", "median"] * 20, "id": [f"r{k % 7}" for k in range(40)]}
    )
    frame["y"] = 2 * frame["x"]
    model = fit_table(frame, Plan("y"), estimator=LeastSquares()).model
    for last, empty in (("9,,Total", True), ("9,mean,average", False), ("9,mean,r1", False)):
        (tmp_path / "t.csv").write_text(f"x,stat,id\n1,mean,r1\n2,median,r2\n{last}\n")
        predict_table(model, open_table(tmp_path / "t.csv"), tmp_path / "p.csv")
        assert pd.isna(pd.read_csv(tmp_path / "p.csv")["prediction"].iloc[-1]) == empty, last


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        (
            [f"{k:04}" for k in range(5, 3000, 20)],
            "number",
        ),  # quantities with zeros in front, nearly all different
        (["01067", "80331", "10115"] * 20, "category"),
        (["28:31", "30:29", "25:25"] * 20, "category"),  # scores
        (["1:10", "1:20", "1:50"] * 20, "category"),  # dilutions
        (["08:30", "17:45", "12:00"] * 20, "number"),  # times of the day
        (["2h 50m", "19h", "45m", "7h 25m"] * 20, "number"),
        ([*map(str, np.arange(0.5, 20, 0.5)), *["negative", "positive"] * 15], "category"),
        (["NC", "ND", "NB"] * 60 + ["1"] * 4, "category"),
        ([f"Q{k}{year}" for k in (1, 2) for year in range(10, 20)] * 3, "category"),  # questions
        (["18k", "24", "14k", "9k"] * 20, "category"),  # carats, or thousands
        (["320i"] * 19 + ["320d"], "category"),  # engines
        (["32B"] * 19 + ["34C"], "category"),  # sizes
        (["100.5E"] * 10 + ["150W"] * 10 + ["200E"] * 9, "category"),  # no degrees
        (["5W", "3E", "7W"] * 20, "category"),  # doors
        (["1.2.10", "1.10.12", "2.3.11"] * 20, "category"),  # versions
        (["28.2.10", "1.3.10", "15.11.11"] * 20, "date"),
        (["1e5", "3e4", "1e6"] * 20, "number"),  # doses
        (["1E5", "3E4", "1E6"] * 20, "category"),  # rooms
        (["+49301234567", "+4989123456", "+33123456789"] * 20, "category"),
        (["5 g"] * 19 + ["3 pieces"], "number"),  # one bad cell
        (["5 tokens"] * 19 + ["3 pieces"], "category"),
    ],
)
def test_columns_of_ordinary_tables(cells: list[str], wanted: str) -> None:
    assert kind("c", cells) == wanted


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["18k", "24", "14k"] * 20, "cells such as '24' and '18k' are taken as names"),
        (["1.2.10", "1.3.11", "2.1.12"] * 20, "such as versions; write dates as 2010-02-01"),
        (["2024-01-01/2024-01-07", "2024-01-08/2024-01-14"] * 20, "40 cells are ranges, which count as"),
    ],
)
def test_what_was_in_doubt_is_said(cells: list[str], said: str) -> None:
    assert any(said in str(remark) for remark in infer_column(pd.Series(cells, name="c"), 50).remarks)


@pytest.mark.parametrize(
    "cells",
    [
        [f"0{30 + k % 60}{1_234_567 + 7919 * k}" for k in range(90)],
        [f"+49{10**8 + 77 * k}" for k in range(90)],
        [f"{4_929_123_456_789_012_345 + 10**17 * (k % 40) + 7919 * k}" for k in range(90)],
        [f"{10**20 + 12_345_678_901_234_567 * k + 1}" for k in range(1, 91)],
    ],
)
def test_numbers_of_telephones_and_accounts_are_left_out(cells: list[str], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "\n".join(f"{cell},{k}" for k, cell in enumerate(cells)))
    frame = read_with_target(open_table(tmp_path / "t.csv"), "y").frame
    assert infer_column(frame["x"], 50).column is None
    numbers = pd.Series(range(5_550_000_000, 5_550_000_090), name="phone_number")
    assert infer_column(numbers, 50).column is None
    assert kind("phone", [1, 2, 0, 1] * 20) == "number"


def test_whole_numbers_that_float64_cannot_hold_are_names() -> None:
    cards = [4_929_123_456_789_012_345, 6_011_000_990_139_424, 5_105_105_105_105_101]
    assert kind("card", cards * 20) == "category"
    assert infer_column(pd.Series(range(10**17 + 1, 10**17 + 90), name="x"), 50).column is None
    assert kind("mass", np.pi * 1e24 * DAYS) == "number"
    assert kind("created", [1_700_000_000_123_456_789 + 10**12 * k for k in range(90)]) == "number"
    assert kind("cells", [10**18 * k for k in range(1, 9)] * 9) == "number"


@pytest.mark.parametrize(("last", "left_out"), [("Media,7,3", False), ("Media,20.5,61.5", True)])
def test_a_last_row_called_media_is_a_mean_if_its_numbers_are(
    last: str, left_out: bool, tmp_path: Path
) -> None:
    lines = [
        f"{name},{k + 1},{3 * (k + 1)}" for k, name in enumerate(["Retail", "Energy", "Banks", "Food"] * 10)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["sector,x,y", *lines, last]) + "\n")
    rows = read_with_target(open_table(tmp_path / "t.csv"), "y")
    assert len(rows.frame) == 41 - left_out


def test_times_with_and_without_hours_are_not_mixed() -> None:
    assert kind("finish", ["53:38", "1:12:05", "58:20", "1:02:44"] * 15) == "category"


@pytest.mark.parametrize(
    "numbers",
    [[4.99, 9.99, 14.99, 99.99, 99.99] * 6, [149.0, 199, 249, 299, 999, 999] * 4, [1.0, 2, 3, 5, 99] * 9],
)
def test_prices_and_packs_of_nines_are_no_missing_cells(numbers: list[float]) -> None:
    remarks = infer_column(pd.Series(numbers, name="price"), 50).remarks
    assert not [remark for remark in remarks if remark.kind == "absent"]


def test_one_odd_date_does_not_turn_the_others() -> None:
    days = pd.date_range("2021-01-01", periods=99)
    cells = [*days.strftime("%d/%m/%Y"), "12/25/2023"]
    column = infer_column(pd.Series(cells, name="sold"), 50).column
    assert column is not None
    assert column.encode(pd.Series(["03/02/2021"], name="sold"))[0][0] == 33  # the 3rd of February


def test_none_is_a_class_of_severity() -> None:
    cells = pd.Series(["none", "1", "2", "3", "4"] * 30, name="severity")
    assert guess_task(cells)[0] == "classification"

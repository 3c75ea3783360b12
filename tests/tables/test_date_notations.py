"""Weeks, quarters, numbers and time zones as dates, against Python's calendar and pandas."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlayer.tables.columns import Date, Number, column_from_json, infer_column
from mlayer.tables.columns.date_cells import days_of
from mlayer.tables.columns.date_notations import date_format
from mlayer.tables.export.encode_rows import encode_rows


def learn(cells: Any, name: str = "c") -> tuple[Date, list[str]]:
    found = infer_column(pd.Series(cells, name=name), 50)
    assert isinstance(found.column, Date)
    assert column_from_json(found.column.as_json()) == found.column
    return found.column, [str(remark) for remark in found.remarks]


def days(column: Date, cells: Any) -> list[float]:
    """Days since 1970; the same by the function that is exported."""
    encoded = column.encode(pd.Series(cells))[0][:, 0]
    rows = [{"c": cell.to_pydatetime() if isinstance(cell, pd.Timestamp) else cell} for cell in cells]
    entry = column.as_json() | {"name": "c"}
    assert np.array(encode_rows([entry], rows))[:, 0] == pytest.approx(encoded, abs=1e-9)
    return [float(day) + column.origin for day in encoded]


def since_1970(day: date) -> int:
    return (day - date(1970, 1, 1)).days


WEEKS = [date(2020, 12, 21) + timedelta(weeks=k) for k in range(8)]  # over a year with 53 weeks
QUARTERS = [date(2022 + k // 4, 3 * (k % 4) + 1, 1) for k in range(9)]


@pytest.mark.parametrize(
    "form", ["{0}-W{1:02}", "{0}W{1:02}", "{0} W{1}", "W{1}/{0}", "KW {1:02} {0}", "{0}-w{1:02}"]
)
def test_weeks(form: str) -> None:
    texts = [form.format(*day.isocalendar()) for day in WEEKS]
    column, remarks = learn(texts)
    assert days(column, texts) == [since_1970(day) for day in WEEKS]
    assert any("weeks were read as their Mondays" in remark for remark in remarks)


@pytest.mark.parametrize(
    "form", ["{0}Q{1}", "{0}-Q{1}", "{0} q{1}", "Q{1} {0}", "Q{1}/{2}", "{1}Q{2}", "Q{1} '{2}"]
)
def test_quarters(form: str) -> None:
    texts = [form.format(day.year, (day.month + 2) // 3, day.year % 100) for day in QUARTERS]
    column, remarks = learn(texts)
    assert days(column, texts) == [since_1970(day) for day in QUARTERS]
    assert any("quarters were read as their first days" in remark for remark in remarks)


@pytest.mark.parametrize(
    "texts", [["Q5 2022", "Q6 2023"], ["2024-W60", "2024-W61"], ["W1", "W2"], ["Q1", "Q2"]]
)
def test_what_is_no_week_or_quarter(texts: list[str]) -> None:
    assert date_format(texts) is None


@pytest.mark.parametrize(
    ("name", "unit", "origin"),
    [
        ("date", 1.0, date(1899, 12, 30)),
        ("created_at", 86400.0, date(1970, 1, 1)),
        ("ts", 86400e3, date(1970, 1, 1)),
    ],
)
def test_numbers_that_are_dates_by_their_name(name: str, unit: float, origin: date) -> None:
    start = since_1970(date(2024, 1, 1))
    numbers = [(start + k / 2 - since_1970(origin)) * unit for k in range(30)]
    column, remarks = learn(numbers, name)
    assert days(column, numbers) == pytest.approx([start + k / 2 for k in range(30)])
    assert days(column, [str(number) for number in numbers]) == pytest.approx(
        [start + k / 2 for k in range(30)]
    )
    assert any("numbers were read as" in remark for remark in remarks)
    other = infer_column(pd.Series(numbers, name="price"), 50).column
    assert isinstance(other, Number)


def zoned() -> pd.Series:
    return pd.Series(
        pd.date_range("2024-03-20", periods=20, tz="Europe/Berlin")
    )  # the clock changes on the 31st


@pytest.mark.parametrize("as_text", [False, True])
def test_daylight_saving_time_makes_no_uneven_days(as_text: bool) -> None:
    stamps = zoned()
    cells = [stamp.isoformat() for stamp in stamps] if as_text else stamps
    column, remarks = learn(cells)
    wanted = [since_1970(stamp.date()) for stamp in stamps]
    assert days(column, list(cells)) == wanted
    assert any("the clock of the place counts" in remark for remark in remarks)
    # Later cells of one season are read in the same way.
    assert days(column, ["2024-07-01T00:00:00+02:00"]) == [since_1970(date(2024, 7, 1))]


@pytest.mark.parametrize(
    "cells",
    [
        ["2024-01-01T12:00:00Z", "2024-01-02T12:00:00Z"],
        ["2024-01-01T12:00:00+00:00", "2024-01-01T20:00:00-05:00", "2024-01-02T09:00:00+05:30"],
        ["2024-01-01T12:00:00+02:00", "2024-01-02T12:00:00+02:00"],
    ],
)
def test_other_zones_are_in_universal_time(cells: list[str]) -> None:
    column, _ = learn(cells)
    moments = [datetime.fromisoformat(cell).astimezone(UTC) for cell in cells]
    assert days(column, cells) == pytest.approx([moment.timestamp() / 86400 for moment in moments])
    stamps = pd.Series(moments).dt.tz_convert("UTC")
    assert days(learn(stamps)[0], list(stamps)) == pytest.approx(
        [moment.timestamp() / 86400 for moment in moments]
    )


def test_months_and_years_in_two_digits() -> None:
    texts = [f"{day:%b %y}" for day in QUARTERS]
    column, remarks = learn(texts)
    assert days(column, texts) == [since_1970(day) for day in QUARTERS]
    assert any("month and year" in remark for remark in remarks)


def test_periods_of_pandas() -> None:
    column, _ = learn(pd.period_range("2023Q1", periods=6, freq="Q"))
    assert column.low == 0.0
    assert column.high == since_1970(date(2024, 4, 1)) - since_1970(date(2023, 1, 1))


@pytest.mark.parametrize("cell", ["1" * 200_000, "1 " * 100_000, "Q" * 200_000, "12:34" + " " * 200_000])
def test_long_cells_are_no_dates(cell: str) -> None:
    """The pattern of dates would take hours over them: its time grows with the square of their length."""
    assert date_format([cell] * 40) is None
    january = [f"2024-01-{day:02d}" for day in range(1, 29)] * 4
    assert date_format([*january, cell]) == "ISO8601"


def test_cells_are_read_once() -> None:
    """A fit reads a column of dates to find its format, to split, to learn it and to encode it."""
    days = [
        f"{day:02d}.{month:02d}.2023 {hour:02d}:15"
        for month in (1, 2)
        for day in (9, 20)
        for hour in range(24)
    ]
    series = pd.Series(days, name="when")
    days_of.cache_clear()
    column = infer_column(series, 20).column
    assert column is not None
    read = days_of.cache_info().misses
    column.encode(series)
    assert infer_column(series, 20).column == column
    assert days_of.cache_info().misses == read

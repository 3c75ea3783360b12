"""Dates as people write them."""

from __future__ import annotations

from datetime import date

import numpy as np
import pandas as pd
import pytest

from mlayer.tables.columns import Category, Date, Number, infer_column
from mlayer.tables.columns.date_notations import as_days, date_format
from mlayer.tables.columns.durations import duration
from mlayer.tables.fit.split import drives

DAYS = [date(2023, 12, 31), date(2024, 1, 1), date(2024, 2, 29), date(2024, 7, 15), date(2025, 11, 8)]
WRITTEN = [
    "%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%d %b %Y", "%d %B %Y",
    "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%m/%d/%y", "%d.%m.%y", "%Y%m%d",
]  # fmt: skip


def _read(texts: list[str]) -> list[float]:
    found = infer_column(pd.Series(texts, name="day"), 20).column
    assert isinstance(found, Date)
    return (found.parse(pd.Series(texts)).values + found.origin).tolist()


@pytest.mark.parametrize("format", WRITTEN)
def test_notations(format: str) -> None:
    """Against Python's own calendar."""
    wanted = [(day - date(1970, 1, 1)).days for day in DAYS]
    texts = [day.strftime(format) for day in DAYS]
    if format == "%Y%m%d":
        column = pd.Series([int(text) for text in texts], name="day")
        found = infer_column(column, 20)
        assert isinstance(found.column, Date)
        assert "20241231" in str(found.remarks[0])
        assert (found.column.parse(column).values + found.column.origin).tolist() == wanted
        later = pd.Series(texts)  # a csv reader leaves it as text
        assert (found.column.parse(later).values + found.column.origin).tolist() == wanted
    else:
        assert _read(texts) == wanted


def test_several_notations_in_one_column() -> None:
    formats = ["%Y-%m-%d", "%d/%m/%Y", "%d %b %Y"]
    texts = [day.strftime(formats[k % 3]) for k, day in enumerate(DAYS * 6)]
    assert _read(texts) == [(day - date(1970, 1, 1)).days for day in DAYS * 6]
    remarks = infer_column(pd.Series(texts, name="day"), 20).remarks
    assert any("written in several ways" in str(remark) for remark in remarks)


@pytest.mark.parametrize("count", [2, 4, 5, 6])
def test_days_without_separators_among_others(count: int) -> None:
    formats = ["%Y%m%d", "%d.%m.%Y", "%d %b %Y", "%b %d, %Y", "%Y/%m/%d", "%d-%b-%Y"][:count]
    days = pd.date_range("2022-01-01", periods=120).date.tolist()
    texts = [day.strftime(formats[k % count]) for k, day in enumerate(days)]
    assert _read(texts) == [(day - date(1970, 1, 1)).days for day in days]


def test_numbers_of_eight_digits_alone_are_no_dates_of_text() -> None:
    assert date_format(["20231234", "20241231", "19991301"]) is None


def test_a_word_among_dates_is_a_missing_cell() -> None:
    texts = [day.isoformat() for day in DAYS * 10] + ["unknown", "tbd"]
    found = infer_column(pd.Series(texts, name="day"), 20)
    assert isinstance(found.column, Date)
    assert any(r.kind == "unreadable" and r.count == 2 for r in found.remarks)


@pytest.mark.parametrize(
    "texts", [["1.2.3", "10.0.4", "2.11.0"], ["A-1", "B-2", "A-1"], ["room 5", "room 7", "room 5"]]
)
def test_what_is_no_date(texts: list[str]) -> None:
    assert date_format(texts) is None
    assert isinstance(infer_column(pd.Series(texts * 4, name="x"), 20).column, Category)


def test_large_whole_numbers_are_no_dates() -> None:
    assert isinstance(infer_column(pd.Series([20241301, 20240101, 20241231], name="x"), 20).column, Number)


def test_clocks() -> None:
    texts = ["12/31/2024 11:30 PM", "01/02/2025 12:15 AM"]
    format = date_format(texts)
    assert format == "%m/%d/%Y"
    days = as_days(pd.Series(texts), format).values
    assert days[1] - days[0] == pytest.approx(1 + 45 / 1440)


def test_a_week_alone_drives() -> None:
    """Neighbors in time do not resemble each other, days a week apart do."""
    draw = np.random.default_rng(0)
    days = np.arange(280.0)
    week = np.array([0.0, 9, -9, 8, -8, 9, -9])[np.arange(280) % 7]
    assert drives(days, week + draw.normal(0, 3, 280))
    assert sum(drives(days, draw.normal(0, 3, 280)) for _ in range(100)) <= 1


def test_periods_in_words() -> None:
    assert [duration(d) for d in (365.24, 7.0, 1.0, 1 / 3)] == [
        "365.2 days",
        "7.0 days",
        "24.0 hours",
        "8.0 hours",
    ]

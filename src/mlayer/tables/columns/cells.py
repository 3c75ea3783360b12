"""Cells of a column as numbers, truth values, dates or text, whatever type they were read as.

Each function gives NaN (text: None) for a missing cell, and says how many cells it could not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.errors import ArgumentError
from mlayer.tables.columns.truth_words import TRUE_WORDS, ordered_pair
from mlayer.tables.reader.source import pandas_module

if TYPE_CHECKING:
    from pandas import Series

Floats = np.ndarray[Any, np.dtype[np.float64]]

_DAYS = ("%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y")
_WORDED = ("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y", "%d-%b-%Y", "%d-%b-%y")
_SHORT = ("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%b %Y", "%B %Y", "%b-%y", "%m/%Y")
_CLOCKS = (" %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
# Tried in this order; the first that reads the cells of the training table is kept.
DATE_FORMATS = (
    "ISO8601",
    *_DAYS,
    *(day + clock for day in _DAYS for clock in _CLOCKS),
    *_WORDED,
    *_SHORT,
)
COMPACT = "%Y%m%d"
# Between the formats of a column that is written in several ways.
AND = " | "
_MOST_FORMATS = 6
# Share of the cells that must be dates for a column to be one of dates.
_DATES = 0.9
_SAMPLE = 100  # cells on which formats are tried before all are read
_DATE_LIKE = re.compile(r"\d.*[-/.:]|\d[ -]?[a-z]{3,9}\b|\b[a-z]{3,9}[ -]\d", re.I)

# Among cells that look like dates this is one too, and not a number.
_COMPACT_LIKE = re.compile(r"(19|20)\d{6}")

# Squares of larger numbers, which every mean and deviation needs, come near the end of float64.
LARGEST = 1e100


@dataclass(frozen=True)
class Parsed:
    """Numbers of one column, NaN where missing, and what could not be read."""

    values: Floats
    unreadable: int = 0
    example: str = ""


def check_size(subject: str, values: Floats, hint: str) -> None:
    """Refuse numbers that nothing can be computed with."""
    there = np.abs(values[np.isfinite(values)])
    if len(there) and there.max() > LARGEST:
        raise ArgumentError(
            subject,
            f"of numbers up to {LARGEST:g} in size",
            f"{there.max():g} as the largest of {int((there > LARGEST).sum())} beyond that",
            hint,
        )


def is_missing(series: Series) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Missing cells; infinite numbers and empty text count."""
    missing = np.asarray(series.isna(), dtype=bool)
    if is_number(series):
        return missing | ~np.isfinite(_floats(series))
    if is_text(series):
        return missing | np.asarray(series.astype(object).map(lambda v: isinstance(v, str) and not v.strip()))
    return missing


def is_nested(series: Series) -> bool:
    """Whether cells hold lists or structures, as parquet files may have them."""
    if not pandas_module().api.types.is_object_dtype(series.dtype):
        return False
    first = series[series.notna()].head(100)
    return any(isinstance(cell, list | dict | tuple | np.ndarray) for cell in first)


def is_number(series: Series) -> bool:
    """Whether the type is numeric and not Boolean."""
    types = pandas_module().api.types
    return bool(types.is_numeric_dtype(series.dtype) and not is_boolean(series))


def is_boolean(series: Series) -> bool:
    """Whether the type is Boolean."""
    return bool(pandas_module().api.types.is_bool_dtype(series.dtype))


def is_date(series: Series) -> bool:
    """Whether the type is a date or a time stamp."""
    return bool(pandas_module().api.types.is_datetime64_any_dtype(series.dtype))


def is_text(series: Series) -> bool:
    """Whether the cells are text, or a mixture that is shown as text."""
    types = pandas_module().api.types
    dtype = series.dtype
    if isinstance(dtype, pandas_module().CategoricalDtype):
        dtype = dtype.categories.dtype
    return bool(types.is_string_dtype(dtype) or types.is_object_dtype(dtype))


def plain(series: Series) -> Series:
    """The values themselves, without pandas' categories."""
    if isinstance(series.dtype, pandas_module().CategoricalDtype):
        return series.astype(series.cat.categories.dtype)
    return series


def as_numbers(series: Series) -> Parsed:
    """Numbers; infinities are missing.

    >>> import pandas
    >>> as_numbers(pandas.Series(["1", " 2.5", "?", None]))
    Parsed(values=array([1. , 2.5, nan, nan]), unreadable=1, example='?')
    """
    series = plain(series)
    if is_number(series) or is_boolean(series):
        values = _floats(series)
        values[~np.isfinite(values)] = np.nan
        return Parsed(values)
    return parse_text(series, lambda text: _floats(pandas_module().to_numeric(text, errors="coerce")))


def as_booleans(series: Series) -> Parsed:
    """1 and 0 of true and false, yes and no, ja and nein (`truth_words.PAIRS`), 1 and 0."""
    series = plain(series)
    if is_boolean(series):
        return Parsed(_floats(series))

    def words(text: Series) -> Floats:
        numbers = {"1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}
        return _floats(text.str.lower().map(TRUE_WORDS | numbers))

    return parse_text(series, words)


def as_days(series: Series, format: str) -> Parsed:
    """Days since 1970 with their fractions, in universal time where the cells name a zone."""
    pandas = pandas_module()
    if is_date(series):
        return Parsed(_days(series))

    if is_number(series):
        series = series.astype("Int64").astype(object)

    def dates(text: Series) -> Floats:
        days = np.full(len(text), np.nan)
        for each in format.split(AND):
            unread = np.flatnonzero(np.isnan(days))
            read = pandas.to_datetime(text.iloc[unread], format=each, errors="coerce", utc=True)
            days[unread] = _days(read)
        return days

    return parse_text(series, dates)


def as_text(series: Series) -> list[str | None]:
    """Text without the spaces around it; whole numbers without ".0"."""
    series = plain(series)
    missing = is_missing(series)
    if is_number(series) and not pandas_module().api.types.is_integer_dtype(series.dtype):
        return [
            None if gone else (str(int(v)) if float(v).is_integer() else str(v))
            for v, gone in zip(series, missing, strict=True)
        ]
    return [None if gone else str(v).strip() for v, gone in zip(series, missing, strict=True)]


def boolean_words(texts: set[str]) -> bool:
    """Whether the values are both words of one of the pairs, and nothing else."""
    return ordered_pair({text.lower() for text in texts}) is not None


def date_format(texts: list[str]) -> str | None:
    """The first format that reads every text, or a few that together read nearly all; None if none does.

    >>> date_format(["2024-01-31", "28/02/2024", "3 Mar 2024"])
    'ISO8601 | %d/%m/%Y | %d %b %Y'
    """
    like = [text for text in texts if _DATE_LIKE.search(text)]
    if like and len(like) < len(texts):
        like = [text for text in texts if _DATE_LIKE.search(text) or _COMPACT_LIKE.fullmatch(text)]
    if not like or len(like) < _DATES * len(texts):
        return None
    pandas = pandas_module()
    column = pandas.Series(like, dtype=object)
    few = column.iloc[np.unique(np.linspace(0, len(like) - 1, _SAMPLE).astype(int))]
    share = {format: _share(few, format) for format in DATE_FORMATS}
    for format in [format for format in DATE_FORMATS if share[format] == 1]:
        if _share(column, format) == 1:
            return format
    chosen: list[str] = []
    rest = few
    while len(rest) and len(chosen) < _MOST_FORMATS:
        best = max((f for f in DATE_FORMATS if share[f]), key=lambda f: _share(rest, f), default=None)
        if best is None or not _share(rest, best):
            break
        chosen.append(best)
        rest = rest[np.isnan(as_days(rest, best).values)]
    format = AND.join(sorted(chosen, key=DATE_FORMATS.index))
    return format if chosen and _share(column, format) * len(like) >= _DATES * len(texts) else None


def _share(column: Series, format: str) -> float:
    """The share of the cells that the format reads."""
    return float(np.isfinite(as_days(column, format).values).mean())


def is_compact_date(series: Series) -> bool:
    """Whether whole numbers are days written as 20241231: months and days fit, years are of our time."""
    if not is_number(series):
        return False
    values = _floats(series)
    values = values[np.isfinite(values)]
    if len(values) < 2 or (values % 1).any() or values.min() < 19000101 or values.max() > 21001231:
        return False
    return _share(pandas_module().Series(values.astype(int).astype(str), dtype=object), COMPACT) == 1


def parse_text(series: Series, read: Callable[[Series], Floats]) -> Parsed:
    """The cells that are not missing, as text without spaces around it, read by ``read``."""
    missing = is_missing(series)
    text = series.astype(object).where(~missing, "").map(lambda cell: str(cell).strip())
    values = np.full(len(series), np.nan)
    there = np.flatnonzero(~missing)
    if len(there):
        values[there] = read(text.iloc[there].astype(str))
    values[~np.isfinite(values)] = np.nan
    bad = ~missing & np.isnan(values)
    example = str(text[bad].iloc[0]) if bad.any() else ""
    return Parsed(values, int(bad.sum()), example)


def _floats(series: Series) -> Floats:
    return np.array(series.astype(object).where(series.notna(), np.nan), dtype=np.float64)


def _days(series: Series) -> Floats:
    if series.dt.tz is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    # Whole days first: in nanoseconds a year such as 9999, which means "forever", does not fit.
    moments = series.to_numpy()
    days = moments.astype("datetime64[D]")
    part = (moments - days.astype(moments.dtype)) / np.timedelta64(1, "D")
    return np.where(series.isna(), np.nan, days.astype(np.int64) + part)

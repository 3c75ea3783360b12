"""Cells of a column as numbers, truth values, dates or text, whatever type they were read as.

Each function gives NaN (text: None) for a missing cell, and says how many cells it could not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.errors import ArgumentError
from mlayer.tables.columns.stand_ins import stand_ins
from mlayer.tables.columns.truth_words import TRUE_WORDS, ordered_pair
from mlayer.tables.reader.source import pandas_module

if TYPE_CHECKING:
    from pandas import Series

Floats = np.ndarray[Any, np.dtype[np.float64]]

# Squares of larger numbers, which every mean and deviation needs, come near the end of float64.
LARGEST = 1e100


@dataclass(frozen=True)
class Parsed:
    """Numbers of one column, NaN where missing, and what could not be read: the count and the texts."""

    values: Floats
    unreadable: int = 0
    example: str = ""
    unread: tuple[str, ...] = ()

    @property
    def words(self) -> int:
        """The number of cells that hold neither a number nor a word for a missing one."""
        missing = stand_ins(self.unread, self.values[np.isfinite(self.values)])
        return sum(text not in missing for text in self.unread)


def without(parsed: Parsed, absent: float) -> Parsed:
    """The same with a number that stands for a missing one as missing."""
    return replace(parsed, values=np.where(parsed.values == absent, np.nan, parsed.values))


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
        return missing | ~np.isfinite(floats(series))
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
    """The values themselves: no categories, nothing sparse; periods as dates, durations in hours."""
    pandas = pandas_module()
    if isinstance(series.dtype, pandas.CategoricalDtype):
        return series.astype(series.cat.categories.dtype)
    if isinstance(series.dtype, pandas.SparseDtype):
        return series.sparse.to_dense()
    if isinstance(series.dtype, pandas.PeriodDtype):
        return series.dt.to_timestamp()
    if pandas.api.types.is_timedelta64_dtype(series.dtype):
        return series.dt.total_seconds() / 3600
    return series


def as_numbers(series: Series) -> Parsed:
    """Numbers; infinities are missing.

    >>> import pandas
    >>> as_numbers(pandas.Series(["1", " 2.5", "?", None]))
    Parsed(values=array([1. , 2.5, nan, nan]), unreadable=1, example='?', unread=('?',))
    """
    series = plain(series)
    if is_number(series) or is_boolean(series):
        values = floats(series)
        values[~np.isfinite(values)] = np.nan
        return Parsed(values)
    return parse_text(series, lambda text: floats(pandas_module().to_numeric(text, errors="coerce")))


def as_booleans(series: Series) -> Parsed:
    """1 and 0 of true and false, yes and no, ja and nein (`truth_words.PAIRS`), 1 and 0."""
    series = plain(series)
    if is_boolean(series):
        return Parsed(floats(series))

    def words(text: Series) -> Floats:
        numbers = {"1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}
        return floats(text.str.lower().map(TRUE_WORDS | numbers))

    return parse_text(series, words)


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
    unread = tuple(text[bad])
    return Parsed(values, len(unread), unread[0] if unread else "", unread)


def floats(series: Series) -> Floats:
    return np.array(series.astype(object).where(series.notna(), np.nan), dtype=np.float64)

"""Dates as people write them, in text, as numbers, or as time stamps: read as days since 1970.

Besides the formats of `date_cells` there are the days of spreadsheets (45292) and the seconds of Unix
(1704067200). Times with a zone are in universal time, unless their offsets are those of one place in summer
and winter: then the clock of that place counts, by which its days and weeks go.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mlayer.tables.columns.cells import (
    Floats,
    Parsed,
    as_numbers,
    floats,
    is_date,
    is_number,
    parse_text,
    plain,
)
from mlayer.tables.columns.date_cells import (
    COMPACT,
    COMPACT_FORMATS,
    COMPACT_MONTH,
    DATE_FORMATS,
    ENGLISH_MONTHS,
    MONTHS,
    MONTHS_IN_WORDS,
    QUARTER,
    WEEK,
    days_of,
    present_format,
    start_of_range,
)
from mlayer.tables.reader.source import pandas_module
from mlayer.tables.remarks import Remark

if TYPE_CHECKING:
    from pandas import Series

ISO = "ISO8601"
# ISO8601 whose offsets from universal time are not used: the clock of a place with daylight saving time.
LOCAL = "ISO8601 local"
# Numbers: (the day of 0, numbers for each day, least, most), of the years 1989 to 2060 and 1980 to 2049: a
# wider range would take more measurements for dates.
EXCEL, UNIX, UNIX_MS = "spreadsheet days", "Unix seconds", "Unix milliseconds"
_COUNTED = {
    EXCEL: (-25569.0, 1.0, 32_800.0, 58_500.0),
    UNIX: (0.0, 86400.0, 3.15e8, 2.5e9),
    UNIX_MS: (0.0, 86400e3, 3.15e11, 2.5e12),
}
# Remarks for the user.
_SAID = {
    COMPACT: "whole numbers were read as days, year month day: 20241231",
    COMPACT_MONTH: "whole numbers were read as months, year month: 202412",
    EXCEL: "numbers were read as the days of a spreadsheet: 45292 is 2024-01-01",
    UNIX: "numbers were read as seconds since 1970",
    UNIX_MS: "numbers were read as milliseconds since 1970",
    WEEK: "weeks were read as their Mondays",
    QUARTER: "quarters were read as their first days",
    "%b %y": "dates were read as month and year",
    LOCAL: "the clock of the place counts, as written: the offsets are those of summer and winter",
}
# Names that say "a moment". Others only end like that: steps_per_day, sensor_data, cpu_time, phone_at.
_DAY_NAMES = re.compile(r"(.*[_ ])?(date|datum|fecha|dato|pvm)|day|jour", re.I)
_TIME_NAMES = re.compile(
    r"(.*[_ ])?(date|datum|datetime|timestamp|epoch|unix)|(unix|epoch)[_ ].*|time|ts|zeit"
    r"|(created|updated|modified|started|ended|sent|received|ordered|logged|visited|posted)[_ ]at"
    r"|(event|start|end|log|order|arrival|departure|pickup|dropoff|creation)[_ ]time",
    re.I,
)
_MONTH_NAMES = re.compile(
    r"(.*[_ ])?(date|month|period|monat|mes|mois|mese|maand|yyyymm|ym)|year[_ -]?month|jahr[_ -]?monat", re.I
)
_MINUTES_OF_A_DAY, _MONTHS_OF_A_YEAR = 1440, 12
# Between the formats of a column that is written in several ways.
AND = " | "
_MOST_FORMATS = 6
# Share of the cells that must be dates for a column to be one of dates.
_DATES = 0.9
_SAMPLE = 100  # cells on which formats are tried before all are read
_DATE_LIKE = re.compile(r"\d.*[-/.:\u5e74\ub144]|\d.*[^\W\d_]|[^\W\d_].*\d")
_ISO_LIKE = re.compile(r"(\d{4}[-/.]?\d\d|\d{8})")
_WORD = re.compile(r"[^\W\d_]+")
_OFFSET = re.compile(r"(\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)\s*(Z|[+-]\d\d(?::?\d\d)?)$", re.I)
_LONGEST = 100  # characters of a date; the time that a pattern takes grows with the square of the length
_SUMMER = 60.0  # minutes between the offsets of one place, at most

# "Jan 16" may be a month and a year or a day of a year, "1Q24" a quarter or the name of a product: what has
# two digits for the year, and how many months or quarters each year of a column has at least, on average.
_DOUBTFUL = {
    "%b %y": (re.compile(r"[^\W\d_]{3,9}[ .]*\d\d"), 3),
    QUARTER: (re.compile(r"Q[1-4][-/ ]?'?\d\d|[1-4]Q[ ']?\d\d", re.I), 2),
}
# Months in another language than English count if three of them or more are there: "Set 2020" may be a set.
_FOREIGN_MONTHS = 3
# 2010/11 is November of 2010, or the season that ends in 2011.
_SEASON = re.compile(r"(\d{4})[-/](\d\d)")

# 1.2.10 is the first of February, or a version.
_VERSION = re.compile(r"([1-9]\d?|0)\.([1-9]\d?|0)\.\d{1,2}")

# Among cells that look like dates this is one too, and not a number.
_COMPACT_LIKE = re.compile(r"(19|20)\d{6}")


def as_days(series: Series, format: str) -> Parsed:
    """Days since 1970 with their fractions; in universal time where the cells name a zone, unless LOCAL."""
    series = plain(series)
    if is_date(series):
        return Parsed(_days(series, local=format == LOCAL))
    if format in _COUNTED:
        origin, each, _, _ = _COUNTED[format]
        parsed = as_numbers(series)
        return replace(parsed, values=parsed.values / each + origin)
    if is_number(series):
        series = series.astype("Int64").astype(object)

    def dates(text: Series) -> Floats:
        days = np.full(len(text), np.nan)
        for each in format.split(AND):
            unread = np.flatnonzero(np.isnan(days))
            days[unread] = _read(text.iloc[unread], each)
        return days

    return parse_text(series, dates)


def _read(text: Series, format: str) -> Floats:
    """Days of the texts, NaN where the format does not fit."""
    if format not in (ISO, LOCAL):
        return np.array([days_of(cell, format) for cell in text], dtype=np.float64)
    if format == LOCAL:
        text = text.str.replace(_OFFSET, r"\1", regex=True)
    return _days(pandas_module().to_datetime(text, format=ISO, errors="coerce", utc=True))


def is_format(format: str) -> bool:
    """Whether a model file may name this format."""
    known = (ISO, LOCAL, *DATE_FORMATS, *COMPACT_FORMATS, *_COUNTED)
    return format in known or present_format(format) in DATE_FORMATS


def date_notation(name: str, series: Series, texts: list[str]) -> str | None:
    """The format of a column of dates; None if it is of another kind.

    Args:
        name: of the column: numbers such as 45292 are dates only where it says so.
        series: its cells.
        texts: those that are not missing, as text.
    """
    if is_number(series):
        return number_notation(name, series)
    if is_date(series):
        return LOCAL if _are_of_one_place(_offsets_of_stamps(series)) else ISO
    format = date_format(texts)
    return LOCAL if format == ISO and _are_of_one_place(_offsets_of_texts(texts)) else format


def date_remarks(name: str, texts: list[str], format: str) -> list[Remark]:
    """Remarks about how dates were read."""
    ranges = [text for text in texts if start_of_range(text) != text]
    several, one = (
        "cells are ranges, which count as their start",
        "cell is a range, which counts as its start",
    )
    found = [Remark("date", name, len(ranges), several, example=ranges[0], one=one)] if ranges else []
    said = [_SAID.get(format, "")]
    if "%m/%d" in format:
        said.append("dates were read as month/day/year; write them as 2024-12-31 to be sure")
    if AND in format:
        said.append(f"dates are written in several ways, read as {format.replace(AND, ', ')}")
    return found + [Remark("date", name, 0, text) for text in said if text]


def version_remarks(name: str, texts: list[str]) -> list[Remark]:
    """A remark about cells that might have been dates."""
    said = "cells are taken as names, such as versions; write dates as 2010-02-01"
    return [Remark("ambiguous", name, 0, said, example=texts[0])] if _are_versions(texts) else []


def _are_of_one_place(offsets: set[float]) -> bool:
    """Whether there are two offsets, in minutes, as in summer and winter."""
    return len(offsets) == 2 and max(offsets) - min(offsets) <= _SUMMER


def _offsets_of_stamps(series: Series) -> set[float]:
    if series.dt.tz is None:
        return set()
    known = series.dropna()
    apart = known.dt.tz_localize(None) - known.dt.tz_convert("UTC").dt.tz_localize(None)
    return set(apart.dt.total_seconds().unique() / 60)


def _offsets_of_texts(texts: list[str]) -> set[float]:
    """Minutes from universal time; none if a text has no offset."""
    result = set()
    for text in texts:
        found = _OFFSET.search(text)
        if found is None:
            return set()
        sign = found[2].upper()
        digits = sign[1:].replace(":", "").ljust(4, "0")
        minutes = 0.0 if sign == "Z" else 60.0 * int(digits[:2]) + int(digits[2:])
        result.add(-minutes if sign[0] == "-" else minutes)
    return result


def number_notation(name: str, series: Series) -> str | None:
    """The format of numbers that are dates; None if they are numbers."""
    if not is_number(series):
        return None
    if (compact := _compact(series)) is not None and (
        compact != COMPACT_MONTH or _MONTH_NAMES.fullmatch(name.strip())
    ):
        return compact
    says_day, says_time = (names.fullmatch(name.strip()) for names in (_DAY_NAMES, _TIME_NAMES))
    if not says_day and not says_time:
        return None
    values = floats(series)
    values = values[np.isfinite(values)]
    if len(np.unique(values)) < 2:
        return None
    for format, (_, _, least, most) in _COUNTED.items():
        named = says_day and _are_moments(values) if format == EXCEL else says_time
        if named and least <= values.min() and values.max() <= most:
            return format
    return None


def _are_moments(days: Floats) -> bool:
    """Whether the fractions of days are times by the minute; those of measurements are not.

    >>> _are_moments(np.array([45292.0, 45292.25])), _are_moments(np.array([45292.0, 45292.37]))
    (True, False)
    """
    minutes = days * _MINUTES_OF_A_DAY
    return bool((np.abs(minutes - minutes.round()) < 0.01).all())


def date_format(texts: list[str]) -> str | None:
    """The first format that reads every text, or a few that together read nearly all; None if none does.

    >>> date_format(["2024-01-31", "28/02/2024", "3 Mar 2024"])
    'ISO8601 | %d/%m/%Y | %d %b %Y'
    """
    short = [text for text in texts if len(text) <= _LONGEST]
    like = [text for text in short if _DATE_LIKE.search(text)]
    if like and len(like) < len(texts):
        like = [text for text in short if _DATE_LIKE.search(text) or _COMPACT_LIKE.fullmatch(text)]
    if not like or len(like) < _DATES * len(texts) or _are_seasons(like) or _are_versions(like):
        return None
    pandas = pandas_module()
    column = pandas.Series(like, dtype=object)
    few = column.iloc[np.unique(np.linspace(0, len(like) - 1, _SAMPLE).astype(int))]
    formats = [
        format
        for format in DATE_FORMATS
        if (format not in _DOUBTFUL or _are_years(like, *_DOUBTFUL[format]))
        and (format not in MONTHS_IN_WORDS or _are_months(like))
    ]
    if any(_ISO_LIKE.match(text) for text in few):
        formats.insert(0, ISO)
    share = {format: _share(few, format) for format in formats}
    for format in [format for format in formats if share[format] == 1]:
        if _share(column, format) == 1:
            return format
    chosen: list[str] = []
    rest = few
    while len(rest) and len(chosen) < _MOST_FORMATS:
        best = max((f for f in formats if share[f]), key=lambda f: _share(rest, f), default=None)
        if best is None or not _share(rest, best):
            break
        chosen.append(best)
        rest = rest[np.isnan(as_days(rest, best).values)]
    format = AND.join(chosen)  # the most frequent first: one 12/25/2023 makes no other date month/day
    return format if chosen and _share(column, format) * len(like) >= _DATES * len(texts) else None


def _are_years(texts: list[str], pattern: re.Pattern[str], fewest: int) -> bool:
    """Whether two digits at the end are years: they follow each other, each with several months.

    >>> month_and_number = _DOUBTFUL["%b %y"][0]
    >>> _are_years([f"{month} {year}" for year in (16, 17) for month in ("Jan", "May")], month_and_number, 2)
    True
    >>> _are_years(["Jan 05", "Feb 17", "Mar 29"], month_and_number, 2)
    False
    """
    different = {text for text in texts if pattern.fullmatch(text)}
    numbers = {int(text[-2:]) for text in different}
    return not numbers or (
        len(different) >= fewest * len(numbers) and max(numbers) - min(numbers) < len(numbers)
    )


def _are_months(texts: list[str]) -> bool:
    """Whether the words beside years are months: in English, or several of another language.

    >>> _are_months(["May 2020"]), _are_months(["Set 2020", "Set 2021"])
    (True, False)
    """
    words = {word.casefold() for text in texts for word in _WORD.findall(text)}
    return words <= ENGLISH_MONTHS or len({MONTHS.get(word) for word in words}) >= _FOREIGN_MONTHS


def _are_seasons(texts: list[str]) -> bool:
    """Whether each text names a year and the next one, as 2023/24 does.

    >>> _are_seasons(["2010/11", "2011/12"]), _are_seasons(["2010/11", "2010/12"])
    (True, False)
    """
    found = [_SEASON.fullmatch(text) for text in set(texts)]
    return all(each is not None and (int(each[1]) + 1) % 100 == int(each[2]) for each in found)


def _are_versions(texts: list[str]) -> bool:
    """Whether three numbers with points may be versions: none has a zero in front, the first is no late day.

    >>> _are_versions(["1.2.10", "1.10.3"]), _are_versions(["1.2.10", "28.2.10"]), _are_versions(["01.02.10"])
    (True, False, False)
    """
    found = [_VERSION.fullmatch(text) for text in set(texts)]
    return bool(found) and all(each is not None and int(each[1]) <= _MONTHS_OF_A_YEAR for each in found)


def _share(column: Series, format: str) -> float:
    """The share of the cells that the format reads."""
    return float(np.isfinite(as_days(column, format).values).mean())


def _compact(series: Series) -> str | None:
    """The format of whole numbers that are moments in digits, such as 20241231 or 202412312359.

    Years are of our time, months, days, hours and minutes fit.
    """
    values = floats(series)
    values = values[np.isfinite(values)]
    if len(values) < 2 or (values % 1).any() or values.min() <= 0:
        return None
    texts = [str(int(value)) for value in (values.min(), values.max())]
    if len(texts[0]) != len(texts[1]) or texts[0][:4] < "1900" or texts[1][:4] > "2100":
        return None
    lengths = {6: COMPACT_MONTH, 8: COMPACT, 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
    format = lengths.get(len(texts[0]))
    if format is None or any(np.isnan(days_of(str(int(value)), format)) for value in np.unique(values)):
        return None
    return format


def _days(series: Series, local: bool = False) -> Floats:
    if series.dt.tz is not None:
        series = (series if local else series.dt.tz_convert("UTC")).dt.tz_localize(None)
    # Whole days first: in nanoseconds a year such as 9999, which means "forever", does not fit.
    moments = series.to_numpy()
    days = moments.astype("datetime64[D]")
    part = (moments - days.astype(moments.dtype)) / np.timedelta64(1, "D")
    return np.where(series.isna(), np.nan, days.astype(np.int64) + part)

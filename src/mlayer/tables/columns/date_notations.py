"""Dates as people write them, in text, as numbers, or as time stamps: read as days since 1970.

Besides the formats of `strptime` there are weeks (2024-W05), quarters (2024Q1, Q1 2024), the days of
spreadsheets (45292) and the seconds of Unix (1704067200). Times with a zone are in universal time, unless
their offsets are those of one place in summer and winter: then the clock of that place counts, by which its
days and weeks go.
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
from mlayer.tables.reader.source import pandas_module

if TYPE_CHECKING:
    from pandas import Series

_DAYS = ("%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y")
_WORDED = ("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%B %d %Y", "%d-%b-%Y", "%d-%b-%y")
_SHORT = ("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%b %Y", "%B %Y", "%b-%y", "%b %y", "%B %y", "%m/%Y")
_CLOCKS = (" %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
ISO, WEEK, QUARTER = "ISO8601", "ISO week", "quarter"
# Tried in this order; the first that reads the cells of the training table is kept.
DATE_FORMATS = (
    ISO,
    *_DAYS,
    *(day + clock for day in _DAYS for clock in _CLOCKS),
    *_WORDED,
    *_SHORT,
    WEEK,
    QUARTER,
)
COMPACT = "%Y%m%d"
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
FORMATS_OF_MODELS = (*DATE_FORMATS, COMPACT, LOCAL, *_COUNTED)
# Remarks for the user.
SAID = {
    COMPACT: "whole numbers were read as days, year month day: 20241231",
    EXCEL: "numbers were read as the days of a spreadsheet: 45292 is 2024-01-01",
    UNIX: "numbers were read as seconds since 1970",
    UNIX_MS: "numbers were read as milliseconds since 1970",
    WEEK: "weeks were read as their Mondays",
    QUARTER: "quarters were read as their first days",
    "%b %y": "dates were read as month and year",
    "%B %y": "dates were read as month and year",
    LOCAL: "the clock of the place counts, as written: the offsets are those of summer and winter",
}
# Names that say "a moment". Others only end like that: steps_per_day, sensor_data, cpu_time, phone_at.
_DAY_NAMES = re.compile(r"(.*[_ ])?(date|datum|fecha|dato|pvm)|day|tag|data|jour", re.I)
_TIME_NAMES = re.compile(
    r"(.*[_ ])?(date|datum|datetime|timestamp|epoch|unix)|(unix|epoch)[_ ].*|time|ts|zeit"
    r"|(created|updated|modified|started|ended|sent|received|ordered|logged|visited|posted)[_ ]at"
    r"|(event|start|end|log|order|arrival|departure|pickup|dropoff|creation)[_ ]time",
    re.I,
)
_MINUTES_OF_A_DAY = 1440
# Between the formats of a column that is written in several ways.
AND = " | "
_MOST_FORMATS = 6
# Share of the cells that must be dates for a column to be one of dates.
_DATES = 0.9
_SAMPLE = 100  # cells on which formats are tried before all are read
_DATE_LIKE = re.compile(
    r"\d.*[-/.:]|\d[ -]?[a-z]{3,9}\b|\b[a-z]{3,9}[ -]\d|\bQ[1-4]\b|\d ?Q[1-4]|[1-4]Q\d|W ?\d", re.I
)
_WEEK = re.compile(
    r"(?P<year>(?:19|20)\d\d)[-/ ]?(?:W|KW|CW|wk) ?(?P<week>\d{1,2})"
    r"|(?:W|KW|CW|wk) ?(?P<week2>\d{1,2})[-/ ](?P<year2>(?:19|20)\d\d)",
    re.I,
)
_QUARTER = re.compile(
    r"(?P<year>(?:19|20)\d\d)[-/ ]?Q(?P<q>[1-4])|Q(?P<q2>[1-4])[-/ ]?'?(?P<year2>(?:19|20)\d\d|\d\d)"
    r"|(?P<q3>[1-4])Q[ ']?(?P<year3>(?:19|20)\d\d|\d\d)",
    re.I,
)
_OFFSET = re.compile(r"(\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)\s*(Z|[+-]\d\d(?::?\d\d)?)$", re.I)
_LONGEST = 100  # characters of a date; the time that a pattern takes grows with the square of the length
_SUMMER = 60.0  # minutes between the offsets of one place, at most

# "Jan 16" may be a month and a year or a day of a year, "1Q24" a quarter or the name of a product: what has
# two digits for the year, and how many months or quarters each year of a column has at least, on average.
_MONTH_AND_NUMBER = re.compile(r"[a-z]{3,9} \d\d", re.I)
_DOUBTFUL = {
    "%b %y": (_MONTH_AND_NUMBER, 3),
    "%B %y": (_MONTH_AND_NUMBER, 3),
    QUARTER: (re.compile(r"Q[1-4][-/ ]?'?\d\d|[1-4]Q[ ']?\d\d", re.I), 2),
}

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
            days[unread] = _days(_read(text.iloc[unread], each))
        return days

    return parse_text(series, dates)


def _read(text: Series, format: str) -> Series:
    """Time stamps of the texts, none where the format does not fit."""
    if format == LOCAL:
        text, format = text.str.replace(_OFFSET, r"\1", regex=True), ISO
    elif format == WEEK:
        text, format = text.map(_monday), "%G-W%V-%u"
    elif format == QUARTER:
        text, format = text.map(_first_of_quarter), "%Y-%m-%d"
    return pandas_module().to_datetime(text, format=format, errors="coerce", utc=True)


def _monday(text: str) -> str:
    """The first day of a week, for `strptime`.

    >>> _monday("2024-W5"), _monday("KW 05/2024"), _monday("2024")
    ('2024-W05-1', '2024-W05-1', '')
    """
    found = _WEEK.fullmatch(text)
    return f"{found['year'] or found['year2']}-W{int(found['week'] or found['week2']):02}-1" if found else ""


def _first_of_quarter(text: str) -> str:
    """The first day of a quarter; of a year in two digits, in this century.

    >>> _first_of_quarter("2024Q2"), _first_of_quarter("Q4 '23"), _first_of_quarter("Q5 2023")
    ('2024-04-01', '2023-10-01', '')
    """
    found = _QUARTER.fullmatch(text)
    if found is None:
        return ""
    year = found["year"] or found["year2"] or found["year3"]
    number = int(found["q"] or found["q2"] or found["q3"])
    return f"{year if len(year) == 4 else '20' + year}-{3 * number - 2:02}-01"


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
    if is_compact_date(series):
        return COMPACT
    if not is_number(series):
        return None
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
    if not like or len(like) < _DATES * len(texts):
        return None
    pandas = pandas_module()
    column = pandas.Series(like, dtype=object)
    few = column.iloc[np.unique(np.linspace(0, len(like) - 1, _SAMPLE).astype(int))]
    formats = [
        format for format in DATE_FORMATS if format not in _DOUBTFUL or _are_years(like, *_DOUBTFUL[format])
    ]
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
    format = AND.join(sorted(chosen, key=DATE_FORMATS.index))
    return format if chosen and _share(column, format) * len(like) >= _DATES * len(texts) else None


def _are_years(texts: list[str], pattern: re.Pattern[str], fewest: int) -> bool:
    """Whether two digits at the end are years: they follow each other, each with several months.

    >>> _are_years([f"{month} {year}" for year in (16, 17) for month in ("Jan", "May")], _MONTH_AND_NUMBER, 2)
    True
    >>> _are_years(["Jan 05", "Feb 17", "Mar 29"], _MONTH_AND_NUMBER, 2)
    False
    """
    different = {text for text in texts if pattern.fullmatch(text)}
    numbers = {int(text[-2:]) for text in different}
    return not numbers or (
        len(different) >= fewest * len(numbers) and max(numbers) - min(numbers) < len(numbers)
    )


def _share(column: Series, format: str) -> float:
    """The share of the cells that the format reads."""
    return float(np.isfinite(as_days(column, format).values).mean())


def is_compact_date(series: Series) -> bool:
    """Whether whole numbers are days written as 20241231: months and days fit, years are of our time."""
    if not is_number(series):
        return False
    values = floats(series)
    values = values[np.isfinite(values)]
    if len(values) < 2 or (values % 1).any() or values.min() < 19000101 or values.max() > 21001231:
        return False
    return _share(pandas_module().Series(values.astype(int).astype(str), dtype=object), COMPACT) == 1


def _days(series: Series, local: bool = False) -> Floats:
    if series.dt.tz is not None:
        series = (series if local else series.dt.tz_convert("UTC")).dt.tz_localize(None)
    # Whole days first: in nanoseconds a year such as 9999, which means "forever", does not fit.
    moments = series.to_numpy()
    days = moments.astype("datetime64[D]")
    part = (moments - days.astype(moments.dtype)) / np.timedelta64(1, "D")
    return np.where(series.isna(), np.nan, days.astype(np.int64) + part)

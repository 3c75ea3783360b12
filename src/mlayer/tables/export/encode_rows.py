"""Rows of a raw table as the numbers that a fitted model takes, with Python's own library only.

`mlayer export` writes this file, behind those that it imports from mlayer and followed by the columns of a
model, next to the ONNX file. It does what `mlayer predict` does to cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from mlayer.tables.columns.amount_cells import amount
from mlayer.tables.columns.date_cells import days_of
from mlayer.tables.columns.durations import CLOCK, hours
from mlayer.tables.columns.truth_words import TRUE_WORDS
from mlayer.tables.reader.missing_words import MISSING_WORDS


def encode_rows(
    columns: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]], nameless: int = 0
) -> list[list[float]]:
    """One list of numbers for each row.

    Args:
        columns: of the model, as its file has them.
        rows: dictionaries from the names of columns to cells: text, numbers, dates, or None for missing.
        nameless: how many columns without a name the table of the fit had.

    Raises:
        KeyError: a column is in none of the rows, or may be another one of the same name.
    """
    kinds = {"number": _measured, "truth value": _measured, "date": _measured, "category": _category}
    header = list(getattr(rows, "fieldnames", None) or ())  # of csv.DictReader
    columns, rows = list(columns), list(rows)
    there = dict.fromkeys(name for row in rows for name in row)
    names = [_name(column["name"], there) if there else column["name"] for column in columns]
    without = [name for name in there if not _shown(name)]
    for name in names:
        lost = header.count(name) > 1 if header else name in without and len(without) < nameless
        if lost:
            raise KeyError(
                f"several columns are named {name!r}, of which csv.DictReader keeps the last: give it "
                "fieldnames that differ, for the third column without a name 'Unnamed: 2'"
            )
    return [
        [
            value
            for column, name in zip(columns, names, strict=True)
            for value in kinds[column["kind"]](column, row.get(name))
        ]
        for row in rows
    ]


def limited(
    columns: Iterable[Mapping[str, Any]],
    limits: Mapping[str, float],
    numbers: Iterable[Sequence[float]],
    values: Iterable[float],
) -> list[float]:
    """Values of the layer as `mlayer predict` gives them: growth comes to an end, and no value goes astray.

    Args:
        columns: of the model, as its file has them.
        limits: of the model, as :func:`limits_of` of `mlayer.tables.export.onnx_table` has them.
        numbers: the rows as :func:`encode_rows` encodes them.
        values: of the layer, one for each row.
    """
    widths = [1 + column["flag"] if "flag" in column else len(_category(column, None)) for column in columns]
    starts = [sum(widths[:place]) for place in range(len(widths))]
    parts = [(column, start) for column, start in zip(columns, starts, strict=True) if "low" in column]
    result = []
    for row, value in zip(numbers, values, strict=True):
        beyond = 0.0
        for column, start in parts:
            low, high = float(column["low"]), float(column["high"])
            away = max(low - row[start], row[start] - high, 0.0)
            beyond = max(beyond, away / max(high - low, 2.0**-1022))
        slowed = value * _damping(limits, row[int(limits["place"])]) if "rate" in limits else value
        result.append(_within(limits, beyond, slowed) if "least" in limits else slowed)
    return result


def _damping(limits: Mapping[str, float], day: float) -> float:
    """The factor of a forecast for a day, counted from the origin of its column, as growth slows down."""
    after = limits["after"]
    late = max(day - limits["last"] - after, 0.0)
    return math.exp(-limits["rate"] * (late + after * math.expm1(-late / after)))


def _within(limits: Mapping[str, float], beyond: float, value: float) -> float:
    """The value no further from the targets of the fit than a row so far beyond its rows may be."""
    exponent = limits["degree"] * math.log1p(beyond)
    extent = limits["most"] - limits["least"]
    more = extent * math.expm1(exponent) if exponent < 700.0 else math.inf
    slack = limits["slack"] * extent
    low = limits["least"] - slack
    if limits["least"] >= 0:
        low = max(low, 0.0)
    return min(max(value, low - more), limits["most"] + slack + more) if math.isfinite(value) else math.nan


def _name(name: str, there: Mapping[str, Any]) -> str:
    """The name of a column in the rows: that of the model, or one with spaces or a byte order mark around.

    A column without a name, or with spaces and tabs only, is "Unnamed: 6" in a model, if it is the seventh.
    """
    if name in there:
        return name
    for place, other in enumerate(there):
        if (_shown(other) or f"Unnamed: {place}") == name:
            return other
    raise KeyError(f"no row has the column {name!r}; there are: {', '.join(map(repr, list(there)[:20]))}")


def _shown(name: Any) -> str:
    return str(name).strip("\ufeff").strip().strip('"').strip()


def _text(cell: Any) -> str:
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return ""
    return str(cell).strip()


def _measured(column: Mapping[str, Any], cell: Any) -> list[float]:
    read = {"number": _number, "truth value": _truth, "date": _days}[column["kind"]]
    value = read(column, cell) if _text(cell) else math.nan
    missing = not math.isfinite(value)
    value = float(column["fill"]) if missing else value
    least, most = column.get("least", 0.0), column.get("most", 0.0)
    if least < most:
        value = min(max(value, least), most)
    if column.get("hold"):
        value = min(max(value, column["low"]), column["high"])
    return [value, float(missing)] if column["flag"] else [value]


def _number(column: Mapping[str, Any], cell: Any) -> float:
    decimal = column.get("decimal")
    if decimal == CLOCK and not isinstance(cell, int | float):
        return hours(_text(cell), 1)
    if decimal and not isinstance(cell, int | float):
        value = amount(_text(cell), decimal, column.get("unit", ""))
    else:
        try:
            value = _float(cell)
        except ValueError:
            return math.nan
    return math.nan if column.get("absent") and value == column["absent"] else value


def _float(cell: Any) -> float:
    """The number in a cell; not what Python alone takes for one: 1_000, or digits of other scripts."""
    text = _text(cell)
    if isinstance(cell, str) and ("_" in text or not text.isascii()):
        raise ValueError(text)
    return float(cell)


def _truth(_: Mapping[str, Any], cell: Any) -> float:
    word = _text(cell).lower()
    return {"1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}.get(word, TRUE_WORDS.get(word, math.nan))


def _days(column: Mapping[str, Any], cell: Any) -> float:
    formats, origin = column["format"].split(" | "), float(column["origin"])
    if isinstance(cell, date):
        moment = cell if isinstance(cell, datetime) else datetime(cell.year, cell.month, cell.day)
        return _since_1970_of(moment, local=formats == ["ISO8601 local"]) - origin
    for format in formats:
        days = _days_in(_text(cell), format)
        if math.isfinite(days):
            return days - origin
    return math.nan


def _days_in(text: str, format: str) -> float:
    """Days since 1970 of a text; NaN if the format does not fit."""
    counted = {
        "spreadsheet days": (1.0, -25569.0),
        "Unix seconds": (86400.0, 0.0),
        "Unix milliseconds": (86400e3, 0.0),
    }
    try:
        if format in counted:
            each, start = counted[format]
            return float(text) / each + start
        if format not in ("ISO8601", "ISO8601 local"):
            return days_of(text, format)
        if "W" in text:  # a week, which pandas does not read
            return math.nan
        return _since_1970_of(datetime.fromisoformat(text), local=format == "ISO8601 local")
    except ValueError:
        return days_of(f"{text}-01" if len(text) == 4 and text.isdecimal() else text, "%Y-%m")


def _since_1970_of(moment: datetime, *, local: bool) -> float:
    """Days since 1970, in universal time, or by the clock of the place."""
    moment = moment.replace(tzinfo=UTC) if local or moment.tzinfo is None else moment.astimezone(UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() / 86400


def _category(column: Mapping[str, Any], cell: Any) -> list[float]:
    names, other, missing = list(column["categories"]), bool(column["other"]), bool(column["missing"])
    result = [0.0] * (len(names) + other + missing)
    text = _text(cell)
    if text in MISSING_WORDS and text not in names:
        text = ""
    try:
        number = _float(text)
        if number.is_integer() and (column.get("numbers") or isinstance(cell, float)):
            text = str(int(number))
    except ValueError:
        pass
    folded = [" ".join(name.casefold().split()) for name in (*names, text)]
    if not text:
        if missing:
            result[-1] = 1.0
    elif text in names:
        result[names.index(text)] = 1.0
    elif folded[-1] in folded[:-1]:
        result[folded.index(folded[-1])] = 1.0
    elif other:
        result[len(names)] = 1.0
    return result

"""Rows of a raw table as the numbers that a fitted model takes, with Python's own library only.

`mlayer export` writes this file, followed by the columns of a model, next to the ONNX file. It does what
`mlayer predict` does to cells, except that units and currencies are not compared with those of the fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any

# As mlayer.tables.columns.truth_words has them; this file needs nothing of mlayer.
# fmt: off
_TRUE = {
    "1", "1.0", "ano", "da", "evet", "igen", "j", "ja", "kyll\xe4", "o", "on", "oui", "s", "si", "sim",
    "s\xec", "s\xed", "t", "tak", "true", "v", "verdadeiro", "verdadero", "vero", "vrai", "wahr", "y",
    "yes", "\xe1no", "\u03bd\u03b1\u03b9", "\u0434\u0430", "\u0442\u0430\u043a", "\u306f\u3044",
    "\u662f", "\uc608",
}
_FALSE = {
    "0", "0.0", "ei", "f", "falsch", "false", "falso", "faux", "hayir", "hay\u0131r", "n", "nao", "ne",
    "nee", "nei", "nein", "nej", "nem", "nie", "no", "non", "nu", "n\xe3o", "off", "\u03cc\u03c7\u03b9",
    "\u043d\u0435\u0442", "\u043d\u0456", "\u3044\u3044\u3048", "\u5426", "\uc544\ub2c8\uc694",
}
# fmt: on


def encode_rows(columns: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> list[list[float]]:
    """One list of numbers for each row.

    Args:
        columns: of the model, as its file has them.
        rows: dictionaries from the names of columns to cells: text, numbers, dates, or None for missing.

    Raises:
        KeyError: a column is in none of the rows.
    """
    kinds = {"number": _measured, "truth value": _measured, "date": _measured, "category": _category}
    columns, rows = list(columns), list(rows)
    there = dict.fromkeys(name for row in rows for name in row)
    names = [_name(column["name"], there) if there else column["name"] for column in columns]
    return [
        [
            value
            for column, name in zip(columns, names, strict=True)
            for value in kinds[column["kind"]](column, row.get(name))
        ]
        for row in rows
    ]


def _name(name: str, there: Mapping[str, Any]) -> str:
    """The name of a column in the rows: that of the model, or one with spaces or a byte order mark around."""
    if name in there:
        return name
    for other in there:
        if str(other).strip("\ufeff").strip().strip('"') == name:
            return other
    raise KeyError(f"no row has the column {name!r}; there are: {', '.join(map(repr, list(there)[:20]))}")


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
    try:
        if not column.get("decimal") or isinstance(cell, int | float):
            return float(cell)
        decimal = column["decimal"]
        if decimal == ":":
            return _hours(_text(cell))
        found = re.search(r"[\d.,][\d.,'\s\u2019\u00a0\u202f\u2009]*", str(cell))
        digits = re.sub(r"[^\d.,]", "", found[0]).rstrip(".,") if found else ""
        digits = digits.replace("." if decimal == "," else ",", "").replace(decimal, ".")
        negative = str(cell).strip().startswith("(") or any(sign in str(cell) for sign in "-\u2212")
        return -float(digits) if negative else float(digits)
    except ValueError:
        return math.nan


def _hours(text: str) -> float:
    """Hours of "2 days 1:30:00", "8:30" or "8:30 pm"."""
    found = re.fullmatch(
        r"(-|\u2212)?(?:(\d{1,5})\s*d(?:ays?)?,?\s*)?(\d{1,5}):([0-5]\d)(?::([0-5]\d(?:[.,]\d{1,9})?))?"
        r"(?:\s*([ap])\.?m\.?)?",
        text,
        re.IGNORECASE,
    )
    if found is None:
        return math.nan
    minus, days, hours, minutes, seconds, half = found.groups()
    whole = float(hours)
    if half:
        if days or not 1 <= whole <= 12:
            return math.nan
        whole = whole % 12 + 12 * (half in "pP")
    value = 24 * float(days or 0) + whole + float(minutes) / 60
    value += float((seconds or "0").replace(",", ".")) / 3600
    return -value if minus else value


def _truth(_: Mapping[str, Any], cell: Any) -> float:
    word = _text(cell).lower()
    return 1.0 if word in _TRUE else 0.0 if word in _FALSE else math.nan


def _days(column: Mapping[str, Any], cell: Any) -> float:
    moment = cell if isinstance(cell, datetime) else None
    if moment is None and isinstance(cell, date):
        moment = datetime(cell.year, cell.month, cell.day)
    counted = {
        "spreadsheet days": (1.0, -25569),
        "Unix seconds": (86400.0, 0),
        "Unix milliseconds": (86400e3, 0),
    }
    if moment is None and column["format"] in counted:
        each, start = counted[column["format"]]
        try:
            return float(_text(cell)) / each + start - float(column["origin"])
        except ValueError:
            return math.nan
    for format in [] if moment else column["format"].split(" | "):
        try:
            moment = _moment(_text(cell), format)
            break
        except ValueError:
            continue
    if moment is None:
        try:
            moment = datetime.strptime(_text(cell), "%Y-%m")
        except ValueError:
            return math.nan
    if column["format"] == "ISO8601 local":
        moment = moment.replace(tzinfo=None)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() / 86400 - float(column["origin"])


def _moment(text: str, format: str) -> datetime:
    """The date of a text; ValueError if the format does not fit."""
    if format in ("ISO8601", "ISO8601 local"):
        return datetime.fromisoformat(text)
    if format == "ISO week":
        year, week = r"(\d{4})", r"(?:W|KW|CW|wk) ?(\d{1,2})"
        if found := re.fullmatch(f"{year}[-/ ]?{week}", text, re.I):
            return datetime.fromisocalendar(int(found[1]), int(found[2]), 1)
        if found := re.fullmatch(f"{week}[-/ ]{year}", text, re.I):
            return datetime.fromisocalendar(int(found[2]), int(found[1]), 1)
    if format == "quarter":
        if found := re.fullmatch(r"(\d{4})[-/ ]?Q([1-4])", text, re.I):
            return datetime(int(found[1]), 3 * int(found[2]) - 2, 1)
        if found := re.fullmatch(r"(?:Q([1-4])[-/ ]?'?|([1-4])Q[ ']?)(\d{4}|\d\d)", text, re.I):
            century = 2000 if len(found[3]) == 2 else 0
            return datetime(century + int(found[3]), 3 * int(found[1] or found[2]) - 2, 1)
    return datetime.strptime(text, format)


def _category(column: Mapping[str, Any], cell: Any) -> list[float]:
    names, other, missing = list(column["categories"]), bool(column["other"]), bool(column["missing"])
    result = [0.0] * (len(names) + other + missing)
    text = _text(cell)
    try:
        number = float(text)
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

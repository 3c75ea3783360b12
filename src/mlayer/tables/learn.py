"""From a column of the training table to its kind, or to the reason why it is left out."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from mlayer.tables.columns import Boolean, Category, Column, Date, Number
from mlayer.tables.remarks import Remark
from mlayer.tables.source import pandas_module
from mlayer.tables.values import (
    Parsed,
    as_booleans,
    as_days,
    as_numbers,
    as_text,
    boolean_words,
    check_size,
    date_format,
    is_date,
    is_missing,
    is_number,
    is_text,
    plain,
)

if TYPE_CHECKING:
    from pandas import Series

_NUMBERS = 0.9  # share of a text column that must be numbers for it to be one of numbers
_DISTINCT = 0.9  # share of distinct cells from which text is names, not categories
_FEW = 10  # rows below which "all distinct" says nothing
_RARE = 2  # rows that a category needs to stand alone
_KEPT = 1000  # names of rare categories that are remembered
_ID_NAMES = re.compile(
    r"^(unnamed: \d+|index|row|row_?(id|num|number|nr|no)|id|uuid|guid|key|.*[_ ]id|level_\d)$", re.I
)


def learn_column(series: Series, max_categories: int) -> tuple[Column | None, list[Remark]]:
    """The column of ``series``, or None and the reason."""
    name, series = str(series.name), plain(series)
    missing = is_missing(series)
    if missing.all():
        return _drop(name, "all cells are missing")
    if pandas_module().api.types.is_bool_dtype(series.dtype):
        return _measured(Boolean, name, as_booleans(series))
    if is_number(series):
        return _number(name, as_numbers(series), bool(np.asarray(series.notna())[missing].any()))
    if is_date(series):
        return _measured(Date, name, as_days(series, "ISO8601"))
    if not is_text(series):
        return _drop(name, f"cells of type {series.dtype} are not supported")
    if any(isinstance(cell, list | dict | tuple | np.ndarray) for cell in series[~missing].head(100)):
        return _drop(name, "cells that hold lists are not supported")
    texts = [text for text in as_text(series) if text is not None]
    distinct = set(texts)
    if len(distinct) == 1 and not missing.any():
        return _drop(name, f"constant: every cell is {texts[0]!r}")
    if boolean_words(distinct):
        return _measured(Boolean, name, as_booleans(series))
    numbers = as_numbers(series)
    if numbers.unreadable <= (1 - _NUMBERS) * len(texts) and np.isfinite(numbers.values).any():
        return _number(name, numbers, False)
    format = date_format(texts)
    if format is not None:
        return _measured(Date, name, as_days(series, format), format=format)
    if len(texts) >= _FEW and len(distinct) >= _DISTINCT * len(texts) and len(distinct) > 2:
        return _drop(
            name,
            f"{len(distinct)} different texts in {len(texts)} rows: names or identifiers, not categories",
        )
    return _category(name, texts, bool(missing.any()), max_categories)


def too_large(name: str) -> str:
    """What to do about a column of numbers beyond all measure."""
    return f"Empty those cells if they stand for a missing value, scale the column, or use --drop {name}."


def _number(name: str, parsed: Parsed, infinite: bool) -> tuple[Column | None, list[Remark]]:
    values = parsed.values[np.isfinite(parsed.values)]
    if values.min() == values.max() and len(values) == len(parsed.values):
        return _drop(name, f"constant: every cell is {values[0]:g}")
    if _ID_NAMES.match(name) and len(values) == len(np.unique(values)) and (values % 1 == 0).all():
        return _drop(name, "a different whole number in each row, and the name of an identifier")
    check_size(f"the column {name!r}", values, too_large(name))
    column, remarks = _measured(Number, name, parsed)
    if infinite:
        remarks.append(Remark("infinite", name, 0, "infinite numbers were taken as missing", strict=True))
    return column, remarks


def _measured(
    kind: type[Number | Boolean | Date], name: str, parsed: Parsed, **options: str
) -> tuple[Column | None, list[Remark]]:
    values, remarks = parsed.values, []
    there = values[np.isfinite(values)]
    missing = len(values) - len(there)
    if np.ptp(there) == 0 and not missing:
        return _drop(name, "constant: every cell is the same")
    if parsed.unreadable:
        said = f"cells that are no {kind.kind}s were taken as missing"
        remarks.append(Remark("unreadable", name, parsed.unreadable, said, True, parsed.example))
    more: dict[str, float | str] = dict(options)
    if kind is Date:
        origin = float(np.floor(there.min()))
        more["origin"] = origin
        there = there - origin
    # A truth value is filled with the more frequent one; a tie is true.
    fill = float(there.mean() >= 0.5) if kind is Boolean else float(np.median(there))
    column = kind(name, fill, missing > 0, float(there.min()), float(there.max()), **more)  # type: ignore[arg-type]
    if missing - parsed.unreadable:
        said = f"missing cells: filled with {column._fill_said}, and marked by a number of its own"
        remarks.append(Remark("missing", name, missing - parsed.unreadable, said))
    if options.get("format") == "%m/%d/%Y" and np.isfinite(there).all():
        said = "dates were read as month/day/year; write them as 2024-12-31 to be sure"
        remarks.append(Remark("date", name, 0, said))
    return column, remarks


def _category(name: str, texts: list[str], missing: bool, most: int) -> tuple[Column | None, list[Remark]]:
    counts = Counter(texts)
    order = sorted(counts, key=lambda text: (-counts[text], text))
    kept = [text for text in order[:most] if counts[text] >= _RARE] or order[:1]
    rare = order[len(kept) :]
    remarks = []
    if rare:
        rows = sum(counts[text] for text in rare)
        said = f"rows hold one of {len(rare)} rare categories, which are put together as 'other'"
        remarks.append(Remark("rare", name, rows, said, example=rare[0]))
    names = frozenset(rare if len(rare) <= _KEPT else ())
    if missing:
        remarks.append(Remark("missing", name, 0, "missing cells are a category of their own"))
    return Category(name, tuple(kept), bool(rare), missing, len(rare), names), remarks


def _drop(name: str, why: str) -> tuple[None, list[Remark]]:
    return None, [Remark("dropped", name, 0, f"left out: {why}", strict=True)]

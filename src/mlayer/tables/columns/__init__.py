"""Kinds of column: each is one class that infers itself, encodes cells and reads itself back from JSON.

A new kind is a class, an entry in ``KINDS``, and the same encoding without pandas in
``tables/export/encode_rows.py``; CONTRIBUTING lists the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlayer.tables.columns.category import Category
from mlayer.tables.columns.cells import is_boolean, is_date, is_nested, is_number, is_text, plain
from mlayer.tables.columns.kind import Cells, Column, Inferred, left_out
from mlayer.tables.columns.measured import Boolean, Date, Number

if TYPE_CHECKING:
    from pandas import Series

__all__ = [
    "KINDS",
    "Boolean",
    "Category",
    "Column",
    "Date",
    "Inferred",
    "Number",
    "column_from_json",
    "infer_column",
]

# In the order in which they are asked; the first that recognizes a column takes it.
KINDS: tuple[type[Column], ...] = (Boolean, Number, Date, Category)


def infer_column(series: Series, max_categories: int) -> Inferred:
    """The column of a training table's ``series``, or the reason why it is left out."""
    name, series = str(series.name), plain(series)
    cells = Cells(name, series, max_categories)
    if cells.missing.all():
        return left_out(name, "all cells are missing")
    if not (is_boolean(series) or is_number(series) or is_date(series)):
        if not is_text(series):
            return left_out(name, f"cells of type {series.dtype} are not supported")
        if is_nested(series):
            return left_out(name, "cells that hold lists are not supported")
        if len(cells.distinct) == 1 and not cells.missing.any():
            return left_out(name, f"constant: every cell is {cells.texts[0]!r}")
    for kind in KINDS:
        found = kind.infer(cells)
        if found is not None:
            return Inferred(found.column, cells.doubts + found.remarks)
    return left_out(name, "cells of no known kind")


def column_from_json(entry: Mapping[str, Any]) -> Column:
    """The column that ``as_json`` wrote; KeyError, TypeError or ValueError if it is damaged."""
    by_name = {kind.kind: kind for kind in KINDS}
    return by_name[entry["kind"]].from_json(entry)

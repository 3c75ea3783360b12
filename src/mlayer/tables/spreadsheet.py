"""Text for spreadsheets: cells that a spreadsheet would run as a formula are marked as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

# What starts a formula in Excel, LibreOffice or Google Sheets, full-width signs included, also behind blanks.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")


def as_text(cell: Any) -> Any:
    """A cell with an apostrophe in front if it is text that starts a formula; numbers stay as they are.

    >>> [as_text(cell) for cell in ("=1+1", "@SUM(A1)", "-1.5", -1.5, "a=b", None)]
    ["'=1+1", "'@SUM(A1)", '-1.5', -1.5, 'a=b', None]
    """
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


def without_formulas(frame: DataFrame) -> DataFrame:
    """The table with :func:`as_text` of its names and of its columns of text."""
    from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

    def still(column: Any) -> bool:
        return is_numeric_dtype(column) or is_bool_dtype(column) or is_datetime64_any_dtype(column)

    safe = frame.copy()
    for name in frame.columns:
        if not still(frame[name].dtype):
            safe[name] = frame[name].astype(object).map(as_text)
    return safe.rename(columns=as_text)

"""Melbourne's daily minimum temperatures, 1981 to 1990 (Australian Bureau of Meteorology)."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path

import torch

from mlayer.datasets.dataset_types import Series
from mlayer.datasets.download import Progress, fetch
from mlayer.datasets.local_files import DataPath, SourceFile, find
from mlayer.errors import FileFormatError, in_one_line

_NAME = "daily-min-temperatures.csv"
_URL = "https://raw.githubusercontent.com/jbrownlee/Datasets/master/" + _NAME
# Of the text without quotes and carriage returns, in which copies differ.
_SHA256 = "11a2b63a5171518f8e1c183c29b1c4be697f5d4bb9b3b25288dd5b97aae0a1dc"
FILE = SourceFile(_NAME, (_SHA256,), _URL, (".", "temperatures"), text=True)


def temperatures(
    data: DataPath = None, *, download: bool = False, verify: bool = True, progress: Progress | None = None
) -> Series:
    """Melbourne's daily minimum temperatures in degrees Celsius: 3,650 days from 1981-01-01.

    The arguments are those of :func:`mlayer.datasets.images`.
    """
    fetch(data, (FILE,), progress, download=download)
    path = find(data, FILE, verify=verify)
    try:
        dates, values = _rows(path)
    except csv.Error as error:
        came = f"a damaged one ({in_one_line(error)})"
        raise _wrong(path, "a table of dates and numbers", came) from None
    if not values:
        raise _wrong(path, "a table with rows", "none")
    return Series(torch.tensor(values, dtype=torch.float64), tuple(dates), "temperatures", "°C", str(path))


def _rows(path: Path) -> tuple[list[str], list[float]]:
    dates, values = [], []
    with path.open(newline="", encoding="utf-8", errors="replace") as stream:
        rows = csv.reader(stream)
        head = next(rows, [])
        if head != ["Date", "Temp"]:
            raise _wrong(path, "a table with the columns Date,Temp", f"{','.join(head)[:60]!r}")
        for row in rows:
            try:
                date, value = row
                dates.append(datetime.date.fromisoformat(date).isoformat())
                values.append(float(value))
            except ValueError:
                came = f"{','.join(row)[:60]!r} in line {rows.line_num}"
                raise _wrong(path, "rows of a date and a number", came) from None
    return dates, values


def _wrong(path: Path, must_be: str, came: str) -> FileFormatError:
    return FileFormatError(path, must_be, came, f"Get it again from {_URL}.")

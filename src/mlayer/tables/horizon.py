"""Errors of a table's forecasts by how far they look ahead: from its dates to `mlayer.numerics.horizon`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.numerics.arrays import AnyArray
from mlayer.numerics.horizon import HorizonErrors
from mlayer.tables.columns import Date
from mlayer.tables.schema import Schema

if TYPE_CHECKING:
    from pandas import DataFrame


def horizon_facts(date: Date, days: AnyArray, errors: HorizonErrors) -> dict[str, Any]:
    """The entry "horizon" of a model's facts: errors of forecasts after the last of ``days``.

    Args:
        date: the column of dates.
        days: of the rows that the model was fitted to, as ``date`` counts them.
        errors: by horizon, in days.
    """
    last = np.datetime64(round((float(np.nanmax(days)) + date.origin) * 86400), "s")
    return {"column": date.name, "last": str(last), **errors.as_json()}


def check_horizon(entry: Mapping[str, Any], schema: Schema) -> None:
    """KeyError, TypeError or ValueError if an entry is damaged."""
    HorizonErrors.from_json(entry)
    if np.isnat(np.datetime64(entry["last"], "s")):
        raise ValueError("no last date")
    if not any(c.date is not None and c.name == entry["column"] for c in schema.columns):
        raise ValueError(f"no column of dates {entry['column']!r}")


def widths_of_forecasts(
    entry: Mapping[str, Any], schema: Schema, frame: DataFrame, forecasts: AnyArray, coverage: float
) -> AnyArray:
    """Half of the width of the interval of each row; rows without a date count as of the last date."""
    (date,) = (c.date for c in schema.columns if c.date is not None and c.name == entry["column"])
    last = np.datetime64(entry["last"], "s").astype(np.int64) / 86400
    days = date.parse(frame[date.name]).values + date.origin - last
    return HorizonErrors.from_json(entry).half_widths(np.nan_to_num(days), forecasts, coverage)

"""Errors of a table's forecasts by how far they look ahead: from its dates to `mlayer.numerics.horizon`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.numerics.arrays import AnyArray
from mlayer.numerics.horizon import HorizonErrors
from mlayer.tables.columns import Date
from mlayer.tables.metrics import readable
from mlayer.tables.remarks import Remark
from mlayer.tables.schema import Schema

if TYPE_CHECKING:
    from pandas import DataFrame

# Growth continues at its rate for this part of the extent of the rows and then slows down, so that it
# is never more in all than the growth of the table, if this is a half.
_LASTS = 0.5
# Relative, of a forecast: more than the rounding of the factor by which it slows down.
_ROUNDED = 1e-12


def horizon_facts(
    date: Date, days: AnyArray, errors: HorizonErrors, rate: float | None = None
) -> dict[str, Any]:
    """The entry "horizon" of a model's facts: errors of forecasts after the last of ``days``.

    Args:
        date: the column of dates.
        days: of the rows that the model was fitted to, as ``date`` counts them.
        errors: by horizon, in days.
        rate: of the growth of the logarithm for each day, where the forecast grows at a constant rate.
    """
    last = np.datetime64(round((float(np.nanmax(days)) + date.origin) * 86400), "s")
    extent = float(np.nanmax(days) - np.nanmin(days))
    slows = {} if rate is None else {"slows": {"rate": rate, "after": _LASTS * extent}}
    return {"column": date.name, "last": str(last), **errors.as_json(), **slows}


def shift_remarks(date: Date, shifts: Iterable[tuple[float, float]]) -> list[Remark]:
    """A remark for each shift of the level: the last of the days before it, and what the target gains."""
    said = (
        "the level of the target shifts after {} by {}: earlier rows count as if they had the new level, and "
        "intervals of forecasts hold unless it shifts again"
    )
    return [Remark("shift", date.name, 0, said.format(date.day(day), readable(size))) for day, size in shifts]


def at_last_level(facts: Mapping[str, Any], schema: Schema, numbers: AnyArray, values: AnyArray) -> AnyArray:
    """Values of a series as they would be at the level after its last shift, which is that of the model.

    Args:
        facts: of the model.
        schema: of its columns.
        numbers: encoded rows.
        values: one for each of them.
    """
    if not facts.get("shifts"):
        return values
    place = {column.name: places.start for column, places in schema.placed}[facts["horizon"]["column"]]
    return np.asarray(values + sum(size * (numbers[:, place] <= day) for day, size in facts["shifts"]))


def remarks_of_shifts(facts: Mapping[str, Any], schema: Schema) -> list[Remark]:
    """A remark for each shift of the level of the series that a model was fitted to."""
    date = _date_of(facts.get("horizon", {}), schema)
    return [] if date is None else shift_remarks(date, facts.get("shifts", []))


def check_horizon(entry: Mapping[str, Any], schema: Schema) -> None:
    """KeyError, TypeError or ValueError if an entry is damaged."""
    HorizonErrors.from_json(entry)
    if np.isnat(np.datetime64(entry["last"], "s")):
        raise ValueError("no last date")
    if "slows" in entry:
        rate, after = (float(entry["slows"][name]) for name in ("rate", "after"))
        if not (np.isfinite(rate) and 0 < after < np.inf):
            raise ValueError("growth that slows down")
    if _date_of(entry, schema) is None:
        raise ValueError(f"no column of dates {entry['column']!r}")


def check_shifts(facts: Mapping[str, Any], schema: Schema) -> None:
    """ValueError unless the shifts are numbers, on days of the training table."""
    for day, size in facts.get("shifts", []):
        date = _date_of(facts.get("horizon", {}), schema)
        if date is None or not (date.low <= day <= date.high and np.isfinite(size)):
            raise ValueError(f"a shift of the level by {size!r} after {day!r}")


def _date_of(entry: Mapping[str, Any], schema: Schema) -> Date | None:
    """The column whose dates order the rows."""
    return next((c.date for c in schema.columns if c.date and c.name == entry.get("column")), None)


def widths_of_forecasts(
    entry: Mapping[str, Any], schema: Schema, frame: DataFrame, forecasts: AnyArray, coverage: float
) -> AnyArray:
    """Half of the width of the interval of each row; rows without a date count as of the last date."""
    days = _days_ahead(entry, schema, frame)
    return HorizonErrors.from_json(entry).half_widths(days, forecasts, coverage)


def growth_ends(entry: Mapping[str, Any]) -> str:
    """The day from which on growth at a constant rate slows down."""
    return str(np.datetime64(entry["last"], "D") + np.timedelta64(round(entry["slows"]["after"]), "D"))


def slowed(entry: Mapping[str, Any], schema: Schema, frame: DataFrame, forecasts: AnyArray) -> AnyArray:
    """Forecasts whose growth at a constant rate comes to an end, as a damped trend of the logarithm does.

    Gardner and McKenzie, Management Science 31, 1985; a constant rate has no bound.
    """
    slows = entry.get("slows")
    if slows is None:
        return forecasts
    return np.asarray(forecasts * _damping(slows, _days_ahead(entry, schema, frame)))


def slowed_range(
    entry: Mapping[str, Any], schema: Schema, frame: DataFrame, reach: float, ends: tuple[AnyArray, AnyArray]
) -> tuple[AnyArray, AnyArray]:
    """The ends of what `slowed` makes of forecasts between ``ends`` while dates move by up to ``reach``."""
    slows = entry.get("slows")
    if slows is None:
        return ends
    days = _days_ahead(entry, schema, frame)
    with np.errstate(over="ignore", invalid="ignore"):
        # The factor rises or falls throughout: its extremes are at the ends.
        factors = [_damping(slows, days + step) for step in (-reach, reach)]
        products = np.stack([end * factor for end in ends for factor in factors])
    # An end without bound has no rounding.
    slack = np.where(np.isfinite(products), _ROUNDED * np.abs(products), 0.0)
    least, most = (products - slack).min(0), (products + slack).max(0)
    # Nothing is known of the product of a number without bound and a factor that vanishes.
    return np.where(np.isnan(least), -np.inf, least), np.where(np.isnan(most), np.inf, most)


def _damping(slows: Mapping[str, Any], days: AnyArray) -> AnyArray:
    """The factors of forecasts for days after the last date."""
    rate, after = float(slows["rate"]), float(slows["after"])
    late = np.maximum(days - after, 0.0)
    return np.asarray(np.exp(-rate * (late + after * np.expm1(-late / after))))


def _days_ahead(entry: Mapping[str, Any], schema: Schema, frame: DataFrame) -> AnyArray:
    """Days after the last date of the fit; 0 without a date."""
    (date,) = (c.date for c in schema.columns if c.date is not None and c.name == entry["column"])
    return np.nan_to_num(date.parse(frame[date.name]).values + date.origin - last_day(entry))


def last_day(entry: Mapping[str, Any]) -> float:
    """Days since 1970 of the last date of the fit."""
    return float(np.datetime64(entry["last"], "s").astype(np.int64) / 86400)

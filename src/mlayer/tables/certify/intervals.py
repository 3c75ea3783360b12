"""Intervals for the rows of a regression table: within these changes the prediction stays in [lower, upper].

Numbers and dates move by up to eps times their unit, all at once; the columns that are named take each of
their categories, or both truth values; the others are held still. A row in which a cell may become the number
that stands for a missing one, such as -999, has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mlayer.certificates.api.bounds_over_boxes import bounds
from mlayer.certificates.arguments import as_radius
from mlayer.errors import ArgumentError
from mlayer.tables.certify.certify_table import (
    cell_rounding,
    column_scale,
    column_units,
    reach_of_absent,
    row_labels,
)
from mlayer.tables.horizon import slowed_range
from mlayer.tables.model import TableModel
from mlayer.tables.remarks import Remark, near_columns

if TYPE_CHECKING:
    from pandas import DataFrame

# Parts more that a box is cut into at most where numbers move. Few are needed but for waves of which a box
# holds several; in more dimensions parts halve their width too slowly for many of them to pay.
_SPLITS, _SPLITS_OF_FEW = 12, 100
_FEW = 3  # columns that move
_BOXES = 512  # bounded in one call
_MOST_COMBINATIONS = 1000  # of categories, for one row
# Relative, of days: more than the rounding of a changed date.
_ROUNDED = 1e-12


@dataclass(frozen=True)
class IntervalRows:
    """Intervals of a table.

    Attributes:
        frame: one row for each of the table: prediction, where it is known the truth, lower, upper.
        eps: how far numbers and dates move, in their units.
        units: what an eps of 1 means, by column.
        varied: columns that take all their values.
        remarks: notes for the user.
    """

    frame: DataFrame
    eps: float
    units: Mapping[str, float]
    varied: tuple[str, ...]
    remarks: list[Remark]

    def summary(self) -> dict[str, Any]:
        """The figures of the whole table."""
        width = (self.frame["upper"] - self.frame["lower"]).to_numpy()
        finite = width[np.isfinite(width)]
        return {
            "rows": len(width),
            "eps": self.eps,
            "median_width": float(np.median(finite)) if len(finite) else None,
            "unbounded": int((~np.isfinite(width)).sum()),
        }


def interval_table(
    model: TableModel,
    frame: DataFrame,
    *,
    eps: float,
    units: Mapping[str, float] | None = None,
    vary: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> IntervalRows:
    """Prove for each row in which interval its prediction stays.

    Args:
        model: one for regression.
        frame: the raw table.
        eps: numbers and dates move by up to eps times their unit.
        units: of some columns, in place of their range in the fit's table.
        vary: columns of categories or truth values that take all their values.
        progress: called with (rows done, rows).
    """
    import pandas

    eps = as_radius(eps)
    if model.target.classifies:
        raise ArgumentError("the model", "one for regression", "a classifier", "Use certify_table.")
    if not len(frame):
        raise ArgumentError("the table", "of one row or more", "none", "Check how it was written.")
    moving = column_units(model, units, needed=not vary)
    options = _options(model, vary)
    predicted = model.predict(frame)
    inputs, remarks = model.encode(frame)
    reach = eps * column_scale(model, moving)
    if not (2 * reach).isfinite().all():
        raise ArgumentError(
            "eps", "small enough that eps times each unit is a number", f"{eps:g}", "For example 0.01."
        )
    count = int((reach > 0).sum())
    splits = 0 if count == 0 else _SPLITS_OF_FEW if count <= _FEW else _SPLITS
    lower, upper = list[float](), list[float]()
    rounding = 4 * cell_rounding(model, inputs)
    boxes = [_boxes(row, reach, off, options) for row, off in zip(inputs, rounding, strict=True)]
    at_once = max(1, _BOXES // max(len(low) for low, _ in boxes))
    for begin in range(0, len(boxes), at_once):
        part = boxes[begin : begin + at_once]
        low, high = (torch.cat(side) for side in zip(*part, strict=True))
        found, each = bounds(model.layer, low, high, splits=splits), [len(low) for low, _ in part]
        lower += [float(one.min()) for one in found.lower.split(each)]
        upper += [float(one.max()) for one in found.upper.split(each)]
        if progress is not None:
            progress(len(lower), len(boxes))
    # The prediction is float32 arithmetic: it may differ from the exact value by its own rounding.
    answers = predicted.outputs
    columns: dict[str, Any] = row_labels(model, frame) | {"prediction": answers}
    if model.target.name in frame.columns:
        columns["truth"], said = model.target.encode(frame[model.target.name])
        remarks = [*remarks, *said]
    horizon = model.facts.get("horizon", {})
    days = eps * moving.get(horizon.get("column"), 0.0) * (1 + _ROUNDED)
    ends = np.array(lower), np.array(upper)
    # Of a changed row it may be the value of the layer, with growth that slows down, or the limited one.
    least, most = slowed_range(horizon, model.schema, frame, days, ends)
    within = (reach_of_absent(model, frame, moving) <= eps).numpy()
    least, most = np.where(within, -np.inf, least), np.where(within, np.inf, most)
    columns |= {
        "lower": np.fmin(np.fmin(least, model.limited(least)), answers),
        "upper": np.fmax(np.fmax(most, model.limited(most)), answers),
    }
    return IntervalRows(pandas.DataFrame(columns, index=frame.index), eps, moving, tuple(vary), remarks)


def _options(model: TableModel, vary: Sequence[str]) -> list[tuple[int, Tensor]]:
    """For each column that varies, where its numbers begin and which ones it can have: (values, numbers)."""
    can = {c.name: values for c in model.schema.columns if (values := c.values()) is not None}
    for name in vary:
        if name not in can:
            names = {column.name for column in model.schema.columns}
            got = f"{name!r}, whose cells are neither" if name in names else repr(name)
            raise ArgumentError(
                "vary", "columns of categories or truth values", got, near_columns(name, list(can))
            )
    found, count = [], 1
    for column, places in model.schema.placed:
        if column.name in vary:
            values = can[column.name]
            found.append((places.start, torch.from_numpy(values)))
            count *= len(values)
    if count > _MOST_COMBINATIONS:
        raise ArgumentError(
            "vary",
            f"columns with at most {_MOST_COMBINATIONS:,} combinations of values",
            f"{count:,}",
            "Vary fewer columns at once.",
        )
    return found


def _boxes(
    row: Tensor, reach: Tensor, rounding: Tensor, options: list[tuple[int, Tensor]]
) -> tuple[Tensor, Tensor]:
    """A box for each combination of the values that vary; what the row has now, such as none, is one too."""
    each = []
    for place, values in options:
        own = row[place : place + values.shape[1]].double()
        each.append([*values, *([] if bool((values == own).all(1).any()) else [own])])
    centers = []
    for chosen in product(*each):
        center = row.double().clone()
        for (place, _), value in zip(options, chosen, strict=True):
            center[place : place + len(value)] = value
        centers.append(center)
    center = torch.stack(centers)
    # Outward by what rounding does to a changed cell on its way to the layer's numbers.
    slack = 4 * torch.finfo(row.dtype).eps * (center.abs() + reach) + rounding
    slack = torch.where(reach > 0, slack, 0.0)
    return center - reach - slack, center + reach + slack

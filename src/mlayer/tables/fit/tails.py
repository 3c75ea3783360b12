"""Cells far from all others that are no errors: the target follows them.

Numbers that lie far out count as a limit, since most of them are errors. In a column with a heavy tail, such
as the tax on an amount, they are the cells that say most. For a target that is a quantity they keep their
values if the line through the other rows comes much closer to their targets with the values than with the
limits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mlayer.numerics.arrays import AnyArray
from mlayer.tables.columns import Column
from mlayer.tables.schema import Schema
from mlayer.tables.target import Target

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# The part of the errors with the limits that may be left with the values.
_LEFT = 0.5


def with_tails(schema: Schema, frame: DataFrame, target: Target, truth: AnyArray) -> tuple[Schema, set[str]]:
    """The schema with columns that keep their far cells as they are, and the names of these columns.

    Args:
        schema: of the training rows.
        frame: the training rows.
        target: what is predicted.
        truth: of the training rows, as :meth:`Target.encode` gives it.
    """
    if target.classifies:
        return schema, set()
    columns = [_followed(column, frame[column.name], truth) for column in schema.columns]
    changed = {new.name for new, old in zip(columns, schema.columns, strict=True) if new is not old}
    return replace(schema, columns=tuple(columns)), changed


def _followed(column: Column, cells: Series, truth: AnyArray) -> Column:
    """The column without limits if the target follows the cells beyond them, else as it is."""
    free = column.without_limits()
    if free is None:
        return column
    limited, values = (each.encode(cells)[0][:, 0] for each in (column, free))
    far = values != limited
    slope, level = np.polyfit(values[~far], truth[~far], 1)
    errors = [np.abs(level + slope * each[far] - truth[far]).sum() for each in (values, limited)]
    return free if errors[0] < _LEFT * errors[1] else column

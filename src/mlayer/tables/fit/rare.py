"""Rare categories that the target tells apart: small shops with different levels.

Categories of few rows are put together, since a model cannot learn much of each. Where their levels differ
by more than the rows of one do, that loses more than it saves. They stand alone if the mean of the other
rows of its category, with one row's worth of the mean of all rare ones, predicts each of their rows better
than that mean alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mlayer.numerics.arrays import AnyArray
from mlayer.tables.columns import Column
from mlayer.tables.remarks import Remark
from mlayer.tables.schema import Schema
from mlayer.tables.target import Target

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# How many standard errors, and which part of the squared error, the categories must save.
_STANDARD_ERRORS = 2.0
_PART = 0.02


def with_rare(
    schema: Schema, frame: DataFrame, target: Target, truth: AnyArray, most: int
) -> tuple[Schema, dict[str, Remark]]:
    """The schema with rare categories on their own where that pays, and remarks about each such column.

    Args:
        schema: of the training rows.
        frame: the training rows.
        target: what is predicted.
        truth: of the training rows, as :meth:`Target.encode` gives it.
        most: categories of a column.
    """
    wanted = [truth.astype(float)]
    if target.classifies:
        wanted = [(truth == k).astype(float) for k in range(len(target.classes))]
    columns: list[Column] = []
    remarks: dict[str, Remark] = {}
    for column in schema.columns:
        finer = column.finer(frame[column.name], most)
        if finer is None or not _differ(column, finer, frame[column.name], wanted):
            columns.append(column)
            continue
        columns.append(finer)
        said = f"small categories, with different levels of the target, stand alone: {finer.description}"
        remarks[column.name] = Remark("small", column.name, 0, said)
    return replace(schema, columns=tuple(columns)), remarks


def _differ(column: Column, finer: Column, cells: Series, wanted: list[AnyArray]) -> bool:
    """Whether the categories that only ``finer`` has tell about the target."""
    new = [place for place, name in enumerate(finer.features) if name not in column.features]
    numbers = finer.encode(cells)[0][:, new]
    rows = numbers.any(axis=1)
    place, count = numbers[rows].argmax(axis=1), int(rows.sum())
    others = np.bincount(place)[place] - 1.0
    together, alone = np.zeros(count), np.zeros(count)
    for each in wanted:
        y = each[rows]
        middle = (y.sum() - y) / (count - 1)
        own = (np.bincount(place, y)[place] - y + middle) / (others + 1)
        together += np.square(y - middle)
        alone += np.square(y - own)
    saved = together - alone
    return bool(saved.mean() > max(_STANDARD_ERRORS * saved.std() / np.sqrt(count), _PART * together.mean()))

"""Whole numbers that stand for categories: stores 7, 3 and 9 are not quantities.

A column of few different whole numbers becomes categories if the mean of the target at each of them predicts
rows that it has not seen better than a smooth curve through the numbers does; in a table with dates, where a
model of waves is linear in its inputs, better than a line, or if its name is that of a group.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mlayer.numerics.arrays import AnyArray, Array
from mlayer.tables.columns import Category
from mlayer.tables.remarks import Remark
from mlayer.tables.schema import Schema
from mlayer.tables.target import Target

if TYPE_CHECKING:
    from pandas import DataFrame

_FEWEST = 3
_ROWS_EACH = 5
_DEGREE = 3
# How many standard errors, and which part of the squared error, the categories must save on the judging half.
_STANDARD_ERRORS = 4.0
_PART = 0.02
_GROUP_NAMES = re.compile(
    r"^(store|shop|branch|site|station|sensor|machine|device|region|zone|district|product|item|sku|group|team"
    r"|line|plant|meter|route|code|filiale|markt|magasin|tienda)([ _-]?(id|no|nr|num|number|code))?$",
    re.I,
)


def with_codes(
    schema: Schema, frame: DataFrame, target: Target, truth: AnyArray, most: int
) -> tuple[Schema, list[Remark]]:
    """The schema with columns of codes as categories, and a remark about each.

    Args:
        schema: of the training rows.
        frame: the training rows.
        target: what is predicted.
        truth: of the training rows, as :meth:`Target.encode` gives it.
        most: categories.
    """

    def tells(values: Array, place: AnyArray, degree: int) -> bool:
        return _tells(values, place, target, truth, degree)

    dated = bool(schema.dates)
    columns, remarks = [], []
    for column in schema.columns:
        values = column.code_numbers(frame[column.name])
        codes = None if values is None else _codes(column.name, values, most, dated=dated, tells=tells)
        if codes is None:
            columns.append(column)
            continue
        columns.append(codes)
        said = f"its {len(codes.categories)} different whole numbers are taken as categories, not as sizes"
        remarks.append(Remark("codes", column.name, 0, said))
    return replace(schema, columns=tuple(columns)), remarks


def _codes(
    name: str, values: Array, most: int, *, dated: bool, tells: Callable[[Array, AnyArray, int], bool]
) -> Category | None:
    if not np.isfinite(values).all() or (values % 1).any():
        return None
    different, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    if not _FEWEST <= len(different) <= min(most, len(values) // _ROWS_EACH):
        return None
    named = dated and _GROUP_NAMES.match(name)
    if not named and not tells(values, place, 1 if dated else _DEGREE):
        return None
    order = np.argsort(-counts, kind="stable")
    return Category(name, tuple(str(int(different[k])) for k in order), numbers=True)


def _tells(values: Array, place: AnyArray, target: Target, truth: AnyArray, degree: int) -> bool:
    """Whether means by value predict the second half of the rows better than a polynomial does."""
    order = np.random.default_rng(0).permutation(len(values))
    learn, judge = order[::2], order[1::2]
    scaled = (values - values.mean()) / values.std()
    powers = scaled[:, None] ** np.arange(degree + 1)
    wanted = [truth.astype(float)]
    if target.classifies:
        wanted = [(truth == k).astype(float) for k in range(len(target.classes))]
    smooth, by_code = np.zeros(len(judge)), np.zeros(len(judge))
    for y in wanted:
        found = np.linalg.lstsq(powers[learn], y[learn], rcond=None)[0]
        smooth += np.square(y[judge] - powers[judge] @ found)
        count = np.bincount(place[learn], minlength=place.max() + 1)
        # One row's worth of the mean of all, for codes that are hardly in the learning half.
        sums = np.bincount(place[learn], y[learn], minlength=len(count)) + y[learn].mean()
        by_code += np.square(y[judge] - (sums / (count + 1))[place[judge]])
    saved = smooth - by_code
    error = saved.std() / np.sqrt(len(saved))
    return bool(saved.mean() > max(_STANDARD_ERRORS * error, _PART * smooth.mean()))

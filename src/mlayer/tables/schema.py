"""The schema of a table: which columns become which numbers. Learned once, kept in the model file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.checks import brief, integer, texts
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.tables.columns import Column, column_from_json, infer_column
from mlayer.tables.columns.cells import Floats
from mlayer.tables.remarks import Remark, near_columns

if TYPE_CHECKING:
    from pandas import DataFrame

MAX_CATEGORIES = 200


@dataclass(frozen=True)
class Encoded:
    """Numbers of a table, (rows, features), and remarks about them."""

    numbers: Floats
    remarks: list[Remark]


@dataclass(frozen=True)
class Schema:
    """The columns of a model, in the order of the table that it was fitted to.

    >>> import pandas
    >>> schema, _ = learn_schema(pandas.DataFrame({"age": [30, 40, None], "city": ["Rome", "Oslo", "Rome"]}))
    >>> schema.features
    ('age', 'age is missing', 'city = Rome', 'city = other')
    >>> schema.encode(pandas.DataFrame({"city": ["Rome"], "age": [31]})).numbers
    array([[31.,  0.,  1.,  0.]])
    """

    columns: tuple[Column, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the numbers that a row becomes."""
        return tuple(feature for column in self.columns for feature in column.features)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that a csv reader must not turn into numbers: 007 is not 7."""
        return tuple(column.name for column in self.columns if column.raw_text)

    def beyond(self, numbers: Floats) -> Floats:
        """The distances of encoded rows from the training table, with the column that is furthest out.

        In units of that range; 0 for rows that are in the range with every column.
        """
        result = np.zeros(len(numbers))
        for column, places in self.placed:
            np.maximum(result, column.beyond(numbers[:, places]), out=result)
        return result

    @property
    def dates(self) -> list[int]:
        """Places, among the features, of the days of columns of dates."""
        return [places.start for column, places in self.placed if column.date is not None]

    @property
    def placed(self) -> tuple[tuple[Column, slice], ...]:
        """Each column and the places of its numbers in a row."""
        ends = accumulate(len(column.features) for column in self.columns)
        return tuple(
            (column, slice(end - len(column.features), end))
            for column, end in zip(self.columns, ends, strict=True)
        )

    def encode(self, frame: DataFrame) -> Encoded:
        """The numbers of ``frame``, whose columns may be in any order and more than needed.

        Raises:
            ArgumentError: a column is missing, or holds something else altogether.
        """
        check_frame(frame)
        self.check(list(map(str, frame.columns)))
        parts, remarks = [np.zeros((len(frame), 0))], []
        for column in self.columns:
            numbers, said = column.encode(frame[column.name])
            parts.append(numbers)
            remarks += said
        return Encoded(np.concatenate(parts, axis=1), remarks)

    def check(self, names: Sequence[str]) -> None:
        """Raise an error unless all columns are present."""
        names = texts("names", names, "names of columns", '["a", "b"]')
        absent = [column.name for column in self.columns if column.name not in set(names)]
        if absent:
            raise ArgumentError(
                "the table",
                f"one with the columns of the fit; it needs {', '.join(map(repr, absent[:8]))} too",
                f"the columns {', '.join(map(repr, names[:12]))}{' ...' if len(names) > 12 else ''}",
                near_columns(absent[0], [name for name in names if name not in absent])
                if len(names)
                else "Add them.",
            )

    def as_json(self) -> list[dict[str, Any]]:
        """A JSON object for the model file."""
        return [column.as_json() for column in self.columns]

    @classmethod
    def from_json(cls, entries: list[Mapping[str, Any]]) -> Schema:
        """The schema that :meth:`as_json` wrote; KeyError, TypeError or ValueError if it is damaged."""
        return cls(tuple(map(column_from_json, entries)))


def check_frame(frame: object) -> None:
    """Raise unless this is a table."""
    if not hasattr(frame, "columns") or not hasattr(frame, "iloc"):
        raise ArgumentTypeError(
            "frame", "a pandas DataFrame", brief(frame), "Read a file with open_table(path).read()."
        )


def learn_schema(
    frame: DataFrame, *, drop: Collection[str] = (), max_categories: int = MAX_CATEGORIES
) -> tuple[Schema, list[Remark]]:
    """Choose the columns of a training table and their numbers; also the notes about what was decided.

    Args:
        frame: the training table without its target.
        drop: columns to leave out.
        max_categories: of a text column; the rest is put together as "other".
    """
    check_frame(frame)
    names = list(map(str, frame.columns))
    drop = texts("drop", drop, "names of columns", '("id",)')
    for name in drop:
        if name not in names:
            raise ArgumentError("drop", "columns of the table", repr(name), near_columns(name, names))
    integer("max_categories", max_categories, 1)
    columns, remarks = [], []
    for name, series in zip(names, (frame[column] for column in frame.columns), strict=True):
        if name in drop:
            continue
        found = infer_column(series, max_categories)
        remarks += found.remarks
        if found.column is not None:
            columns.append(found.column)
    if not columns:
        reasons = "; ".join(map(str, remarks[:5])) or "there are no others than the target"
        raise ArgumentError(
            "the table", "one with a column to learn from", f"none ({reasons})", "Add columns to it."
        )
    return Schema(tuple(columns)), remarks

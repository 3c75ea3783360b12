"""The target column: whether it names classes or measures a quantity, and how it is encoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.checks import instance
from mlayer.errors import ArgumentError
from mlayer.numerics.arrays import AnyArray
from mlayer.tables.columns.amounts import Notation, read_numbers
from mlayer.tables.columns.category import folded, merged_variants
from mlayer.tables.columns.cells import (
    Parsed,
    as_numbers,
    as_text,
    check_size,
    is_boolean,
    is_date,
    is_missing,
    is_number,
    plain,
)
from mlayer.tables.columns.date_notations import date_format
from mlayer.tables.columns.durations import CLOCK
from mlayer.tables.columns.stand_ins import means_missing
from mlayer.tables.columns.truth_words import MARKS, TRUE_WORDS, ordered_pair
from mlayer.tables.reader.source import pandas_module
from mlayer.tables.remarks import Remark

if TYPE_CHECKING:
    from pandas import Series

AUTO, CLASSIFICATION, REGRESSION = "auto", "classification", "regression"
TASKS = (CLASSIFICATION, REGRESSION)
_CLASSES = 20  # up to this many whole numbers may be classes ...
_SHARE = 0.05  # ... if they are no more than this share of the rows
_MOST = 1000  # classes
# Whole numbers are counts if at least this many differ, the largest is in fewer rows than this (or this share
# of them), and beyond the most frequent they get rarer, but for this many deviations of a number of rows.
_COUNTS, _RARE, _RARE_SHARE, _DEVIATIONS = 4, 5, 0.01, 3.0
WITHOUT_TARGET = "rows without a target were left out"
_ONE_WITHOUT = "row without a target was left out"

Label = str | int | float | bool


def check_series(series: object) -> None:
    """Raise unless this is a column of a table."""
    instance("series", series, pandas_module().Series, "a pandas Series", "A column: frame['price'].")


def guess_task(series: Series) -> tuple[str, str]:
    """The task that a target column suggests, and why.

    >>> import pandas
    >>> guess_task(pandas.Series(["cat", "dog", "cat"]))
    ('classification', 'the target is text')
    >>> guess_task(pandas.Series([0.5, 1.5, 2.5]))
    ('regression', 'the target has fractions')
    """
    check_series(series)
    series = plain(series)
    if is_boolean(series):
        return CLASSIFICATION, "the target is true or false"
    if not is_number(series):
        parsed, _, _ = read_numbers(str(series.name), series)
        there = len(series) - int(is_missing(series).sum())
        # Numbers with a few words among them are a quantity with some bad cells; many may be classes, unless
        # they say that there is no value.
        if sum(not means_missing(text) for text in parsed.unread) > 0.1 * there:
            return CLASSIFICATION, "the target is text"
    values = read_numbers(str(series.name), series)[0].values
    values = values[np.isfinite(values)]
    distinct = len(np.unique(values))
    if (values % 1 != 0).any():
        return REGRESSION, "the target has fractions"
    if distinct == 2:
        return CLASSIFICATION, "the target has two values"
    if are_counts(values):
        return (
            REGRESSION,
            f"the target has {distinct} different whole numbers, the largest the rarest: counts",
        )
    if distinct <= _CLASSES and distinct <= _SHARE * len(values):
        return CLASSIFICATION, f"the target has {distinct} different whole numbers in {len(values)} rows"
    return REGRESSION, f"the target has {distinct} different whole numbers in {len(values)} rows"


def are_counts(values: AnyArray) -> bool:
    """Whether whole numbers are counts of something and no names of classes: 0 often, 7 in a single row.

    >>> are_counts(np.repeat([0, 1, 2, 3, 5], [400, 90, 21, 6, 1]))
    True
    >>> are_counts(np.repeat([0, 1, 2, 3, 4], [400, 90, 110, 80, 100]))
    False
    >>> are_counts(np.repeat(range(9), [600, 4, 9, 21, 30, 24, 11, 5, 1]))  # demand on few of the days
    True
    """
    numbers, rows = np.unique(values, return_counts=True)
    if len(numbers) > 2 * _COUNTS and numbers[0] == 0 and rows[0] == rows.max() > rows[1]:
        return are_counts(values[values > 0])
    if len(numbers) < _COUNTS or numbers[0] not in (0, 1) or rows[-1] >= max(_RARE, _RARE_SHARE * rows.sum()):
        return False
    rows = rows[rows.argmax() :]
    if len(rows) < _COUNTS or np.diff(numbers)[: _COUNTS - 1].max() > 1:
        return False
    return bool((np.diff(rows) <= _DEVIATIONS * np.sqrt(rows[:-1])).all())


def settle_task(column: Series, task: str) -> tuple[str, str]:
    """The task of a plan as given, or guessed where it is "auto", and the reason."""
    return guess_task(column) if task == AUTO else (task, "as given")


@dataclass(frozen=True)
class Target:
    """The target column.

    Attributes:
        name: of the column.
        task: "classification" or "regression".
        classes: the labels, in the order of the layer's outputs.
        notation: how a quantity is written, if not as plain numbers.
    """

    name: str
    task: str
    classes: tuple[Label, ...] = ()
    notation: Notation | None = None

    @property
    def classifies(self) -> bool:
        """Whether the target has classes rather than a quantity."""
        return self.task == CLASSIFICATION

    def encode(self, series: Series) -> tuple[AnyArray, list[Remark]]:
        """Class numbers, -1 where missing or unknown; or values, NaN where missing."""
        check_series(series)
        if not self.classifies:
            parsed, remarks = self._numbers(series), []
            if parsed.unreadable:
                said = "rows whose target is not a number were left out"
                one = "row whose target is not a number was left out"
                remarks.append(
                    Remark("target", self.name, parsed.unreadable, said, True, parsed.example, one)
                )
            gone = int(np.isnan(parsed.values).sum()) - parsed.unreadable
            if gone:
                remarks.append(Remark("target", self.name, gone, WITHOUT_TARGET, one=_ONE_WITHOUT))
            return parsed.values, remarks
        places = {_key(label): place for place, label in enumerate(self.classes)}
        # Exact names first: older models may know classes that differ in case only.
        places = {folded(label): place for label, place in reversed(places.items())} | places
        texts = [text if text is None or text in places else folded(text) for text in as_text(series)]
        numbers = np.array([-1 if text is None else places.get(text, -1) for text in texts], dtype=np.int64)
        remarks = []
        gone = sum(text is None for text in texts)
        if gone:
            remarks.append(Remark("target", self.name, gone, WITHOUT_TARGET, one=_ONE_WITHOUT))
        strangers = [text for text in texts if text is not None and text not in places]
        if strangers:
            said = "rows with a class that the model does not know were left out"
            one = "row with a class that the model does not know was left out"
            remarks.append(Remark("target", self.name, len(strangers), said, True, strangers[0], one))
        return numbers, remarks

    def _numbers(self, series: Series) -> Parsed:
        series = plain(series)
        if self.notation is None or is_number(series):
            return as_numbers(series)
        return self.notation.read(series)

    def as_json(self) -> dict[str, Any]:
        """A JSON object for the model file."""
        entry: dict[str, Any] = {"name": self.name, "task": self.task, "classes": list(self.classes)}
        if self.notation is not None:
            entry["notation"] = {"decimal": self.notation.decimal, "unit": self.notation.unit}
        return entry

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Target:
        """The inverse of :meth:`as_json`; KeyError, TypeError or ValueError if the entry is damaged."""
        if entry["task"] not in TASKS:
            raise ValueError(f"task {entry['task']!r}")
        written = entry.get("notation")
        notation = None if written is None else Notation(str(written["decimal"]), str(written["unit"]))
        if notation is not None and notation.decimal not in (".", ",", CLOCK):
            raise ValueError(f"decimal {notation.decimal!r}")
        classes = tuple(entry["classes"])
        if any(not isinstance(label, str | int | float) or label in (np.inf, -np.inf) for label in classes):
            raise ValueError("a class that is neither text nor a number")
        if len(set(classes)) < len(classes):
            raise ValueError("a class that is there twice")
        return cls(str(entry["name"]), entry["task"], classes, notation)


def learn_target(series: Series, task: str) -> Target:
    """The target of a training table.

    Raises:
        ArgumentError: one class, a constant, dates, or text where numbers are needed.
    """
    name, series = str(series.name), plain(series)
    subject = f"the target {name!r}"
    if is_missing(series).all():
        raise ArgumentError(
            subject, "known in some rows", "a column without a value", "Choose another target."
        )
    if is_date(series):
        raise _dates(subject, str(series.dropna().iloc[0]))
    if task == REGRESSION:
        parsed, notation, _ = read_numbers(name, series)
        values = parsed.values[np.isfinite(parsed.values)]
        if len(values) < 0.5 * (len(series) - int(is_missing(series).sum())):
            texts = [text for text in as_text(series) if text is not None]
            if date_format(texts) is not None:
                raise _dates(subject, texts[0])
            raise ArgumentError(
                subject, "numbers, for regression", "mostly text", "Use --task classification."
            )
        check_size(
            subject, values, "Empty those cells if they stand for a missing value, or scale the column."
        )
        if np.ptp(values) == 0:
            raise ArgumentError(
                subject, "of different values", f"{values[0]:g} in every row", "There is nothing to learn."
            )
        return Target(name, task, notation=notation)
    texts = [text for text in as_text(series) if text is not None]
    names, _ = merged_variants(texts)
    counts = Counter(names[text] for text in texts)
    if len(counts) == 1:
        raise ArgumentError(
            subject,
            "of two or more classes",
            f"the class {next(iter(counts))!r} in every row",
            _one_class(next(iter(counts)), len(series) - len(texts)),
        )
    rows = sum(counts.values())
    if len(counts) > _MOST or (len(counts) > 0.5 * rows and len(counts) > 2):
        number = is_number(series)
        if not number and date_format(list(counts)) is not None:
            raise _dates(subject, next(iter(counts)))
        raise ArgumentError(
            subject,
            f"of at most {_MOST} classes with several rows each",
            f"{len(counts)} different values in {rows} rows",
            "Use --task regression."
            if number
            else "It may be a name or an identifier. Choose another target.",
        )
    return Target(name, task, _labels(series, counts))


def _one_class(name: str, empty: int) -> str:
    """The hint for a target whose known cells are all of one class."""
    if empty and (folded(name) in MARKS or folded(name) in TRUE_WORDS or name in ("1", "1.0")):
        return f"If the {empty} empty cells mean the opposite of it, write that into them, such as 'no' or 0."
    return "Choose another target, or use more rows: the first rows of a sorted table may hold one class."


def _dates(subject: str, example: str) -> ArgumentError:
    return ArgumentError(
        subject,
        "classes or numbers",
        f"dates, such as {example!r}, which cannot be a target",
        "Add a column of days since some date (or of the year, the month) and use it as the target.",
    )


def _labels(series: Series, counts: Counter[str]) -> tuple[Label, ...]:
    if is_boolean(series):
        return (False, True)
    if is_number(series):
        # Whole numbers by way of float would lose their last digits from 2^53 on.
        return tuple(sorted(float(text) if set(text) & set(".en") else int(text) for text in counts))
    # Of two classes the second is the positive one, to which a threshold refers: yes, else the rarer one.
    most_first = len(counts) == 2
    return ordered_pair(list(counts)) or tuple(
        sorted(counts, key=lambda text: (-counts[text] if most_first else 0, text))
    )


def _key(label: Label) -> str:
    """A label as `as_text` shows it."""
    return str(label)

"""Rows with a known target, from a frame or a file; the task is settled here, once.

Classes keep the form they have in a text table: 007 is not 7, and a class may be named None.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.checks import brief
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.numerics.arrays import AnyArray
from mlayer.tables.columns.amounts import read_numbers
from mlayer.tables.columns.category import merged_remark, merged_variants
from mlayer.tables.columns.cells import as_text
from mlayer.tables.columns.stand_ins import are_codes
from mlayer.tables.columns.truth_words import ordered_pair
from mlayer.tables.fit.plan import Plan
from mlayer.tables.reader.missing_words import MISSING_WORDS
from mlayer.tables.reader.source import Source, pandas_module
from mlayer.tables.remarks import Remark, near_columns
from mlayer.tables.target import AUTO, REGRESSION, WITHOUT_TARGET, Target, learn_target, settle_task
from mlayer.tables.totals import without_totals

if TYPE_CHECKING:
    from pandas import DataFrame, Series


@dataclass(frozen=True)
class Settled:
    """A target column with its task: "classification" or "regression", why, and remarks."""

    column: Series
    task: str
    reason: str
    remarks: list[Remark]


@dataclass(frozen=True)
class Labeled:
    """Rows with a known target: what a fit learns from.

    Attributes:
        frame: the raw columns without the target.
        target: name, task and classes.
        truth: (rows,) as :meth:`Target.encode` gives them, nothing missing.
        reason: why this task.
        remarks: notes for the user about the target.
    """

    frame: DataFrame
    target: Target
    truth: AnyArray
    reason: str
    remarks: list[Remark]

    def with_positive(self, positive: str | None) -> Labeled:
        """The rows with this class as the positive one, the second of two; as they are if None."""
        if positive is None:
            return self
        names = [str(name) for name in self.target.classes]
        if len(names) != 2:
            came = "a quantity" if not names else f"{len(names)} classes"
            raise ArgumentError("positive", "used with two classes", came, "Leave it out.")
        if positive not in names:
            raise ArgumentError(
                "positive", f"one of the classes {names[0]!r} and {names[1]!r}", repr(positive), "Choose one."
            )
        if positive == names[1]:
            return self
        target = replace(self.target, classes=self.target.classes[::-1])
        reason = self.reason.removesuffix(_positive(self.target, self.truth)) + _positive(target)
        return replace(self, target=target, truth=1 - self.truth, reason=reason)


def _positive(target: Target, truth: AnyArray | None = None) -> str:
    """The positive class, in words; with the rule where the counts of rows decide."""
    if len(target.classes) != 2:
        return ""
    said = f"; its positive class is {str(target.classes[1])!r}"
    words = [label for label in target.classes if isinstance(label, str)]
    if (
        truth is not None
        and words
        and ordered_pair(words) is None
        and (truth == 1).sum() < (truth == 0).sum()
    ):
        said += ", the rarer one"
    return said


def label(frame: DataFrame, target: str, task: str = AUTO) -> Labeled:
    """The rows of a raw table whose target is known, the task settled.

    Args:
        frame: the table.
        target: the column to predict.
        task: "classification", "regression", or "auto" to have it guessed.
    """
    Plan(target, task)  # checks both
    names = list(map(str, frame.columns))
    if target not in names:
        raise ArgumentError("target", "a column of the table", repr(target), near_columns(target, names))
    if not len(frame):
        raise ArgumentError(
            "the table", "of rows to learn from", "none: names of columns only", "Check how it was written."
        )
    frame, said = without_totals(frame)
    column = frame[target]
    return _labeled(frame, Settled(column, *settle_task(column, task), said))


def read_with_target(source: Source, target: str, task: str = AUTO, rows: int | None = None) -> Labeled:
    """The rows of a file whose target is known, the task settled and the target as it is written.

    Args:
        source: from :func:`open_table`.
        target: the column to predict.
        task: "classification", "regression", or "auto" to have it guessed.
        rows: the first ones only.
    """
    if not isinstance(source, Source):
        raise ArgumentTypeError("source", "a Source", brief(source), "Open a file with open_table(path).")
    Plan(target, task)  # checks both
    source.check_target(target)
    frame = source.read(rows, text=_codes(source, target), verbatim=target)
    if source.dialect is None or not len(frame):  # parquet has types
        return label(frame, target, task)
    frame, said = without_totals(frame)
    settled = read_target(frame[target], task, source.dialect.decimal)
    return _labeled(frame, replace(settled, remarks=[*said, *settled.remarks]))


def _codes(source: Source, target: str) -> list[str]:
    """Columns of a text table whose cells have zeros in front, such as postal codes: they stay text."""
    rows = () if source.dialect is None else source.dialect.rows
    return [
        name
        for place, name in enumerate(source.columns)
        if name != target
        and are_codes(
            row[place] for row in rows if len(row) > place and row[place] and row[place] not in MISSING_WORDS
        )
    ]


def _labeled(frame: DataFrame, settled: Settled) -> Labeled:
    target = learn_target(settled.column, settled.task)
    truth, said = target.encode(settled.column)
    known = np.flatnonzero(truth >= 0 if target.classifies else np.isfinite(truth))
    rest = frame.drop(columns=target.name).iloc[known]
    words = sum(remark.count for remark in settled.remarks if remark.kind == "target")  # reported already
    said = [replace(r, count=r.count - words) if r.text == WITHOUT_TARGET else r for r in said]
    said = [remark for remark in said if remark.count]
    remarks = [*settled.remarks, *_as_written(settled.column, target), *said]
    reason = settled.reason + _positive(target, truth[known])
    return Labeled(rest, target, truth[known], reason, remarks)


def _as_written(column: Series, target: Target) -> list[Remark]:
    """Remarks about how the cells of the target are written."""
    if not target.classifies:
        return read_numbers(target.name, column)[2]
    texts = [text for text in as_text(column) if text is not None]
    return merged_remark(target.name, texts, merged_variants(texts)[1])


def read_target(texts: Series, task: str, decimal: str = ".") -> Settled:
    """The target from its cells as text, words for missing cells included, and its task.

    A quantity is read as numbers. Classes become numbers or truth values only where these are written as
    Python writes them, so that a label looks as it did in the table and no two of them are put together.

    Args:
        texts: the column, read as text.
        task: "classification", "regression" or "auto".
        decimal: the sign in its numbers.

    >>> import pandas
    >>> read_target(pandas.Series(["007", "7", "NA"], name="y"), "classification").column.tolist()
    ['007', '7', None]
    >>> read_target(pandas.Series(["7", "8", "7"], name="y"), "classification").column.tolist()
    [7, 8, 7]
    """
    pandas = pandas_module()
    name = texts.name
    cells = [cell.strip() if isinstance(cell, str) else "" for cell in texts]
    counts = Counter(cell for cell in cells if cell in MISSING_WORDS)
    said = "rows hold {!r}, a word for a missing cell, and were left out; rename it if it is a class"
    one = "row holds {!r}, a word for a missing cell, and was left out; rename it if it is a class"
    remarks = [
        Remark("target", str(name), n, said.format(word), one=one.format(word))
        for word, n in sorted(counts.items())
    ]
    known = pandas.Series(
        [None if not cell or cell in MISSING_WORDS else cell for cell in cells],
        index=texts.index,
        name=name,
        dtype=object,
    )
    numbers = _numbers(known, decimal)
    task, reason = settle_task(known if numbers is None else numbers, task)
    column, labels = known, set(known.dropna())
    if task == REGRESSION:
        column = known if numbers is None else numbers
    elif labels == {"True", "False"}:
        truths = known.map({"True": True, "False": False})
        column = truths if known.isna().any() else truths.astype(bool)
    elif numbers is not None and labels and _plain(labels):
        column = numbers
    else:
        remarks += _alike(str(name), labels, decimal)
    return Settled(column, task, reason, remarks)


def _numbers(known: Series, decimal: str) -> Any:
    """The cells as numbers, if all are."""
    pandas = pandas_module()
    text = known if decimal == "." else known.str.replace(decimal, ".", regex=False)
    try:
        return pandas.to_numeric(text, errors="raise")
    except (ValueError, TypeError):
        return None


def _plain(labels: set[str]) -> bool:
    """Whether each label is written as Python writes its number: all integers, or all with a point."""
    return all(_same(label, int) for label in labels) or all(_same(label, float) for label in labels)


def _same(label: str, kind: type[int | float]) -> bool:
    try:
        return str(kind(label)) == label
    except ValueError:
        return False


def _alike(name: str, labels: set[str], decimal: str) -> list[Remark]:
    """Labels that are one number, written in several ways."""
    ways: dict[float, list[str]] = {}
    for label in sorted(labels):
        try:
            ways.setdefault(float(label.replace(decimal, ".")), []).append(label)
        except ValueError:
            continue
    double = [same for same in ways.values() if len(same) > 1]
    if not double:
        return []
    said = "numbers are written in several ways, and each way is a separate class"
    one = "number is written in several ways, and each way is a separate class"
    return [Remark("classes", name, len(double), said, True, " and ".join(double[0]), one)]

"""The target of a text table, as it is written: 007 is no 7, and a class may be named None."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from mlayer.checks import brief, one_of
from mlayer.errors import ArgumentTypeError
from mlayer.tables.remarks import Remark
from mlayer.tables.source import MISSING_WORDS, Source, pandas_module
from mlayer.tables.task import AUTO, CLASSIFICATION, REGRESSION, guess_task

if TYPE_CHECKING:
    from pandas import DataFrame, Series


def read_with_target(
    source: Source, target: str, task: str = "auto", rows: int | None = None
) -> tuple[DataFrame, list[Remark]]:
    """A table to learn from, its target as it is written, and what is to be said about the target.

    Args:
        source: from :func:`open_table`.
        target: the column to predict.
        task: "classification", "regression" or "auto".
        rows: the first ones only.
    """
    if not isinstance(source, Source):
        raise ArgumentTypeError("source", "a Source", brief(source), "Open a file with open_table(path).")
    one_of("task", task, (AUTO, CLASSIFICATION, REGRESSION), "Leave it out to have it guessed.")
    source.check_target(target)
    frame = source.read(rows, verbatim=target)
    if source.dialect is None:  # parquet has types
        return frame, []
    frame[target], said = read_target(frame[target], task, source.dialect.decimal)
    return frame, said


def read_target(texts: Series, task: str, decimal: str = ".") -> tuple[Series, list[Remark]]:
    """The target from its cells as text, missing words and all.

    A quantity is read as numbers. Classes become numbers or truth values only where these are written as
    Python writes them, so that a label looks as it did in the table and no two of them are put together.

    Args:
        texts: the column, read as text.
        task: "classification", "regression" or "auto".
        decimal: the sign in its numbers.

    >>> import pandas
    >>> read_target(pandas.Series(["007", "7", "NA"], name="y"), "classification")[0].tolist()
    ['007', '7', None]
    >>> read_target(pandas.Series(["7", "8", "7"], name="y"), "classification")[0].tolist()
    [7, 8, 7]
    """
    pandas = pandas_module()
    name = texts.name
    cells = [cell.strip() if isinstance(cell, str) else "" for cell in texts]
    counts = Counter(cell for cell in cells if cell in MISSING_WORDS)
    said = "rows hold {!r}, a word for a missing cell, and were left out; rename it if it is a class"
    remarks = [Remark("target", str(name), n, said.format(word)) for word, n in sorted(counts.items())]
    known = pandas.Series(
        [None if not cell or cell in MISSING_WORDS else cell for cell in cells],
        index=texts.index,
        name=name,
        dtype=object,
    )
    numbers = _numbers(known, decimal)
    if numbers is not None and task not in (CLASSIFICATION, REGRESSION):
        task = guess_task(numbers)[0]
    if task == REGRESSION:
        return known if numbers is None else numbers, remarks
    labels = set(known.dropna())
    if labels == {"True", "False"}:
        truths = known.map({"True": True, "False": False})
        return (truths if known.isna().any() else truths.astype(bool)), remarks
    if numbers is not None and labels and _plain(labels):
        return numbers, remarks
    return known, remarks + _alike(str(name), labels, decimal)


def _numbers(known: Series, decimal: str) -> Any:
    """As numbers, if all cells are."""
    pandas = pandas_module()
    text = known if decimal == "." else known.str.replace(decimal, ".", regex=False)
    try:
        return pandas.to_numeric(text, errors="raise")
    except (ValueError, TypeError):
        return None


def _plain(labels: set[str]) -> bool:
    """Does each label look as Python writes its number, all as whole numbers or all with a point?"""
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
    said = "numbers are written in several ways, and each way is a class of its own"
    return [Remark("classes", name, len(double), said, True, " and ".join(double[0]))]

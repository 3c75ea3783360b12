"""Predictions for a table of any size: read, predicted and written in pieces, all or nothing."""

from __future__ import annotations

import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from mlayer.checks import brief, flag, function, instance
from mlayer.disk import replace_file
from mlayer.errors import ArgumentError, ArgumentTypeError, in_one_line
from mlayer.numerics.arrays import AnyArray
from mlayer.tables.model import Predictions, TableModel
from mlayer.tables.reader.source import Source, pandas_module
from mlayer.tables.remarks import Remark, merged
from mlayer.tables.totals import MOST_TOTALS, without_totals

if TYPE_CHECKING:
    from pandas import DataFrame

_CSV, _PARQUET = (".csv", ".txt"), (".parquet", ".pq")
_SPOOL = 50_000_000  # bytes of output kept in memory before they go to a temporary file
_LIST = 20  # names that a message lists
# What starts a formula in Excel, LibreOffice or Google Sheets, full-width and small signs included.
_SIGNS = frozenset("=+-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b")
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
# Spreadsheets take these for the ends of cells too, whatever the file is delimited by.
_ENDS = re.compile(r"([;|\t\r\n])")


@dataclass
class Prediction:
    """The result of predicting a table.

    Attributes:
        rows: predicted.
        remarks: notes for the user.
        metrics: if the table had the target column; else empty.
        measured_rows: the rows behind the metrics: with a known target and a finite prediction.
    """

    rows: int = 0
    remarks: list[Remark] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    measured_rows: int = 0


def predict_table(
    model: TableModel,
    source: Source,
    out: Path | IO[str],
    *,
    proba: bool = False,
    keep: bool = False,
    strict: bool = False,
    interval: float | None = None,
    spreadsheet: bool = False,
    on_rows: Callable[[int], None] | None = None,
) -> Prediction:
    """Write a column "prediction" with one row for each row of the table; none for totals at its end.

    Args:
        model: the model.
        source: the raw table; columns in any order, more than needed, with or without the target.
        out: a file ending in .csv or .parquet, or a stream that gets csv. Nothing is left of it on failure.
        proba: add a column "p(class)" for each class.
        keep: put the columns of the table in front.
        strict: refuse what would otherwise only be reported, such as unseen categories and unreadable cells.
        interval: of a quantity: add columns "low" and "high", which hold the truth with this probability.
        spreadsheet: put an apostrophe in front of text that a spreadsheet would run as a formula; csv only.
        on_rows: called with the number of rows done.
    """
    instance("model", model, TableModel, "a TableModel", "Read one with load_table_model(path).")
    instance("source", source, Source, "a Source", "Open a file with open_table(path).")
    if not isinstance(out, Path) and not hasattr(out, "write"):
        raise ArgumentTypeError("out", "a pathlib.Path or a stream", brief(out), "Give Path(name).")
    for name, value in (("proba", proba), ("keep", keep), ("strict", strict), ("spreadsheet", spreadsheet)):
        flag(name, value)
    function("on_rows", on_rows, "(rows)")
    if proba and not model.target.classifies:
        raise ArgumentError("proba", "used with a classifier", "a regression model", "Leave it out.")
    if spreadsheet and isinstance(out, Path) and out.suffix.lower() in _PARQUET:
        raise ArgumentError("spreadsheet", "used with csv", out.name, "Leave it out, or write .csv.")
    if interval is not None:
        model.half_width(interval)  # refuses a classifier, and what is no probability
    model.schema.check(source.columns)
    result, truths, outputs = Prediction(), [], []

    def pieces() -> Iterator[DataFrame]:
        for frame, is_last in _and_whether_last(source.pieces(model.text_columns)):
            rows: DataFrame = frame
            totals: list[Remark] = []
            if is_last:
                fewest = 0 if result.rows else 1
                rows, totals = without_totals(
                    frame, fewest=fewest, features=model.schema.features, predicts=True
                )
            predictions = model.predict(rows)
            result.remarks = merged([*result.remarks, *totals, *predictions.remarks])
            if strict:
                refuse(result.remarks)
            if model.target.name in frame.columns:
                truth, said = model.target.encode(rows[model.target.name])
                result.remarks = merged([*result.remarks, *said])
                truths.append(truth)
                outputs.append(predictions.outputs)
            result.rows += len(rows)
            if on_rows is not None:
                on_rows(result.rows)
            half = None if interval is None else model.half_widths(rows, interval, predictions.outputs)
            if totals:  # one line of output for each line of the table
                half = None if half is None else _longer(half, len(frame))
                predictions = replace(predictions, outputs=_longer(predictions.outputs, len(frame)))
            answer = _answer(frame, predictions, proba, keep, half)
            yield without_formulas(answer) if spreadsheet else answer

    if isinstance(out, Path):
        write = _writer(out)
        replace_file(out, lambda temporary: write(temporary, _some(pieces(), source)))
    else:
        with tempfile.SpooledTemporaryFile(_SPOOL, "w+", encoding="utf-8", newline="") as spool:
            _write_csv(spool, _some(pieces(), source))
            spool.seek(0)
            while block := spool.read(1 << 16):
                out.write(block)
    if truths:
        truth = np.concatenate(truths)
        together = Predictions(np.concatenate(outputs), model.target, [])
        result.metrics = together.metrics(truth)
        known = (truth >= 0) if model.target.classifies else np.isfinite(truth)
        result.measured_rows = int((known & together.finite).sum())
    return result


def check_output(path: Path) -> None:
    """Check that the suffix names a format and that the folder exists."""
    _writer(path)
    if not path.parent.is_dir():
        raise ArgumentError(
            "the output", "in a folder that exists", str(path), f"Create {path.parent} first."
        )


def refuse(remarks: list[Remark]) -> None:
    """Raise, in strict mode, an error for what is otherwise only reported."""
    serious = [remark for remark in remarks if remark.strict]
    if serious:
        more = f" (and {len(serious) - _LIST} more)" if len(serious) > _LIST else ""
        raise ArgumentError(
            "the table",
            "without what --strict refuses",
            "; ".join(map(str, serious[:_LIST])) + more,
            "Correct the table (--drop COL leaves a column out of a fit), or leave out --strict.",
        )


def _and_whether_last(pieces: Iterator[DataFrame]) -> Iterator[tuple[DataFrame, bool]]:
    """Each piece, and whether it is the last one; a few rows at the end belong to the piece before them."""
    before = None
    for piece in pieces:
        if before is not None and len(piece) <= MOST_TOTALS:
            before = pandas_module().concat([before, piece])
            continue
        if before is not None:
            yield before, False
        before = piece
    if before is not None:
        yield before, True


def _longer(values: AnyArray, count: int) -> AnyArray:
    """The values with NaN at the end."""
    return np.concatenate([values, np.full((count - len(values), *values.shape[1:]), np.nan)])


def _some(pieces: Iterator[DataFrame], source: Source) -> Iterator[DataFrame]:
    empty = True
    for piece in pieces:
        empty = empty and not len(piece)
        yield piece
    if empty:
        raise ArgumentError(
            f"the table {source.path}", "of one row or more", "none", "Check how it was written."
        )


def _answer(
    frame: DataFrame, predictions: Predictions, proba: bool, keep: bool, half: AnyArray | None
) -> DataFrame:
    columns: dict[str, Any] = {name: frame[name] for name in frame.columns} if keep else {}
    columns[_free("prediction", columns)] = predictions.labels
    if half is not None:
        columns[_free("low", columns)] = predictions.outputs - half
        columns[_free("high", columns)] = predictions.outputs + half
    if proba:
        for place, label in enumerate(predictions.target.classes):
            columns[_free(f"p({label})", columns)] = predictions.outputs[:, place]
    return pandas_module().DataFrame(columns, index=frame.index)


def _free(name: str, taken: dict[str, AnyArray]) -> str:
    return f"{name} (mlayer)" if name in taken else name


def _writer(path: Path) -> Callable[[Path, Iterator[DataFrame]], None]:
    ending = path.suffix.lower()
    if ending in _CSV:
        return _csv_file
    if ending in _PARQUET:
        return _parquet_file
    raise ArgumentError("the output", "a file ending in .csv or .parquet", path.name, "Rename it.")


def _csv_file(path: Path, pieces: Iterator[DataFrame]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        _write_csv(file, pieces)


def _write_csv(file: Any, pieces: Iterator[DataFrame]) -> None:
    for number, piece in enumerate(pieces):
        piece.to_csv(file, index=False, header=number == 0, lineterminator="\n")


def _parquet_file(path: Path, pieces: Iterator[DataFrame]) -> None:
    import pyarrow
    import pyarrow.parquet

    writer = None
    try:
        for piece in pieces:
            try:
                schema = None if writer is None else writer.schema
                table = pyarrow.Table.from_pandas(piece, schema=schema, preserve_index=False)
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
                raise ArgumentError(
                    "the output", "of one type in each column, for parquet", in_one_line(error), "Write .csv."
                ) from None
            if writer is None:
                writer = pyarrow.parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def marked_as_text(cell: Any) -> Any:
    """A cell with an apostrophe in front if it is text that starts a formula; numbers stay as they are.

    So do the parts of a cell between signs that a spreadsheet may split it at.

    >>> [marked_as_text(cell) for cell in ("=1+1", "@SUM(A1)", "-1.5", -1.5, "a=b", None, "a;=1+1")]
    ["'=1+1", "'@SUM(A1)", '-1.5', -1.5, 'a=b', None, "a;'=1+1"]
    """
    if not isinstance(cell, str):
        return cell
    marked = "".join(f"'{part}" if _is_formula(part) else part for part in _ENDS.split(cell))
    return f"'{marked}" if cell[:1] in ("\t", "\r", "\n") else marked


def _is_formula(text: str) -> bool:
    """Whether a sign of a formula comes first, or behind blanks, quotes and what is not seen."""
    for character in text:
        if character in _SIGNS:
            return not _NUMBER.fullmatch(text.strip())
        if not (character == '"' or character.isspace() or unicodedata.category(character) in ("Cc", "Cf")):
            return False
    return False


def without_formulas(frame: DataFrame) -> DataFrame:
    """The table with :func:`marked_as_text` of its names and of its columns of text."""
    from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype

    def still(column: Any) -> bool:
        return is_numeric_dtype(column) or is_bool_dtype(column) or is_datetime64_any_dtype(column)

    safe = frame.copy()
    for name in frame.columns:
        if not still(frame[name].dtype):
            safe[name] = frame[name].astype(object).map(marked_as_text)
    return safe.rename(columns=marked_as_text)

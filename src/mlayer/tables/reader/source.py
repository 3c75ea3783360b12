"""A table on the disk: opened, looked at, and read whole, in part, or piece by piece."""

from __future__ import annotations

import gzip
import io
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlayer import memory
from mlayer.checks import brief, file_path, instance, integer, texts
from mlayer.disk import absent
from mlayer.errors import ArgumentError, FileFormatError, MissingPackageError
from mlayer.tables.reader.damage import reading
from mlayer.tables.reader.dialect import Dialect, sniff
from mlayer.tables.reader.metered import Metered
from mlayer.tables.reader.missing_words import MISSING_WORDS
from mlayer.tables.reader.parquet import batches, parquet_file, parquet_size, too_large, written_out
from mlayer.tables.remarks import counted, near_columns

if TYPE_CHECKING:
    from pandas import DataFrame

_TEXT = (".csv", ".tsv", ".txt", ".tab", ".dat", "")
_PARQUET = (".parquet", ".pq")
_SMALL = 50_000_000  # bytes that are read without asking how much memory there is
_DEFLATE = 1032  # gzip makes nothing smaller than by this factor
_COPIES = 3  # the frame, a part of it, and the encoded numbers
_COLUMN = 20_000  # bytes of memory for a column without rows, measured with 200,000 of them
_MOST_COLUMNS = 100_000  # pandas takes seconds for one row of this many
_TEXT_SHARE = 8  # text that is read at once may take this share of the memory
_PIECE = 64  # and a piece of a table is planned with this share
CHUNK = 50_000  # rows read at once by `predict`


@dataclass(frozen=True)
class Source:
    """A csv or parquet file whose head has been read.

    Attributes:
        path: the file.
        columns: the names in the file.
        dialect: for text tables.
    """

    path: Path
    columns: tuple[str, ...]
    dialect: Dialect | None = None

    @property
    def description(self) -> str:
        """A description for messages."""
        kind = "parquet" if self.dialect is None else f"csv, {self.dialect.names}"
        return f"{self.path.name}: {kind}, {counted(len(self.columns), 'column')}"

    def check_target(self, target: str) -> None:
        """Raise if there is no such column, before a large table is read."""
        instance("target", target, str, "the name of a column", "For example 'price'.")
        if target in self.columns and len(self.columns) > 1:
            return
        hint = near_columns(target, self.columns)
        if len(self.columns) == 1:
            hint = "The table has one column; if it is delimited in another way, pass --delimiter."
        elif self.dialect is not None and self.dialect.header_looks_like_data:
            hint += " The first line looks like data: a table starts with the names of its columns."
        got = f"the only column, {target!r}" if target in self.columns else repr(target)
        raise ArgumentError("target", "a column of the table, with others to learn from", got, hint)

    def read(
        self, rows: int | None = None, *, text: Collection[str] = (), verbatim: str | None = None
    ) -> DataFrame:
        """The table, or its first ``rows`` rows.

        Args:
            rows: None for all.
            text: columns of a text table that are not turned into numbers.
            verbatim: a column of a text table that is read as text, words that mean missing included.

        Raises:
            FileFormatError: it cannot be parsed.
            ArgumentError: it is larger than the memory.
        """
        if rows is not None:
            integer("rows", rows, 1)
        texts("text", text, "names of columns", '("id",)')
        if verbatim is not None and not (isinstance(verbatim, str) and verbatim in self.columns):
            hint = near_columns(verbatim, self.columns) if isinstance(verbatim, str) else "Give its name."
            raise ArgumentError("verbatim", "a column of the table", brief(verbatim), hint)
        self._check_width()
        if rows is None:
            self._check_memory()
        if self.dialect is not None:
            options: dict[str, Any] = {"dtype": dict.fromkeys(text, str)}
            if verbatim is not None:
                words = ["", *MISSING_WORDS]
                options["dtype"][verbatim] = str
                options["keep_default_na"] = False
                options["na_values"] = {name: words for name in self.columns if name != verbatim}
            if rows is None:
                frame = self._csv(self.dialect, **options)
            else:
                with self._metered() as stream:
                    frame = self._csv(self.dialect, stream, nrows=rows, **options)
        else:
            frame = self._parquet(rows)
        return frame

    def _parquet(self, rows: int | None) -> DataFrame:
        """All rows, or the first ones, if they fit into the memory."""
        free = memory.available_memory()
        parts, count, need = [], 0, 0
        for part, size in batches(self.path, list(self.columns), min(rows or CHUNK, CHUNK)):
            count, need = count + len(part), need + _COPIES * size
            if free is not None and need > max(free, _SMALL):
                raise too_large(self.path, need, free)
            # Long texts are kept as references as long as possible; short ones take less when written out.
            large = part.nbytes > size
            parts.append(written_out(self.path, list(self.columns), [part]) if large else part)
            if rows is not None and count >= rows:
                parts[-1] = parts[-1].slice(0, len(part) - (count - rows))
                break
        return self._frame(parts)

    def pieces(self, text: Collection[str] = (), size: int = CHUNK) -> Iterator[DataFrame]:
        """The table in pieces of ``size`` rows; the columns ``text`` are not turned into numbers."""
        integer("size", size, 1)
        texts("text", text, "names of columns", '("id",)')
        if self.dialect is None:
            for part, _ in batches(self.path, list(self.columns), size):
                yield self._frame([part])
            return
        # Fewer rows where they are long, by the first lines; lines that are far longer end in an error.
        free = memory.available_memory()
        if free is not None:
            size = max(1, min(size, int(max(free // _PIECE, _SMALL) / self.dialect.line_bytes)))
        with (
            self._metered() as stream,
            self._csv(self.dialect, stream, chunksize=size, dtype=dict.fromkeys(text, str)) as reader,
        ):
            while (piece := self._next(reader)) is not None:
                yield piece
                stream.raw.again()

    def _next(self, pieces: Iterator[Any]) -> Any:
        with self._reading():
            return next(pieces, None)

    def _metered(self) -> Any:
        """The file as bytes, which end in an error where they would not fit into the memory."""
        free = memory.available_memory()
        most = None if free is None else max(4 * _SMALL, free // _TEXT_SHARE)

        def error(count: int) -> ArgumentError:
            return too_large(self.path, _TEXT_SHARE * count, free or 0)

        with self._reading():
            return io.BufferedReader(Metered(self.path, most, error), 1 << 18)

    def _csv(self, dialect: Dialect, stream: Any = None, **options: Any) -> Any:
        pandas = pandas_module()
        with self._reading():
            return pandas.read_csv(
                self.path if stream is None else stream,
                names=list(self.columns),
                header=0,
                sep=dialect.delimiter,
                decimal=dialect.decimal,
                encoding=dialect.encoding,
                low_memory=False,  # else a column may be part numbers, part text
                index_col=False,  # else a row that is too long shifts all names
                skipinitialspace=True,
                skiprows=list(dialect.skipped) or None,
                **options,
            )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn errors and warnings of a parser into errors that name the file."""
        if self.dialect is None:
            with reading(self.path, "a complete parquet file", "Get it again."):
                yield
            return
        kind = f"a table with as many fields in each line as in the header, read with {self.dialect.names}"
        hint = "Correct the line, or pass --delimiter."
        with warnings.catch_warnings(), reading(self.path, kind, hint, self.dialect.encoding):
            warnings.simplefilter("error", pandas_module().errors.ParserWarning)
            yield

    def _frame(self, parts: list[Any]) -> DataFrame:
        """Columns as they are in the file: an index that pandas stored is ignored."""
        table = written_out(self.path, list(self.columns), parts)
        with self._reading():
            return table.to_pandas(ignore_metadata=True, date_as_object=False)

    def _unpacked(self, enough: int) -> int:
        """Bytes of text in a gzip file, counted in pieces until they are more than ``enough``."""
        count = 0
        with self._reading(), gzip.open(self.path) as file:
            while count <= max(enough, _SMALL) and (piece := file.read(1 << 20)):
                count += len(piece)
        return count

    def _check_width(self) -> None:
        """Raise where the columns alone, however few their rows, take more memory than is free."""
        free, need = memory.available_memory(), _COLUMN * len(self.columns)
        if free is not None and need > max(free, _SMALL):
            raise too_large(self.path, need, free)

    def _check_memory(self) -> None:
        """Refuse by the size of what is unpacked: a packed file may be a thousand times smaller."""
        free = memory.available_memory()
        size = self.path.stat().st_size
        packed = self.dialect is not None and self.path.suffix == ".gz"
        if free is None or (self.dialect is not None and size * (_DEFLATE if packed else 1) <= _SMALL):
            return
        if self.dialect is None:
            need = _COPIES * parquet_size(self.path).total
        else:
            with self._metered() as stream:
                sample = self._csv(self.dialect, stream, nrows=1000)
            row = sample.memory_usage(deep=True, index=False).sum() / max(1, len(sample))
            share = 1 + _COPIES * row / self.dialect.line_bytes  # bytes of memory for one of text
            text = self._unpacked(int(free / share)) if packed else size
            if text <= _SMALL:
                return
            need = int(share * text)
        if need > free:
            raise too_large(self.path, need, free)


def open_table(
    path: str | Path, *, delimiter: str | None = None, decimal: str | None = None, encoding: str | None = None
) -> Source:
    """Look at a csv or parquet file.

    Args:
        path: the file; its format is recognized by its suffix and its first bytes.
        delimiter: of a text table; guessed among comma, semicolon, tab and pipe if None.
        decimal: "." or ","; guessed if None.
        encoding: of a text table; if None UTF-8, UTF-16 with its mark, else cp1252.
    """
    path = file_path("path", path)
    if path.is_dir():
        raise ArgumentError("the table", "a file", f"the folder {path}", "Name one csv or parquet file.")
    if not path.exists():
        raise absent(path, (".csv", *_PARQUET), "Check the path.")
    if not path.is_file():
        # It is read more than once, and a pipe can be read only once.
        raise ArgumentError("the table", "a file", f"the pipe or device {path}", "Save it to a file first.")
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"PAR1":
        with reading(path, "a complete parquet file", "Get it again."):
            names = parquet_file(path).schema_arrow.names
        return Source(path, _distinct(path, tuple(n for n in names if not n.startswith("__index_level_"))))
    plain = Path(path.stem) if path.suffix == ".gz" else path
    if plain.suffix.lower() in _PARQUET:
        raise FileFormatError(
            path, "a parquet file, as its name says", "something else", "Name a text table .csv."
        )
    if plain.suffix.lower() not in _TEXT:
        raise FileFormatError(
            path,
            "csv or parquet",
            f"the ending {plain.suffix!r}",
            "Save it as csv or parquet; a text table may be named .csv, .tsv or .txt.",
        )
    dialect = sniff(path, delimiter=delimiter, decimal=decimal, encoding=encoding)
    names = tuple(name or f"Unnamed: {place}" for place, name in enumerate(dialect.header))
    return Source(path, _distinct(path, names), dialect)


def _distinct(path: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > _MOST_COLUMNS:
        raise FileFormatError(
            path,
            f"a table of at most {_MOST_COLUMNS:,} columns",
            f"{len(names):,}",
            "Each row is one example: transpose it, or keep the columns that matter.",
        )
    double = sorted(name for name, count in Counter(names).items() if count > 1)
    if double:
        raise FileFormatError(
            path,
            "a table whose columns have distinct names",
            f"several columns named {', '.join(map(repr, double[:5]))}",
            "Rename them.",
        )
    return names


def pandas_module() -> Any:
    """pandas, imported when first needed."""
    try:
        import pandas
    except ImportError:
        raise MissingPackageError("reading tables", "pandas", "pip install 'mlayer[cli]'") from None
    return pandas

"""A table on the disk: opened, looked at, and read whole, in part, or piece by piece."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlayer.checks import brief, file_path, integer, texts
from mlayer.disk import absent
from mlayer.errors import ArgumentError, ArgumentTypeError, FileFormatError, MissingPackageError
from mlayer.tables import memory
from mlayer.tables.remarks import near_columns
from mlayer.tables.sniff import Dialect, sniff

if TYPE_CHECKING:
    from pandas import DataFrame

_TEXT = (".csv", ".tsv", ".txt", ".tab", ".dat", "")
_PARQUET = (".parquet", ".pq")
_SMALL = 50_000_000  # bytes that are read without asking how much memory there is
_GZIP = 8  # a guess: text packs about that well
_COPIES = 3  # the frame, a part of it, and the encoded numbers
CHUNK = 50_000
# In a text table: as pandas has it.
MISSING_WORDS = frozenset(
    [
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "<NA>",
        "N/A",
        "NA",
        "NULL",
        "NaN",
        "None",
        "n/a",
        "nan",
        "null",
    ]
)


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
    def said(self) -> str:
        """For messages."""
        kind = "parquet" if self.dialect is None else f"csv, {self.dialect.names}"
        return f"{self.path.name}: {kind}, {len(self.columns)} columns"

    def check_target(self, target: str) -> None:
        """Is there such a column? Asked before a large table is read."""
        if not isinstance(target, str):
            raise ArgumentTypeError("target", "the name of a column", brief(target), "For example 'price'.")
        if target in self.columns and len(self.columns) > 1:
            return
        hint = near_columns(target, self.columns)
        if len(self.columns) == 1:
            hint = "The table has one column; if it is delimited in another way, pass --delimiter."
        elif self.dialect is not None and self.dialect.header_looks_like_data:
            hint += " The first line looks like data: a table starts with the names of its columns."
        got = f"the only column, {target!r}" if target in self.columns else repr(target)
        raise ArgumentError("target", "a column of the table, beside others to learn from", got, hint)

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
        if rows is None:
            self._check_memory()
        if self.dialect is not None:
            options: dict[str, Any] = {"dtype": dict.fromkeys(text, str)}
            if verbatim is not None:
                words = ["", *MISSING_WORDS]
                options["dtype"][verbatim] = str
                options["keep_default_na"] = False
                options["na_values"] = {name: words for name in self.columns if name != verbatim}
            frame = self._csv(self.dialect, nrows=rows, **options)
        elif rows is None:
            frame = self._frame(_parquet(self.path).read())
        else:
            file = _parquet(self.path)
            frame = self._frame(next(file.iter_batches(batch_size=rows), file.schema_arrow.empty_table()))
        return frame

    def pieces(self, text: Collection[str] = (), size: int = CHUNK) -> Iterator[DataFrame]:
        """The table in pieces of ``size`` rows; the columns ``text`` are not turned into numbers."""
        integer("size", size, 1)
        texts("text", text, "names of columns", '("id",)')
        if self.dialect is None:
            for batch in _parquet(self.path).iter_batches(batch_size=size):
                yield self._frame(batch)
            return
        reader = self._csv(self.dialect, chunksize=size, dtype=dict.fromkeys(text, str))
        try:
            with reader:
                while True:
                    with self._complaints():
                        piece = next(reader, None)
                    if piece is None:
                        return
                    yield piece
        except ValueError as error:  # from the reader's own context
            raise self._unreadable(error) from None

    def _csv(self, dialect: Dialect, **options: Any) -> Any:
        pandas = pandas_module()
        with self._complaints():
            return pandas.read_csv(
                self.path,
                names=list(self.columns),
                header=0,
                sep=dialect.delimiter,
                decimal=dialect.decimal,
                encoding=dialect.encoding,
                low_memory=False,  # else a column may be part numbers, part text
                index_col=False,  # else a row that is too long shifts all names
                skipinitialspace=True,
                **options,
            )

    def _complaints(self) -> _Complaints:
        return _Complaints(self)

    def _unreadable(self, error: Exception) -> FileFormatError:
        if isinstance(error, UnicodeError):
            return FileFormatError(
                self.path, "text in UTF-8", f"other bytes ({error})", "Pass --encoding, for example latin-1."
            )
        split = self.dialect.names if self.dialect is not None else "parquet"
        return FileFormatError(
            self.path,
            "a table with as many fields in each line as in the header",
            f"something else, read with {split} ({str(error).strip()})",
            "Mend the line, or pass --delimiter.",
        )

    def _frame(self, data: Any) -> DataFrame:
        """Columns as they are in the file: what pandas kept of an index is no concern of ours."""
        return data.select(list(self.columns)).to_pandas(ignore_metadata=True, date_as_object=False)

    def _check_memory(self) -> None:
        free = memory.available_memory()
        size = self.path.stat().st_size
        if free is None or size <= _SMALL:
            return
        if self.dialect is None:
            meta = _parquet(self.path).metadata
            need = _COPIES * sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        else:
            text = size * (_GZIP if self.path.suffix == ".gz" else 1)
            sample = self._csv(self.dialect, nrows=1000)
            row = sample.memory_usage(deep=True, index=False).sum() / max(1, len(sample))
            need = int(text + _COPIES * row * text / self.dialect.line_bytes)
        if need > free:
            raise ArgumentError(
                f"the table {self.path}",
                f"smaller than the memory: about {memory.readable(need)} would be needed to read it whole",
                f"{memory.readable(free)} of free memory",
                "Use its first rows with --rows N, for example --rows 100000 (shuffle a sorted file first, "
                "for example with shuf), or keep the columns that matter and save them as parquet.",
            )


class _Complaints:
    """Turns what pandas raises and warns of while parsing into our error."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.catcher = warnings.catch_warnings()

    def __enter__(self) -> None:
        self.catcher.__enter__()
        warnings.simplefilter("error", pandas_module().errors.ParserWarning)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.catcher.__exit__(kind, error, trace)
        if isinstance(error, ValueError | pandas_module().errors.ParserWarning):
            raise self.source._unreadable(error) from None


def open_table(
    path: str | Path, *, delimiter: str | None = None, decimal: str | None = None, encoding: str | None = None
) -> Source:
    """Look at a csv or parquet file.

    Args:
        path: the file; what it is is told by its ending, and by its first bytes.
        delimiter: of a text table; guessed among comma, semicolon, tab and pipe if None.
        decimal: "." or ","; guessed if None.
        encoding: of a text table; UTF-8 if None (UTF-16 with its mark).
    """
    path = file_path("path", path)
    if path.is_dir():
        raise ArgumentError("the table", "a file", f"the folder {path}", "Name one csv or parquet file.")
    if not path.exists():
        raise absent(path, (".csv", *_PARQUET), "Check the path.")
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"PAR1":
        names = _parquet(path).schema_arrow.names
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
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise FileFormatError(
            path,
            "a table whose columns have names of their own",
            f"several columns named {', '.join(map(repr, double[:5]))}",
            "Rename them.",
        )
    return names


def _parquet(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingPackageError("reading parquet", "pyarrow", "pip install 'mlayer[cli]'") from None
    try:
        return pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise FileFormatError(
            path, "a parquet file", f"something else, or half of it ({error})", "Get it again."
        ) from None


def pandas_module() -> Any:
    """pandas, imported when first needed."""
    try:
        import pandas
    except ImportError:
        raise MissingPackageError("reading tables", "pandas", "pip install 'mlayer[cli]'") from None
    return pandas

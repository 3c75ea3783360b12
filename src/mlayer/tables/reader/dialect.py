"""The dialect of a text table: encoding, delimiter, decimal sign. Read from its first lines."""

from __future__ import annotations

import csv
import gzip
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mlayer.checks import brief, did_you_mean, instance
from mlayer.errors import ArgumentError, FileFormatError, in_one_line
from mlayer.tables.reader.damage import reading
from mlayer.tables.reader.heading import heading

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
_WORDS = {name: sign for sign, name in DELIMITERS.items()} | {"\\t": "\t", "space": " "}
_HEAD = 1 << 16  # bytes that are looked at, unless the header is longer
_LONGEST_HEADER = 1 << 26  # bytes
_LINES = 200  # that the guess of delimiter and decimal sign uses
_DECIMAL_COMMA = re.compile(r"^[+-]?\d+,\d+$")
_NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")


# The encoding of spreadsheets on Windows in western Europe and America.
WINDOWS = "cp1252"
# With its end, which may stand inside a quoted name. Not what else ends a line for Python, such as U+2028.
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class Dialect:
    """The dialect of a text table, and its first rows."""

    encoding: str
    delimiter: str
    decimal: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    line_bytes: float
    # Numbers of the records of the file, blank ones included, that are neither names nor rows.
    skipped: tuple[int, ...] = ()
    head: str = ""  # what was done to the head

    @property
    def names(self) -> str:
        """For messages: "delimiter comma"."""
        said = f"delimiter {DELIMITERS.get(self.delimiter, repr(self.delimiter))}"
        said += ", decimal comma" if self.decimal == "," else ""
        said += f", encoding {WINDOWS}" if self.encoding == WINDOWS else ""
        return said + (f", {self.head}" if self.head else "")

    @property
    def header_looks_like_data(self) -> bool:
        """Whether half of the names are numbers."""
        return 2 * sum(bool(_NUMBER.match(name.strip())) for name in self.header) >= len(self.header)


def sniff(
    path: Path, *, delimiter: str | None = None, decimal: str | None = None, encoding: str | None = None
) -> Dialect:
    """Look at the head of a text table; what is given is taken as given.

    Raises:
        FileFormatError: empty, not text, of another encoding, or one column with a delimiter inside.
    """
    wish = _WORDS.get(delimiter, delimiter) if isinstance(delimiter, str) else delimiter
    if wish is not None and (not isinstance(wish, str) or len(wish) != 1 or _delimits_nothing(wish)):
        hint = did_you_mean(str(delimiter), _WORDS, "For example ';' or tab; not a quote or a line end.")
        raise ArgumentError("delimiter", "one character", brief(delimiter), hint)
    size = _HEAD
    while True:
        encoding_used, lines, whole = _first_lines(path, size, encoding)
        sign = wish or _likeliest(lines)
        rows, ends, records = _rows(lines, sign)
        # A header that reaches the end of what was read may continue: in its line, or inside a quoted name.
        if whole or (rows and ends[0] < len(lines)):
            break
        if size >= _LONGEST_HEADER:
            raise FileFormatError(
                path,
                "a table whose first line, the names of its columns, ends within 64 MB",
                "a longer one",
                "Check for a quote that is not closed, or save the table as parquet.",
            )
        size *= 4
    if not rows:
        raise FileFormatError(
            path,
            "a table that starts with the names of its columns",
            f"a name of more than {csv.field_size_limit()} characters",
            "Check for a quote that is not closed, or shorten the name.",
        )
    encoding, lines = encoding_used, [line for line in lines if line.strip()][:_LINES]
    head = heading(rows)
    first = head.titles + 1 + head.below
    header = head.names
    if len(header) == 1:
        inside = [other for other in DELIMITERS if other != sign and other in header[0]]
        if inside:
            raise FileFormatError(
                path,
                "a table of several columns",
                f"one column, {header[0]!r}, with {DELIMITERS[inside[0]]}s inside, "
                f"when split at {DELIMITERS.get(sign, repr(sign))}s",
                f"Pass --delimiter {DELIMITERS[inside[0]]}, or leave it out.",
            )
    if decimal is None:
        decimal = "," if sign != "," and _decimal_commas(rows[first:]) else "."
    elif not isinstance(decimal, str) or decimal not in (".", ",") or decimal == sign:
        raise ArgumentError(
            "decimal", "'.' or ',', and not the delimiter", repr(decimal), "Leave it out to have it guessed."
        )
    width = sum(len(line.encode(encoding, "replace")) for line in lines[1:]) / max(1, len(lines) - 1)
    skipped: set[int] = set()
    if head.titles or head.below:
        skipped = set(range(records[first - 1] + 1)) - {records[head.titles]}
    return Dialect(
        encoding,
        sign,
        decimal,
        header,
        tuple(rows[first:]),
        max(width, 1.0),
        tuple(sorted(skipped)),
        head.description,
    )


def _delimits_nothing(sign: str) -> bool:
    return sign in '\r\n\0"' or unicodedata.category(sign) == "Cs"


def _first_lines(path: Path, size: int, encoding: str | None) -> tuple[str, list[str], bool]:
    """Encoding, complete lines with their ends, and whether they are all there are."""
    head, whole = _head(path, size)
    if not head.strip() and whole:
        raise FileFormatError(path, "a table", "an empty file", "Check how it was written.")
    encoding, text = _decode(path, head, whole, encoding)
    if "\0" in text:
        raise FileFormatError(path, "a text table or parquet", "binary data", "Save it as csv or parquet.")
    lines = _LINE.findall(text)
    return encoding, lines if whole else lines[:-1], whole  # the last is cut in the middle


def _rows(lines: list[str], sign: str) -> tuple[list[tuple[str, ...]], list[int], list[int]]:
    """The first rows, up to one that cannot be split.

    Returns:
        The rows; the number of lines up to the end of each; its number among the records of the file, with
        blank lines counted.
    """
    rows, ends, records = [], [], []
    reader = csv.reader(lines, delimiter=sign, skipinitialspace=True)
    try:
        for record, row in enumerate(reader):
            if len(row) < 2 and not "".join(row).strip():  # a blank line
                continue
            rows.append(tuple(field.strip() for field in row))
            ends.append(reader.line_num)
            records.append(record)
            if len(rows) == _LINES:
                break
    except csv.Error:  # a field beyond csv's limit
        pass
    return rows, ends, records


def _head(path: Path, size: int) -> tuple[bytes, bool]:
    with (
        reading(path, "a text table", "Get it again."),
        gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file,
    ):
        data = file.read(size + 1)
    if data[:4] == b"PK\x03\x04":
        raise FileFormatError(
            path, "csv or parquet", "a zip archive or a spreadsheet", "Save the sheet as csv, or unpack it."
        )
    return data[:size], len(data) <= size


def _decode(path: Path, head: bytes, whole: bool, encoding: str | None) -> tuple[str, str]:
    instance("encoding", encoding, str | None, "a name", "For example latin-1 or cp1252.")
    given = encoding is not None
    if encoding is not None:
        try:
            "a".encode(encoding, "replace")
        except ValueError:  # a NUL in its name, or one that is not for text, such as idna
            raise ArgumentError(
                "encoding", "one of text", repr(encoding), "For example latin-1 or cp1252."
            ) from None
        except LookupError:
            pass  # said below
    if encoding is None:
        encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    cuts = range(1 if whole else 4)  # a character may be cut at the end
    error: UnicodeError | None = None
    for cut in cuts:
        try:
            return encoding, head[: len(head) - cut].decode(encoding)
        except LookupError:
            raise ArgumentError(
                "encoding", "known to Python", repr(encoding), "For example latin-1 or cp1252."
            ) from None
        except UnicodeError as failure:
            error = failure
    if not given and (text := _windows_text(head)) is not None:
        return WINDOWS, text
    raise FileFormatError(
        path,
        f"text in {encoding}",
        f"other bytes ({in_one_line(error)})",
        "Pass --encoding, for example latin-1 or cp1252.",
    )


def _windows_text(head: bytes) -> str | None:
    """Bytes that are not UTF-8 in the encoding of spreadsheets on Windows; None if they are not that either.

    With control characters they are binary data. With letters that are valid UTF-8 they are a damaged file of
    that encoding.
    """
    if not head.decode("utf-8", "ignore").isascii() or _CONTROL.search(head):
        return None
    try:
        return head.decode(WINDOWS)
    except UnicodeError:
        return None


def _likeliest(lines: list[str]) -> str:
    """The delimiter that splits most lines into the same number of fields, and into more than one.

    That number is the header's, or the most frequent one: the first line may be a title.
    """
    best, best_score = ",", (0.0, 0)
    for sign in DELIMITERS:
        counts = [len(row) for row in _rows(lines, sign)[0]]
        for fields in {*counts[:1], *(number for number, _ in Counter(counts).most_common(1))}:
            if fields > 1:
                score = Counter(counts)[fields] / len(counts), fields
                best, best_score = max((best, best_score), (sign, score), key=lambda pair: pair[1])
    return best


def _decimal_commas(rows: list[tuple[str, ...]]) -> bool:
    """Whether there is a column of numbers with commas in them."""
    width = max((len(row) for row in rows), default=0)
    for place in range(width):
        values = [row[place] for row in rows if len(row) > place and row[place]]
        commas = sum(bool(_DECIMAL_COMMA.match(value)) for value in values)
        if commas and commas + sum(bool(_NUMBER.match(value)) for value in values) == len(values):
            return True
    return False

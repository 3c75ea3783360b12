"""Parquet files from anywhere: how much is really in them, and reading them without more memory than that.

What a file says of its sizes in its footer need not be true: kilobytes can unpack to any number of gigabytes.
The header of each page says what the decoder will ask for, so those are added up, without unpacking a page.
Repeated text needs care beyond that, for a page may name one long text in each of its rows: such columns are
decoded as references, and the length of the text that they refer to is counted before it is written out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mlayer import memory
from mlayer.errors import ArgumentError, MissingPackageError
from mlayer.tables.reader.damage import reading

_KIND, _HINT = "a complete parquet file", "Get it again."
_HEADER = 1 << 20  # bytes in which the header of a page must end; statistics are in it
_MOST_DEPTH = 16  # of structures in a header
_DELTA_BYTE_ARRAY = 7  # the encoding in which a text is the beginning of the one before it, and some more
_NUMBER = 8  # bytes that a cell takes at least, once it is decoded
# A batch of rows may take this share of the free memory, and at least this number of bytes.
_SHARE, _LEAST = 64, 1 << 26
_AT_ONCE = 1024  # values that Arrow decodes at least
_LONGEST = 2**31 - 1  # bytes of text in one array


@dataclass(frozen=True)
class Size:
    """The memory that decoding takes.

    Attributes:
        total: bytes of all rows, but for text that is repeated.
        row: bytes that a row may take, by the page where that is most.
        least: bytes that the decoder takes however few rows are asked for.
        repeated: bytes that repeated text in lists and structures may come to, at most.
    """

    total: int
    row: int
    least: int
    repeated: int


def parquet_file(path: Path, **options: Any) -> Any:
    """The file, its footer read."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingPackageError("reading parquet", "pyarrow", "pip install 'mlayer[cli]'") from None
    with reading(path, _KIND, _HINT):
        return pyarrow.parquet.ParquetFile(path, **options)


def parquet_size(path: Path) -> Size:
    """The memory that decoding the whole file takes, by the headers of its pages."""
    file = parquet_file(path)
    total = row = least = repeated = 0
    with reading(path, _KIND, _HINT), path.open("rb") as stream:
        groups = _groups(stream, path.stat().st_size, file.metadata.num_columns)
        for place in range(file.metadata.num_columns):
            column = file.schema.column(place)
            fixed = max(_NUMBER, column.length) if column.physical_type == "FIXED_LEN_BYTE_ARRAY" else _NUMBER
            widest, dictionary, values = 0, 0, 0
            for group in groups:
                for page in _pages(stream, group.chunks[place]):
                    total += page.unpacked + fixed * page.values
                    if page.dictionary:
                        dictionary = max(dictionary, page.unpacked)
                        continue
                    values += page.values
                    alone = column.max_repetition_level > 0 or page.encoding == _DELTA_BYTE_ARRAY
                    one = page.unpacked if alone else -(-page.unpacked // max(1, page.values))
                    widest = max(widest, one + fixed)
                    least = max(least, 0 if alone else min(_AT_ONCE, page.values) * (one + fixed))
                total += _NUMBER * group.rows
            row += widest
            repeated += dictionary * values if _nested(column) else 0
    return Size(total, row, least, repeated)


def _nested(column: Any) -> bool:
    """Whether this is text inside lists or structures."""
    return column.physical_type == "BYTE_ARRAY" and column.path != column.name


def batches(path: Path, columns: list[str], size: int) -> Iterator[tuple[Any, int]]:
    """Batches of up to ``size`` rows, smaller ones where rows are large, and the bytes that each takes.

    They are as they were decoded; :func:`written_out` makes tables of them.

    Raises:
        FileFormatError: it is damaged.
        ArgumentError: a row is larger than the memory.
    """
    free = memory.available_memory()
    budget = None if free is None else max(_LEAST, free // _SHARE)
    sizes = parquet_size(path)
    if free is not None and budget is not None:
        if sizes.least > free // 4:
            raise too_large(path, sizes.least, free)
        size = max(1, min(size, budget // max(1, sizes.row)))
    file = parquet_file(path)
    with reading(path, _KIND, _HINT):
        leaves = [file.schema.column(k) for k in range(file.metadata.num_columns)]
        # Text in lists can be decoded as references in one group of rows at a time, and not always.
        nested = sizes.repeated > (budget or 0)
        text = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        text = [leaf for leaf in text if nested or leaf in file.schema_arrow.names]
        every = range(file.metadata.num_row_groups)
        groups = [[group] for group in every] if nested else [list(every)]
    file = parquet_file(path, read_dictionary=text, pre_buffer=False)
    with reading(path, _KIND, _HINT):
        for some in groups:
            found = file.iter_batches(batch_size=size, row_groups=some, use_threads=False)
            while (batch := next(found, None)) is not None:
                batch.validate(full=True)  # damaged bytes may decode to offsets outside the data
                for part, need in _halves(batch.select(columns), budget):
                    if free is not None and need > min(free // 4, _LONGEST):
                        raise too_large(path, need, free)
                    yield part, need


def written_out(path: Path, columns: list[str], parts: list[Any]) -> Any:
    """One table of some batches or tables, with the types of the file and no references."""
    import pyarrow

    views = {pyarrow.string_view(): pyarrow.string(), pyarrow.binary_view(): pyarrow.binary()}
    schema = parquet_file(path).schema_arrow
    with reading(path, _KIND, _HINT):
        kinds = [schema.field(name).type for name in columns]
        wanted = pyarrow.schema([(n, views.get(k, k)) for n, k in zip(columns, kinds, strict=True)])
        tables = [
            pyarrow.table([part.column(one.name).cast(one.type) for one in wanted], schema=wanted)
            for part in parts
        ]
        return pyarrow.concat_tables([wanted.empty_table(), *tables])


def too_large(path: Path, need: int, free: int) -> ArgumentError:
    """The error for a table that is larger than the memory."""
    return ArgumentError(
        f"the table {path}",
        f"smaller than the memory: about {memory.readable(need)} would be needed to read it",
        f"{memory.readable(free)} of free memory",
        "Use its first rows with --rows N, for example --rows 100000 (shuffle a sorted file first, "
        "for example with shuf), or keep the columns that matter and save them as parquet.",
    )


def _length(array: Any) -> int:
    """Bytes of an array once its references are written out."""
    import pyarrow
    from pyarrow import compute

    kind = array.type
    if pyarrow.types.is_dictionary(kind):
        value = kind.value_type
        if pyarrow.types.is_primitive(value):
            return _NUMBER * len(array)
        lengths = compute.binary_length(array.dictionary).take(array.indices)
        return _NUMBER * len(array) + (compute.sum(lengths).as_py() or 0)
    if pyarrow.types.is_nested(kind):
        if pyarrow.types.is_map(kind):
            parts = [array.keys, array.items]
        else:
            parts = array.flatten() if pyarrow.types.is_struct(kind) else [array.flatten()]
        return _NUMBER * len(array) + sum(map(_length, parts))
    return max(int(array.nbytes), _NUMBER * len(array))


def _halves(batch: Any, most: int | None) -> Iterator[tuple[Any, int]]:
    """A batch with its length written out, in parts of at most ``most`` bytes, or of one row."""
    waiting = [batch]
    while waiting:
        part = waiting.pop()
        need = sum(map(_length, part.columns))
        if most is None or need <= most or len(part) <= 1:
            yield part, need
        else:
            half = len(part) // 2
            waiting += [part.slice(half), part.slice(0, half)]


# ---- The footer and the headers of pages, in Thrift's compact protocol. -----------------------------------


@dataclass(frozen=True)
class _Group:
    """Rows that are stored together: how many, and where the pages of each column begin and end."""

    rows: int
    chunks: list[tuple[int, int]]


def _groups(stream: IO[bytes], size: int, columns: int) -> list[_Group]:
    """The groups of rows that the footer names.

    Not asked of pyarrow, whose description of a column ends the process where the footer contradicts itself.
    """
    stream.seek(size - 8)
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(max(0, size - 8 - length))
    groups = []
    for group in _Cursor(stream.read(length)).fields().get(4) or []:
        chunks = [_chunk(column) for column in group.get(1) or []]
        if len(chunks) != columns:
            raise ValueError(f"{len(chunks)} columns in a group of rows of {columns}")
        groups.append(_Group(max(0, _whole(group, 3)), chunks))
    # Pages that many columns name would be read for each of them.
    named = sum(max(0, end - start) for group in groups for start, end in group.chunks)
    if named > size:
        raise ValueError(f"columns of {named} bytes in a file of {size}")
    return groups


def _chunk(column: dict[int, Any]) -> tuple[int, int]:
    about = column.get(3)
    if not isinstance(about, dict):
        raise ValueError("a column without a description")
    at, first = _whole(about, 9), about.get(11)
    # A table without rows has no data page, and 0 for its offset: no page is there, where the file begins.
    if type(first) is int and (0 < first < at or at == 0):
        at = first
    if at < 0:
        raise ValueError("a page before the file")
    return at, at + _whole(about, 7)


def _whole(fields: dict[int, Any], key: int) -> int:
    value = fields.get(key)
    if type(value) is not int:
        raise ValueError(f"no number in field {key}")
    return value


@dataclass(frozen=True)
class _PageHeader:
    unpacked: int
    values: int
    dictionary: bool
    encoding: int


def _pages(stream: IO[bytes], chunk: tuple[int, int]) -> Iterator[_PageHeader]:
    """The pages of a column in a group of rows, as the decoder will find them."""
    at, end = chunk
    while at < end:
        header, length = _header(stream, at)
        packed, unpacked = header.get(3), header.get(2)
        about = header.get(5) or header.get(7) or header.get(8) or {}
        if type(packed) is not int or type(unpacked) is not int or packed < 0 or unpacked < 0:
            raise ValueError("a page without its size")
        counts = [about.get(key, 0) if isinstance(about, dict) else 0 for key in (1, 4 if 8 in header else 2)]
        if not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError("a page without its number of values")
        yield _PageHeader(unpacked, counts[0], 7 in header, counts[1])
        at += length + packed


def _header(stream: IO[bytes], at: int) -> tuple[dict[int, Any], int]:
    """The fields of the header that begins here, and its length."""
    for size in (256, _HEADER):
        stream.seek(at)
        cursor = _Cursor(stream.read(size))
        try:
            return cursor.fields(), cursor.at
        except IndexError:  # it is longer than what was read
            continue
    raise ValueError("a page whose header does not end")


class _Cursor:
    """Reads one structure; of what it holds, only numbers, structures and lists of those are kept."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """Seven bits in each byte, the lowest first."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 70:
                raise ValueError("a number that does not end")

    def signed(self) -> int:
        value = self.number()
        return (value >> 1) ^ -(value & 1)

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise IndexError

    def fields(self, depth: int = 0) -> dict[int, Any]:
        if depth > _MOST_DEPTH:
            raise ValueError("a header that is too deep")
        found: dict[int, Any] = {}
        field = 0
        while (head := self.byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self.signed()
            found[field] = self.value(head & 15, depth)
        return found

    def value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self.byte()
        if kind in (4, 5, 6):
            return self.signed()
        if kind == 7:
            return self.skip(8)
        if kind == 8:
            return self.skip(self.number())
        if kind in (9, 10):
            head = self.byte()
            count = head >> 4 if head >> 4 < 15 else self.number()
            found = [self.element(head & 15, depth) for _ in range(count)]
            return found if head & 15 == 12 else None
        if kind == 12:
            return self.fields(depth + 1)
        raise ValueError(f"a header with a field of kind {kind}")

    def element(self, kind: int, depth: int) -> Any:
        """An element of a list: truth values take a byte there."""
        return self.byte() if kind in (1, 2) else self.value(kind, depth + 1)

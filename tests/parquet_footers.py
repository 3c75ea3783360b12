"""Parquet files that no writer makes: a footer in Thrift's compact protocol, written field by field."""

from __future__ import annotations

import struct
from pathlib import Path

_I32, _I64, _BYTES, _LIST, _STRUCT = 5, 6, 8, 9, 12


def varint(number: int) -> bytes:
    found = b""
    while True:
        number, low = number >> 7, number & 127
        found += bytes([low | (128 if number else 0)])
        if not number:
            return found


def zigzag(number: int) -> bytes:
    return varint(2 * number if number >= 0 else -2 * number - 1)


class Fields:
    """One structure; fields in ascending order."""

    def __init__(self) -> None:
        self._bytes, self._last = b"", 0

    def _add(self, field: int, kind: int, content: bytes) -> Fields:
        self._bytes += bytes([(field - self._last) << 4 | kind]) + content
        self._last = field
        return self

    def i32(self, field: int, value: int) -> Fields:
        return self._add(field, _I32, zigzag(value))

    def i64(self, field: int, value: int) -> Fields:
        return self._add(field, _I64, zigzag(value))

    def text(self, field: int, value: bytes) -> Fields:
        return self._add(field, _BYTES, varint(len(value)) + value)

    def inner(self, field: int, value: Fields) -> Fields:
        return self._add(field, _STRUCT, value.end())

    def several(self, field: int, kind: int, items: list[bytes]) -> Fields:
        head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind])
        return self._add(
            field, _LIST, head + (varint(len(items)) if len(items) >= 15 else b"") + b"".join(items)
        )

    def end(self) -> bytes:
        return self._bytes + b"\0"


def page(values: int, size: int) -> bytes:
    """The header of a data page of plain integers; its content is to follow."""
    about = Fields().i32(1, values).i32(2, 0).i32(3, 3).i32(4, 3)
    return Fields().i32(1, 0).i32(2, size).i32(3, size).inner(5, about).end()


def columns_on_one_place(
    path: Path, columns: int, body: bytes, values: int, *, levels: int = 0, described: bool = True
) -> None:
    """A table of integers whose columns all name the same pages.

    Args:
        path: the file.
        columns: of the table.
        body: its pages.
        values: of each column.
        levels: in a histogram of the column's definition levels, of which it has one; 0 for no histogram.
        described: whether columns have a description.
    """
    names = [b"c%d" % k for k in range(columns)]
    schema = [Fields().text(4, b"root").i32(5, columns).end()]
    schema += [Fields().i32(1, 1).i32(3, 0).text(4, name).end() for name in names]
    chunks = []
    for name in names:
        about = (
            Fields().i32(1, 1).several(2, _I32, [zigzag(0)]).several(3, _BYTES, [varint(len(name)) + name])
        )
        about.i32(4, 0).i64(5, values).i64(6, len(body)).i64(7, len(body)).i64(9, 4)
        if levels:
            about.inner(16, Fields().several(3, _I64, [zigzag(1)] * levels))
        chunk = Fields().i64(2, 4)
        chunks.append((chunk.inner(3, about) if described else chunk).end())
    group = Fields().several(1, _STRUCT, chunks).i64(2, len(body)).i64(3, values).end()
    footer = Fields().i32(1, 1).several(2, _STRUCT, schema).i64(3, values).several(4, _STRUCT, [group]).end()
    path.write_bytes(b"PAR1" + body + footer + struct.pack("<I", len(footer)) + b"PAR1")

"""Numeric arrays of a MATLAB 5 file: what SVHN needs, without scipy (docs/decisions/0011-small-readers.md).

Source: MathWorks, "MAT-File Format" (level 5): a header of 128 bytes, then elements of a type, a length and
content; arrays are elements of elements, numbers are stored columns first, elements may be compressed.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from mlayer.errors import FileFormatError, in_one_line

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_MOST_BYTES = 2**30
_NUMERIC_CLASSES = range(6, 16)


def read_mat(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The numeric arrays ``names`` of a file, in memory order: axes reversed, so last index first."""
    raw = memoryview(path.read_bytes())
    if len(raw) < 128 or bytes(raw[:6]) != b"MATLAB" or bytes(raw[126:128]) not in (b"IM", b"MI"):
        raise _wrong(path, "a MATLAB 5 .mat file", "another header")
    order = "<" if bytes(raw[126:128]) == b"IM" else ">"
    arrays: dict[str, np.ndarray] = {}
    try:
        at = 128
        while at < len(raw) and len(arrays) < len(names):
            kind, content, at = _element(raw, at, order)
            if kind == _COMPRESSED:
                kind, content, _ = _element(memoryview(_unpacked(content)), 0, order)
            if kind == _MATRIX:
                name, array = _array(content, order, names)
                if array is not None:
                    arrays[name] = array
    except (struct.error, ValueError, KeyError, zlib.error) as error:
        came = f"a damaged one ({in_one_line(error)})"
        raise _wrong(path, "a complete MATLAB 5 .mat file", came) from None
    absent = [name for name in names if name not in arrays]
    if absent:
        raise _wrong(path, f"a file with the arrays {', '.join(names)}", f"no {', '.join(absent)}")
    return arrays


def _wrong(path: Path, must_be: str, came: str) -> FileFormatError:
    return FileFormatError(path, must_be, came, "Get the file again from its source.")


def _unpacked(content: memoryview) -> bytes:
    """The content of a compressed element; one that unpacks to more than the limit is refused."""
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(content, _MOST_BYTES)
    if not unpacking.eof:
        raise ValueError("a truncated element, or one of more than a gigabyte")
    return data


def _element(raw: memoryview, at: int, order: str) -> tuple[int, memoryview, int]:
    """Type, content and the place of the next element."""
    (kind,) = struct.unpack_from(order + "I", raw, at)
    if kind >> 16:  # a small element: length and type share four bytes, four bytes of content follow
        return kind & 0xFFFF, raw[at + 4 : at + 4 + (kind >> 16)], at + 8
    (length,) = struct.unpack_from(order + "I", raw, at + 4)
    start = at + 8
    if start + length > len(raw):
        raise ValueError(f"an element of {length} bytes where {len(raw) - start} are left")
    padded = length if kind == _COMPRESSED else -(-length // 8) * 8
    return kind, raw[start : start + length], start + padded


def _array(content: memoryview, order: str, names: tuple[str, ...]) -> tuple[str, np.ndarray | None]:
    _, flags, at = _element(content, 0, order)
    (flag,) = struct.unpack_from(order + "I", flags)
    if flag & 0xFF not in _NUMERIC_CLASSES:
        return "", None
    _, sizes, at = _element(content, at, order)
    _, label, at = _element(content, at, order)
    name = bytes(label).decode("ascii", "replace")
    if name not in names:
        return name, None
    kind, numbers, _ = _element(content, at, order)
    shape = np.frombuffer(sizes, order + "i4")
    array = np.frombuffer(numbers, order + _NUMBERS[kind])
    return name, array.reshape(shape[::-1])

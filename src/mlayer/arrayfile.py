"""Files of numpy from anywhere, ``.npy`` and ``.npz``: no pickle, no more memory than the file accounts for.

A header of a hundred bytes can name an array of any size, and a packed member can unpack to any length; both
are looked at before an array is made.
"""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from mlayer.errors import in_one_line
from mlayer.memory import check_size
from mlayer.tensorfile import DamagedError

# What zipfile, zlib and numpy raise at damaged files, as fuzzing found (tests/reliability).
_DAMAGE = (
    *(ValueError, EOFError, AttributeError, TypeError, KeyError, IndexError, SyntaxError, OverflowError),
    *(MemoryError, NotImplementedError, RuntimeError, OSError, zipfile.BadZipFile, zlib.error, struct.error),
    *(tokenize.TokenError, RecursionError),
)
# An archive may unpack to this many bytes, or to this many times its size: trained numbers hardly pack.
_COPIES = 2  # of a file in memory
_MOST_MEMBERS, _SMALL, _LARGEST_RATIO, _MOST_BYTES = 10_000, 2**26, 16, 2**32


def read_array(path: Path) -> np.ndarray:
    """The array of a ``.npy`` file."""
    data = _bytes(path)
    try:
        if data[:2] == b"PK":
            raise ValueError("an archive")
        return _array(io.BytesIO(data), len(data))
    except _DAMAGE as error:
        raise DamagedError(_words(error)) from None


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file, by name."""
    data = _bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            members = packed.infolist()
            most = min(max(_SMALL, _LARGEST_RATIO * len(data)), _MOST_BYTES)
            if len(members) > _MOST_MEMBERS or sum(m.file_size for m in members) > most:
                raise ValueError(f"{len(members)} members, or more than {most} bytes unpacked")
            found = {}
            for member in members:
                with packed.open(member) as stream:
                    name = member.filename.removesuffix(".npy")
                    if name in found:  # of which each reader might believe another one
                        raise ValueError(f"an archive that names {name[:60]!r} twice")
                    found[name] = _array(stream, member.file_size)
            return found
    except _DAMAGE as error:
        raise DamagedError(_words(error)) from None


def _bytes(path: Path) -> bytes:
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise DamagedError("a folder, a pipe or a device")
    check_size(path, _COPIES)
    return path.read_bytes()


def _array(stream: IO[bytes], size: int) -> np.ndarray:
    """The array in a stream of this many bytes, if its header does not name more."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, columns_first, dtype = read(stream)
    count = math.prod(shape)
    if dtype.hasobject or min((0, *shape)) < 0 or count * max(1, dtype.itemsize) > size:
        raise ValueError(f"an array of {dtype}, shape {shape}, in {size} bytes")
    data = stream.read(count * dtype.itemsize)
    if len(data) != count * dtype.itemsize:
        raise EOFError(f"{len(data)} bytes of an array of {count * dtype.itemsize}")
    if stream.read(1):  # also has zipfile compare the checksum
        raise ValueError("more bytes than the array has")
    array = np.frombuffer(data, dtype, count)
    return array.reshape(shape[::-1]).T.copy() if columns_first else array.reshape(shape).copy()


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {in_one_line(error)}"

"""A text table as bytes, which end in an error where they unpack to more than there is memory for.

A reader that asks for some rows does not know how long they are: a packed file of kilobytes can hold lines of
gigabytes.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

from mlayer.errors import MLayerError


class Metered(io.RawIOBase):
    """The bytes of a file, unpacked.

    Args:
        path: the file; packed if its name ends in ".gz".
        most: bytes that may be read before :meth:`again` is called.
        error: made with the number of bytes, once they are more.
    """

    def __init__(self, path: Path, most: int | None, error: Callable[[int], MLayerError]) -> None:
        self._stream = gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb")
        self._most, self._error, self._count = most, error, 0

    def again(self) -> None:
        """Count from zero."""
        self._count = 0

    def readable(self) -> bool:
        """True, as `io` requires."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer, as far as the file goes."""
        data = self._stream.read(min(len(buffer), 1 << 18))
        self._count += len(data)
        if self._most is not None and self._count > self._most:
            raise self._error(self._count)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        super().close()

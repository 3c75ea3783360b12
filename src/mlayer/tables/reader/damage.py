"""Damaged tables: whatever a decoder raises while it reads one becomes an error that names the file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlayer.errors import FileFormatError, MLayerError, in_one_line

_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)


@contextmanager
def reading(path: Path, kind: str, hint: str, encoding: str | None = None) -> Iterator[None]:
    """Everything that goes wrong inside is a FileFormatError.

    Decoders of gzip, csv and parquet raise almost any type on damaged bytes (EOFError, zlib.error, OSError,
    KeyError, UnicodeDecodeError, library-specific errors), so all are taken, except our own errors, those of
    the operating system, which carry a number, and a lack of memory.

    Args:
        path: the file.
        kind: what it must be, for the message.
        hint: what to do if its content is wrong.
        encoding: of a text table.
    """
    try:
        yield
    except (MLayerError, MemoryError):
        raise
    except _GZIP as error:
        raise FileFormatError(
            path,
            "a complete gzip file",
            f"something else, or a damaged one ({in_one_line(error)})",
            "Get it again.",
        ) from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if isinstance(error, UnicodeError) and encoding is not None:
            name = "UTF-8" if encoding == "utf-8-sig" else encoding
            hint = "Pass --encoding, for example latin-1."
            raise FileFormatError(
                path, f"text in {name}", f"other bytes ({in_one_line(error)})", hint
            ) from None
        words = in_one_line(error)
        raise FileFormatError(path, kind, f"something else ({words})", hint) from None

"""Writing a file so that a crash leaves the old one whole."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from mlayer.errors import ArgumentError


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a new file beside ``path``, push it to the disk, then rename it to ``path``."""
    if path.is_dir():
        raise ArgumentError("path", "a file", f"the folder {path}", "Name a file in it.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        write(temporary)
        _sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the rename itself; other systems cannot open folders
        _sync(path.parent)


def replace_bytes(path: Path, data: bytes) -> None:
    """Replace the file at ``path`` by ``data``, all or nothing."""
    replace_file(path, lambda temporary: _write(temporary, data))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

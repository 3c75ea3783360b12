"""Writing a file so that a crash leaves the old one whole; and what to say of one that is not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from mlayer.errors import ArgumentError


def absent(path: Path, endings: tuple[str, ...], hint: str) -> FileNotFoundError:
    """The error that names those files of these endings that are there instead, or gives ``hint``."""
    folder = path if path.is_dir() else path.parent
    near = sorted(other.name for other in folder.glob("*") if other.suffix in endings)
    there = f"There are: {', '.join(near[:8])}." if near else hint
    return FileNotFoundError(f"no file {path}{', but a folder' if path.is_dir() else ''}. {there}")


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a new file beside ``path``, push it to the disk, then rename it to ``path``."""
    if path.is_dir():
        raise ArgumentError("path", "a file", f"the folder {path}", "Name a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} for {path.name}. Make it first.")
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

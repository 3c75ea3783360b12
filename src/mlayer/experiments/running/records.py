"""Reads the JSON files that runs of experiments leave; they may be damaged, or written by others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlayer.errors import FileFormatError


def read_record(file: Path) -> dict[str, Any]:
    """The JSON object of a file; a FileFormatError if it holds something else."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise not_a_result(file, f"something that is not JSON ({error})") from None
    if not isinstance(record, dict):
        raise not_a_result(file, f"JSON of another kind than an object ({type(record).__name__})")
    return record


def not_a_result(file: Path, came: str) -> FileFormatError:
    """The error for a file that no run wrote."""
    return FileFormatError(file, "a result of mlayer reproduce", came, "Remove it, and run it again.")

"""Reads the JSON files that runs of experiments leave; they may be damaged, or written by others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from mlayer.disk import make_folder, replace_bytes
from mlayer.errors import FileFormatError, in_one_line
from mlayer.memory import check_size

Record = dict[str, Any]
_COPIES = 8  # of a text in memory while it is made into objects


def read_record(file: Path) -> Record:
    """The JSON object of a file; a FileFormatError if it holds something else."""
    if file.exists() and not file.is_file():  # a pipe would be waited for
        raise not_a_result(file, "a folder, a pipe or a device")
    check_size(file, _COPIES)
    try:
        record = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise not_a_result(file, f"something that is not JSON ({in_one_line(error)})") from None
    if not isinstance(record, dict):
        raise not_a_result(file, f"JSON of another kind than an object ({type(record).__name__})")
    return record


def read_part(file: Path) -> Record:
    """The result of a finished part; a FileFormatError if it is damaged or of another part or run.

    Parts that were written before they had a seal are taken as they are: they name their commit outside.
    """
    found = read_record(file)
    if "commit" in found:
        return found
    seal, record = found.get("sealed"), found.get("record")
    if found.keys() != {"sealed", "record"} or not isinstance(seal, dict) or not isinstance(record, dict):
        raise not_a_result(file, "JSON without the result of a part")
    own = _seal(file, record)
    if seal.get("digest") != own["digest"]:
        raise not_a_result(file, "one that was changed since it was written")
    if seal != own:
        raise not_a_result(file, f"the part {seal.get('part')!r:.90} of the run {seal.get('run')!r:.90}")
    return record


def write_part(file: Path, record: Record) -> None:
    """Keep the result of a part, sealed: its file belongs under this name, in the folder of this run."""
    make_folder(file.parent)
    sealed = {"sealed": _seal(file, json.loads(json.dumps(record))), "record": record}
    replace_bytes(file, json.dumps(sealed).encode(), follow=False)


def _seal(file: Path, record: Record) -> dict[str, str]:
    text = json.dumps(record, sort_keys=True)
    return {"run": file.parent.name, "part": file.stem, "digest": hashlib.sha256(text.encode()).hexdigest()}


def _refuse(word: str) -> Any:
    raise ValueError(f"JSON has no {word}")


def not_a_result(file: Path, came: str) -> FileFormatError:
    """The error for a file that no run wrote."""
    return FileFormatError(file, "a result of mlayer reproduce", came, "Remove it, and run it again.")

"""One process that imports everything once and forks for each trial: python trials.py, JSON lines in and out.

A trial prepares a folder, writes under a fault in a child process, looks at what is there, writes once more
without a fault, and looks again.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
import training_point
from injection import Fault, inject
from write_points import POINTS

from mlayer.certificates.checker import read_proof
from mlayer.errors import MLayerError

Contents = dict[str, bytes]
# In memory where there is such a disk: thousands of fsyncs on a real one are slow.
PLACE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def contents(folder: Path) -> Contents:
    """Every file below a folder, hidden ones too."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): content(path) for path in files}


def content(path: Path) -> bytes:
    """The bytes; of a proof what is in them, for safetensors orders two entries of metadata by chance."""
    data = path.read_bytes()
    if path.name != "p.safetensors" or len(data) < 8:
        return data
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header["__metadata__"].pop("sha256")  # checked by the reader
    read_proof(path)
    return json.dumps(header, sort_keys=True).encode() + data[end:]


def child(fault: Fault, folder: Path, work: Any) -> dict[str, Any]:
    """Do ``work()`` in a child process, with the fault armed; how it ended."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(reader)
            calls = inject(fault, folder)
            found: dict[str, Any] = {"error": None, "value": None}
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    found["value"] = work()
            except Exception as error:
                found |= {
                    "error": type(error).__name__,
                    "ours": isinstance(error, MLayerError),
                    "message": str(error),
                    "trace": traceback.format_exc()[-2000:],
                }
            found |= {"calls": calls, "warned": [str(w.message) for w in caught]}
            os.write(writer, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(process, 0)
    result: dict[str, Any] = json.loads(said) if said else {"calls": []}
    return result | {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}


@cache
def versions(name: str) -> tuple[Contents, Contents, Contents]:
    """The contents of a folder with nothing, with the old version, and with the new one over it."""
    point = POINTS[name]
    with tempfile.TemporaryDirectory(dir=PLACE) as place:
        folder = Path(place) / "golden"
        folder.mkdir()
        point.write(folder, 0)
        old = contents(folder)
        point.write(folder, 1)
        return {}, old, contents(folder)


def trial(name: str, fault: Fault, replaces: bool) -> dict[str, Any]:
    """Write the new version over the old one, or where there is none, under a fault."""
    point = POINTS[name]
    empty, old, new = versions(name)
    before = old if replaces else empty
    with tempfile.TemporaryDirectory(dir=PLACE) as place:
        folder = Path(place) / "folder"
        folder.mkdir()
        if replaces:
            point.write(folder, 0)
        else:  # a data set's new version does not bring the old one
            new = fresh(name)
        found = child(fault, folder, lambda: point.write(folder, 1))
        after = contents(folder) if folder.exists() else {}
        found["gone"] = not folder.exists()
        # A folder that was removed may have been made again.
        whole = {file: {before.get(file), new.get(file)} for file in point.files}
        if fault.kind == "removed":
            whole = {file: known | {None} for file, known in whole.items()}
        found["half"] = [file for file in point.files if after.get(file) not in whole[file]]
        found["written"] = all(after.get(file) == data for file, data in new.items())
        found["left"] = sorted(set(after) - set(point.files))
        folder.mkdir(exist_ok=True)
        point.write(folder, 1)
        again = contents(folder)
        found["left later"] = sorted(set(again) - set(point.files))
        found["later"] = all(
            again.get(file) == data
            for file, data in (fresh(name) if found["gone"] or fault.kind == "removed" else new).items()
        )
        found["sizes"] = [len(data) for data in new.values()]
        return found


@cache
def fresh(name: str) -> Contents:
    """The new version in an empty folder."""
    with tempfile.TemporaryDirectory(dir=PLACE) as place:
        folder = Path(place) / "golden"
        folder.mkdir()
        POINTS[name].write(folder, 1)
        return contents(folder)


def training_trial(fault: Fault) -> dict[str, Any]:
    """Train with a checkpoint after every step under a fault, then again without one."""
    with tempfile.TemporaryDirectory(dir=PLACE) as place:
        folder = Path(place) / "folder"
        folder.mkdir()
        found = child(fault, folder, lambda: training_point.run(folder / "run"))
        found["gone"] = not folder.exists()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found["again"] = training_point.run(folder / "run")
        found["warned again"] = [str(w.message) for w in caught]
        found["right"] = training_point.run(None)
        found["files"] = sorted(contents(folder))
        found["history"] = training_point.history_is_whole(folder / "run")
        return found


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        task = json.loads(line)
        fault = Fault(**task["fault"])
        if task["point"] == "training":
            found = training_trial(fault)
        else:
            found = trial(task["point"], fault, task["replaces"])
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

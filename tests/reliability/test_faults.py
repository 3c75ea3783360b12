"""Every write of mlayer, with every system call of it failing in turn: killed, refused, cut short, removed.

After each the old file or the new one is whole, the next write leaves nothing of the failed one behind, an
error is one of ours, and silence means that the file was written. See `injection.py` for how.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("needs fork and RLIMIT_FSIZE", allow_module_level=True)

HERE = Path(__file__).parent
# write_points.py imports too much for a process that only names them.
QUICK = ("model", "predictions", "data set")
LONG = (
    "constants",
    "report",
    "proof",
    "table model",
    "results",
    "predictions, parquet",
    "archive of a data set",
    "network",
    "part",
)
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.ENOENT, errno.EDQUOT)
# The same mistakes by other callers: an argument that is no place for a file.
OURS = ("UnwritableError", "MissingDataError", "CheckpointError")

Trial = Callable[..., dict[str, Any]]


def some(*quick: str) -> list[Any]:
    """All points; those that are not among the quick ones are slow."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in QUICK + LONG]


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    """One process that forks for each trial."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
    }
    process = subprocess.Popen(
        [sys.executable, str(HERE / "trials.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def ask(point: str, kind: str, at: int = 0, number: int = errno.EIO, *, replaces: bool = True) -> Any:
        fault = {"kind": kind, "at": at, "number": number}
        stdin.write(json.dumps({"point": point, "fault": fault, "replaces": replaces}) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    yield ask
    stdin.close()
    stdout.close()
    assert process.wait(900) == 0


def check(found: dict[str, Any], what: str) -> None:
    """Check the conditions that hold after every fault."""
    said = f"{what}: {json.dumps(found, indent=1)}"
    assert found["gone"] or not found["half"], f"half a file after {said}"
    assert found["later"], f"the next write failed after {said}"
    assert not found["left later"], f"left behind after {said}"
    if found["signal"]:
        return
    if found["error"] is None:
        assert found["written"] or found["gone"] or "removed" in what, f"silence, no new file, after {said}"
    elif not (found["error"] == "FileNotFoundError" and "Create it first." in found["message"]):
        assert found["error"] in OURS, f"a raw error after {said}"
        assert found["ours"], said
        assert " must be " in found["message"] or "put it at" in found["message"], said


def calls_of(trial: Trial, point: str, replaces: bool) -> list[str]:
    found = trial(point, "none", replaces=replaces)
    check(found, f"{point}, no fault")
    assert found["written"], found
    names = {call.split()[0] for call in found["calls"]}
    assert {"open", "fsync", "os.rename"} <= names, found["calls"]
    calls: list[str] = found["calls"]
    return calls


@pytest.mark.parametrize(
    "replaces", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["over an old file", "a new file"]
)
@pytest.mark.parametrize("point", some(*QUICK))
def test_a_kill_before_every_call(trial: Trial, point: str, replaces: bool) -> None:
    calls = calls_of(trial, point, replaces)
    for at, call in enumerate(calls, 1):
        found = trial(point, "kill", at, replaces=replaces)
        assert found["signal"] == signal.SIGKILL
        check(found, f"{point}, killed before {call}")
    assert trial(point, "kill", len(calls) + 1, replaces=replaces)["written"]


@pytest.mark.parametrize("kind", ["short", "short kill"])
@pytest.mark.parametrize("point", some("model"))
def test_a_write_that_breaks_off(trial: Trial, point: str, kind: str) -> None:
    size = trial(point, "none")["sizes"][-1]
    for at in sorted({0, 1, size // 2, size - 1}):
        found = trial(point, kind, at)
        assert found["signal"] == (signal.SIGXFSZ if kind == "short kill" else 0), found
        assert found["signal"] or found["error"], found
        check(found, f"{point}, {kind} at {at} of {size} bytes")


@pytest.mark.parametrize("kind", ["error", "lasting", "removed"])
@pytest.mark.parametrize(
    "number",
    [ERRORS[0], *(pytest.param(number, marks=pytest.mark.slow) for number in ERRORS[1:])],
    ids=errno.errorcode.__getitem__,
)
@pytest.mark.parametrize("point", some("model"))
def test_every_call_is_refused(trial: Trial, point: str, number: int, kind: str) -> None:
    if kind == "removed" and number != ERRORS[0]:
        pytest.skip("one way to remove a folder")
    for replaces in (True, False):
        for at, call in enumerate(calls_of(trial, point, replaces), 1):
            found = trial(point, kind, at, number, replaces=replaces)
            check(found, f"{point}, {kind} {errno.errorcode[number]} at {call}")


def check_training(found: dict[str, Any], what: str) -> None:
    said = f"{what}: {json.dumps(found, indent=1)}"
    assert found["again"] == found["right"], f"other weights after {said}"
    assert found["history"], said
    files = {"run/state.safetensors", "run/before.safetensors", "run/history.jsonl", "run/lock"}
    assert set(found["files"]) <= files, f"left behind after {said}"
    if found["signal"]:
        return
    if found["error"] is None:
        assert found["value"] == found["right"], f"other weights, in silence, after {said}"
    else:
        assert found["error"] == "CheckpointError", f"a raw error after {said}"
        assert "Nothing was trained" in found["message"], said


def training_calls(trial: Trial) -> list[str]:
    found = trial("training", "none")
    check_training(found, "no fault")
    calls: list[str] = found["calls"]
    return calls


def test_a_training_killed_before_a_call_ends_with_the_same_weights(trial: Trial) -> None:
    calls = training_calls(trial)
    for at in range(1, len(calls) + 1, 13):
        check_training(trial("training", "kill", at), f"killed before {calls[at - 1]}")


@pytest.mark.parametrize("kind", ["error", "lasting"])
def test_a_training_goes_on_when_its_checkpoints_cannot_be_written(trial: Trial, kind: str) -> None:
    calls = training_calls(trial)
    for at in range(2, len(calls) + 1, 23):
        number = ERRORS[at % len(ERRORS)]
        found = trial("training", kind, at, number)
        check_training(found, f"{errno.errorcode[number]} at {calls[at - 1]}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kill", "error", "lasting", "removed", "short", "short kill"])
def test_a_training_survives_every_fault(trial: Trial, kind: str) -> None:
    calls = training_calls(trial)
    places = (0, 1, 100, 500, 1000, 2000, 3000) if kind.startswith("short") else range(1, len(calls) + 1)
    for number in ERRORS if kind in ("error", "lasting") else ERRORS[:1]:
        for at in places:
            check_training(trial("training", kind, at, number), f"{kind} {errno.errorcode[number]} at {at}")

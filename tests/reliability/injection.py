"""Failing system calls, one at a time, at moments that are counted and not timed. SQLite tests its writes so.

Python announces each call that opens, renames, links, removes or changes a file to its audit hooks before
the call is made; a hook that raises makes the call fail, one that kills the process lets nothing after it
happen. `os.fsync` is not announced and is wrapped. A write that breaks off in the middle is done by the
system itself: beyond RLIMIT_FSIZE a write fails, or kills the process, whoever makes it.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CHANGES = {
    "os.rename",
    "os.link",
    "os.symlink",
    "os.remove",
    "os.chmod",
    "os.mkdir",
    "os.rmdir",
    "os.truncate",
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Fault:
    """A fault that is injected.

    Attributes:
        kind: "none" (calls are only counted), "kill", "error" (one call fails), "lasting" (all changes fail
            from there on, as when a disk becomes read-only), "removed" (the folder vanishes), "short" (files
            cannot grow beyond ``at`` bytes), "short kill" (the process dies when one would).
        at: the number of the call, from 1; or bytes.
        number: the error.
    """

    kind: str
    at: int = 0
    number: int = errno.EIO


def inject(fault: Fault, folder: Path) -> list[str]:
    """Arm the fault for the rest of this process; the calls, as they come."""
    calls: list[str] = []
    if fault.kind in ("short", "short kill"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN if fault.kind == "short" else signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.at, resource.RLIM_INFINITY))
    busy = False

    def call(name: str, path: Any, changes: bool) -> None:
        nonlocal busy
        if busy:
            return
        calls.append(f"{name} {Path(os.fsdecode(path)).name if not isinstance(path, int) else ''}".strip())
        if fault.kind == "lasting" and changes and len(calls) >= fault.at:
            raise OSError(fault.number, os.strerror(fault.number), str(path))
        if len(calls) != fault.at:
            return
        if fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.kind == "error":
            raise OSError(fault.number, os.strerror(fault.number), str(path))
        if fault.kind == "removed":
            busy = True
            shutil.rmtree(folder)
            busy = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if _inside(path, folder):
                call(event, path, bool(flags & _WRITES))
        elif event in _CHANGES and _inside(arguments[0], folder):
            call(event, arguments[0], True)

    os.fsync = _counted(os.fsync, call)
    sys.addaudithook(hook)
    return calls


def _inside(path: Any, folder: Path) -> bool:
    return isinstance(path, str | bytes | os.PathLike) and Path(os.fsdecode(path)).is_relative_to(folder)


def _counted(function: Callable[..., None], call: Callable[[str, Any, bool], None]) -> Callable[..., None]:
    def counted(descriptor: int) -> None:
        call("fsync", descriptor, True)
        function(descriptor)

    return counted

"""The available memory: the machine's, or a container's, which psutil does not know (docs/decisions)."""

from __future__ import annotations

from pathlib import Path

from mlayer.errors import FileFormatError

_SMALL = 50_000_000  # bytes that are read without asking how much memory there is
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_memory() -> int | None:
    """Bytes that a process may still take; None where the system does not say."""
    found = [value for value in (_machine(), _container()) if value is not None]
    return min(found) if found else None


def check_size(path: Path, copies: int) -> None:
    """Raise if a file would not fit into the memory this many times: it may have a hole of any size in it."""
    free, size = available_memory(), path.stat().st_size
    if free is not None and copies * size > max(free, _SMALL):
        raise FileFormatError(
            path,
            "smaller than the memory",
            f"a file of {readable(size)}, and {readable(free)} of free memory",
            "Check where it comes from.",
        )


def _machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _container() -> int | None:
    for limit, used in _CGROUPS:
        try:
            return max(0, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # no such file, or the word "max"
            continue
    return None


def readable(count: float) -> str:
    """Bytes for people.

    >>> readable(10_000_000_000)
    '10.0 GB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"

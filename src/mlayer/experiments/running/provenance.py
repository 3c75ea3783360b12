"""The provenance of a figure: code, machine, threads and versions, stored with every result."""

from __future__ import annotations

import platform
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch

import mlayer
from mlayer.exponential import expm_path
from mlayer.version import __version__


def circumstances() -> dict[str, Any]:
    """The facts that a reader needs about a figure besides its configuration."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "mlayer": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "exponential": expm_path().reason,
        "threads": torch.get_num_threads(),
    }


@cache
def commit() -> str | None:
    """The commit of the running code, "+" after it if files under src differ; None for an installed copy."""
    source = Path(mlayer.__file__).parent
    head = _git(source, "rev-parse", "HEAD")
    # An installed copy may lie inside somebody else's repository.
    if head is None or not _git(source, "ls-files", "__init__.py"):
        return None
    return head[:12] + ("+" if _git(source, "status", "--porcelain", "--", ".") else "")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None

"""Threads, forks, and workers of a sweep that are killed in the middle of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from figures import note

HERE = Path(__file__).parent


def run(script: Path, *arguments: str, threads: int = 1) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(HERE), str(HERE.parent / "training"), *(p for p in sys.path if p)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.parametrize("kind", ["threads", "fork"])
def test_expm_in_eight_threads_and_after_a_fork(kind: str) -> None:
    done = run(HERE / "threads_and_fork.py", kind, threads=4)
    assert done.returncode == 0, f"{done.returncode} of 8 were wrong or hung: {done.stderr[-2000:]}"
    note(f"expm, {kind}", tried=8, failed=done.returncode)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "ray", "distributed"])
def test_a_worker_killed_in_the_middle_of_a_sweep(backend: str, tmp_path: Path) -> None:
    if backend != "loky":
        pytest.importorskip(backend, reason=f"needs {backend}: pip install mlayer[cluster]")
    done = run(HERE / "killed_sweep.py", backend, str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "4 runs, 1 worker killed, 0 wrong" in done.stdout
    note(f"sweep, {backend}", tried=4, killed=1, failed=0)

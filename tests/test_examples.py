"""The examples and the benchmarks' quick modes run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_demo_prints_its_tables_and_draws(tmp_path: Path) -> None:
    out = run(str(ROOT / "examples/expm_at_work.py"), cwd=tmp_path)
    assert "relative error against the closed form" in out
    assert "times faster than torch" in out
    assert (tmp_path / "out/expm_at_work.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["expm", "layer"])
def test_benchmark_runs(name: str, tmp_path: Path) -> None:
    out = run(str(ROOT / f"benchmarks/{name}.py"), "--quick", cwd=tmp_path)
    assert "mlayer" in out
    assert not list(tmp_path.iterdir()), "a quick run writes nothing"

"""Claim: a csv table of a gigabyte is fitted, and predicted in less memory than it has bytes.

    python benchmarks/large_table.py        writes results/large_table.json

Both commands run as separate processes; peak memory and processor time are those that the system reports.
The reader holds the table some four times over while it fits; predictions are read and written in pieces.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import circumstances

GIGABYTE, COLUMNS, BLOCK = 10**9, 40, 4000


def write_table(path: Path) -> int:
    """A gigabyte of numbers with a class; the number of rows."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(BLOCK, COLUMNS))
    y = np.where(x[:, 0] + x[:, 1] * x[:, 2] > 0, "yes", "no")
    lines = [",".join([*(f"{v:.6f}" for v in row), word]) for row, word in zip(x, y, strict=True)]
    block = ("\n".join(lines) + "\n").encode()
    with path.open("wb") as file:
        file.write((",".join([*(f"x{k}" for k in range(COLUMNS)), "y"]) + "\n").encode())
        rows = 0
        while file.tell() < GIGABYTE:
            file.write(block)
            rows += BLOCK
    return rows


def measured(*arguments: str) -> dict[str, float]:
    """Peak memory and processor time of a command."""
    process = subprocess.Popen([sys.executable, "-m", "mlayer", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"mlayer {arguments[0]} failed"
    process.returncode = 0
    unit = 1 if platform.system() == "Darwin" else 1024
    return {
        "peak_bytes": usage.ru_maxrss * unit,
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        rows = write_table(folder / "t.csv")
        size = (folder / "t.csv").stat().st_size
        model, answer = str(folder / "m.safetensors"), folder / "p.csv"
        fit = measured("fit", str(folder / "t.csv"), "-t", "y", "-o", model, "--epochs", "1", "--no-report")
        predict = measured("predict", model, str(folder / "t.csv"), "-o", str(answer))
        with answer.open("rb") as file:
            answers = sum(1 for _ in file) - 1
    result = {
        "circumstances": circumstances(),
        "bytes": size,
        "rows": rows,
        "columns": COLUMNS + 1,
        "fit": fit,
        "predict": predict,
        "predicted_rows": answers,
    }
    Path("results/large_table.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    assert answers == rows
    assert predict["peak_bytes"] < size, "predicting takes more memory than the table has bytes"


if __name__ == "__main__":
    main()

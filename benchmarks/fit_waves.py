"""Claim: `mlayer fit` finds waves off the grid in a table; its forecast is near that of least squares.

    python benchmarks/fit_waves.py            minutes; writes results/fit_waves.json; exit code 1 if missed
    python benchmarks/fit_waves.py --quick    one table, to see that it runs; claims nothing

Each table has a date column and a target: 500 days of one to three waves with real periods of 5 to 120
days, a trend, and noise of 5 or 20 % of the waves' deviation. The command fits it with its defaults and
predicts the 250 days after it. The measure is the root mean squared error against the function without
noise, compared with two fits that know how many waves there are: least squares with the periods given, and
nonlinear least squares over the periods too, started at the true ones, which is as near as an estimate of
them can come. Processor time is that of the whole command, with Python's start and the imports.
"""

from __future__ import annotations

import csv
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from measure import Target, argument_parser, circumstances, finish
from numpy.typing import NDArray
from scipy.optimize import least_squares

Array = NDArray[np.float64]
ROWS, AHEAD = 500, 250
START = date(2021, 1, 1)


def function(random: np.random.Generator, waves: int) -> tuple[Array, Array]:
    """Periods in days, and the values of all days."""
    day = np.arange(ROWS + AHEAD, dtype=float)
    while True:  # two periods that 500 days cannot tell apart would be one wave
        periods = np.exp(random.uniform(np.log(5), np.log(120), waves))
        frequencies = np.sort(1 / periods)
        if waves == 1 or np.diff(frequencies).min() > 2 / ROWS:
            break
    amplitudes, phases = random.uniform(1, 5, waves), random.uniform(0, 2 * np.pi, waves)
    values = 20 + random.uniform(-0.01, 0.01) * day
    for period, amplitude, phase in zip(periods, amplitudes, phases, strict=True):
        values = values + amplitude * np.cos(2 * np.pi * day / period + phase)
    return periods, values


def _design(frequencies: Array) -> Array:
    """A trend and waves, at all days."""
    day = np.arange(ROWS + AHEAD, dtype=float)
    angles = 2 * np.pi * day[:, None] * frequencies
    return np.column_stack([np.ones_like(day), day / ROWS, np.cos(angles), np.sin(angles)])


def _linear(frequencies: Array, y: Array) -> Array:
    """Least squares over trend, amplitudes and phases, at all days."""
    design = _design(frequencies)
    return np.asarray(design @ np.linalg.lstsq(design[:ROWS], y, rcond=None)[0])


def known_periods(periods: Array, y: Array) -> Array:
    """Least squares with the periods given."""
    return _linear(1 / periods, y)


def refined(periods: Array, y: Array) -> Array:
    """Least squares over the periods too, from the true ones: what an estimate of them can reach."""
    found = least_squares(lambda f: _linear(f, y)[:ROWS] - y, 1 / periods, x_scale=1 / ROWS)
    return _linear(found.x, y)


def measure(waves: int, noise: float, seed: int, folder: Path) -> dict[str, Any]:
    random = np.random.default_rng([seed, waves, round(100 * noise)])
    periods, exact = function(random, waves)
    y = exact[:ROWS] + noise * exact[:ROWS].std() * random.standard_normal(ROWS)
    known, ahead = folder / "known.csv", folder / "ahead.csv"
    days = [(START + timedelta(k)).isoformat() for k in range(ROWS + AHEAD)]
    _write(known, ["day", "sales"], zip(days, [f"{v:.6f}" for v in y], strict=False))
    _write(ahead, ["day"], ([day] for day in days[ROWS:]))
    seconds = _run(
        "fit", str(known), "-t", "sales", "-o", str(folder / "m.safetensors"), "--force", "-q", "--no-report"
    )
    _run("predict", str(folder / "m.safetensors"), str(ahead), "-o", str(folder / "p.csv"), "--force", "-q")
    with (folder / "p.csv").open() as file:
        forecast = np.array([float(row["prediction"]) for row in csv.DictReader(file)])
    error = float(np.sqrt(np.mean((forecast - exact[ROWS:]) ** 2)))
    least, own = (
        float(np.sqrt(np.mean((of(periods, y)[ROWS:] - exact[ROWS:]) ** 2)))
        for of in (known_periods, refined)
    )
    return {
        "waves": waves,
        "noise": noise,
        "seed": seed,
        "periods": sorted(periods.tolist()),
        "error": error,
        "error_over_deviation": error / float(exact.std()),
        "told": least,
        "refined": own,
        "seconds": seconds,
    }


def _write(path: Path, head: list[str], rows: Any) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


def _run(*arguments: str) -> float:
    """The command's processor time, on one thread."""
    before = os.times()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "mlayer", *arguments], check=True, env=environment, stdout=subprocess.DEVNULL
    )
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> int:
    quick = argument_parser(__doc__, "one table; writes nothing").parse_args().quick
    cases = [(1, 0.05, 0)] if quick else [(w, s, k) for w in (1, 2, 3) for s in (0.05, 0.2) for k in range(4)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for waves, noise, seed in cases:
            row = measure(waves, noise, seed, Path(folder))
            rows.append(row)
            print(
                f"{waves} waves, noise {noise:.0%}, seed {seed}: error {row['error']:.3f}, "
                f"from the true periods {row['refined']:.3f}, told them {row['told']:.3f}, "
                f"{row['seconds']:.1f} s",
                flush=True,
            )
    if quick:
        return 0
    within = statistics.mean(row["error_over_deviation"] < 0.1 for row in rows)
    targets = [
        Target("tables whose forecast is within 10 % of the function's deviation", 0.9, within),
        Target(
            "error over that of nonlinear least squares from the true periods, median",
            1.2,
            statistics.median(row["error"] / row["refined"] for row in rows),
            at_most=True,
        ),
        Target(
            "processor seconds of `mlayer fit`, three waves and a trend, median",
            5,
            statistics.median(row["seconds"] for row in rows if row["waves"] == 3),
            at_most=True,
        ),
    ]
    return finish("fit_waves", {"circumstances": circumstances(), "tables": rows}, targets)


if __name__ == "__main__":
    sys.exit(main())

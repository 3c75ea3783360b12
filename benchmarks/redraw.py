"""Draws results/NAME.png and results/report.html again from results/NAME.json: python benchmarks/redraw.py.

For a change of pictures, captions or rows that needs no new measurement.
"""

from __future__ import annotations

from pathlib import Path

from mlayer.experiments.running.page import write_page
from mlayer.experiments.running.records import read_record
from mlayer.experiments.running.registry import EXPERIMENTS, experiment
from mlayer.experiments.running.runner import write_picture

RESULTS = Path(__file__).resolve().parents[1] / "results"


def main() -> None:
    for name in EXPERIMENTS:
        file = RESULTS / f"{name}.json"
        if file.is_file():
            write_picture(file.with_suffix(".png"), experiment(name), read_record(file)["results"])
    write_page(RESULTS)


if __name__ == "__main__":
    main()

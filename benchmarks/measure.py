"""The measurement of the benchmarks: side by side, warmed up, interleaved, medians with their spread."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import mlayer
from mlayer.experiments.running.provenance import commit
from mlayer.speed import interleaved_times

RESULTS = Path(__file__).resolve().parent.parent / "results"


@dataclass(frozen=True)
class Timing:
    """Seconds per call: median and quartiles over the repetitions."""

    median: float
    low: float
    high: float


def interleaved(
    contenders: Mapping[str, Callable[[], object]], repetitions: int = 7, block_seconds: float = 0.03
) -> dict[str, Timing]:
    """Time each contender in turn, again and again, as `mlayer bench` does."""
    times = interleaved_times(contenders, repetitions, block_seconds)
    result = {}
    for name, values in times.items():
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        result[name] = Timing(statistics.median(values), quartiles[0], quartiles[2])
    return result


def circumstances() -> dict[str, Any]:
    """The facts that a reader needs about a figure."""
    return {
        # Not the path that it was called by: that says where somebody keeps the repository.
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mlayer": mlayer.__version__,
        "commit": commit(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "processor": _processor(),
        "path": mlayer.expm_path().reason,
        "date": time.strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def argument_parser(description: str | None, quick: str = "") -> argparse.ArgumentParser:
    """A parser of a script's options, with ``--quick`` where there are words for its help."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def save(name: str, content: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


@dataclass(frozen=True)
class Target:
    """A sentence with a number in it, and whether it holds."""

    claim: str
    wanted: float
    reached: float
    at_most: bool = False

    @property
    def holds(self) -> bool:
        return self.reached <= self.wanted if self.at_most else self.reached >= self.wanted

    @property
    def record(self) -> dict[str, Any]:
        """The target in a file of results."""
        return asdict(self) | {"holds": self.holds}

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        answer = "yes" if self.holds else "NO "
        return f"{answer}  {self.claim}: {self.reached:.3g} (wanted {sign} {self.wanted:g})"


def verdict(targets: list[Target]) -> int:
    """Print every target with its figure; the exit code says whether all hold."""
    print("\nTargets")
    for target in targets:
        print("  " + str(target))
    return 0 if all(target.holds for target in targets) else 1


def finish(name: str, content: Mapping[str, Any], targets: list[Target], folder: Path = RESULTS) -> int:
    """Write the result with its targets, and print these; the exit code says whether all hold."""
    print("wrote", save(name, {**content, "targets": [target.record for target in targets]}, folder))
    return verdict(targets)

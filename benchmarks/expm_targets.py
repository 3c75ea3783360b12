"""The targets of benchmarks/expm.py, for each instruction set."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from expm_cells import Cell
from measure import Target

SIZES = (6, 12, 24, 30, 32)
BATCHES = (32, 256, 2048)
LARGE = ((64, 256), (128, 64))
SPEED = "float32 forward+backward, geometric mean over torch"
WANTED_SPEED = {"avx512": 28.0, "avx2": 20.0}


@dataclass(frozen=True)
class InstructionSet:
    """The measurements with one instruction set."""

    name: str
    facts: dict[str, Any]
    held: dict[str, str]
    parts: dict[str, list[Cell]]


def targets(found: InstructionSet) -> list[Target]:
    single, double, large = (found.parts.get(name, []) for name in ("float32", "float64", "large"))
    over_torch = [c.ratio("torch") for c in large]
    fullest = next(c for c in single if c.n == 32 and c.batch == 2048)
    return [
        Target(SPEED, WANTED_SPEED[found.name], geometric_mean([c.ratio("torch") for c in single])),
        Target("float32 forward+backward, worst cell over torch", 10, min(c.ratio("torch") for c in single)),
        Target(
            "float32 forward, geometric mean over torch",
            15,
            geometric_mean([c.ratio("torch", "forward") for c in single]),
        ),
        Target(
            "n >= 12, worst cell: forward+backward over the sum of both floors",
            1.6,
            max(c.times_floor for c in single if c.n >= 12),
            at_most=True,
        ),
        Target(
            "fraction of the large-product rate, n = 32, batch 2048, all products counted",
            0.55,
            fullest.rate_fraction,
        ),
        *([Target("n = 64 and 128 over torch, worst", 6, min(over_torch))] if over_torch else []),
        Target(
            "float64 forward+backward, geometric mean over torch",
            12,
            geometric_mean([c.ratio("torch") for c in double]),
        ),
        *against_others(found),
        *never_slower(found),
        Target(
            "memory kept for backward, in units of M",
            1,
            max(
                c.kept_bytes["mlayer"] / (c.batch * c.n**2 * (4 if c.dtype == "float32" else 8))
                for c in single + double + large
            ),
            at_most=True,
        ),
    ]


def against_others(found: InstructionSet) -> list[Target]:
    if "others" not in found.parts:
        return []
    ours = {(c.n, c.batch): c.both for c in found.parts["float32"]}
    best = []
    for cell in found.parts["others"]:
        mine = ours[cell.n, cell.batch]
        if cell.batch == 2048:
            rivals = [timing.median for timing in cell.both.values()] + [mine["torch"].median]
            best.append(min(rivals) / mine["mlayer"].median)
    claim = "batch 2048, forward+backward, geometric mean over the best other library"
    return [Target(claim, 14, geometric_mean(best))]


def never_slower(found: InstructionSet) -> list[Target]:
    """Complex numbers, and the path without a kernel: in no cell slower than torch, in either pass."""

    def worst(cells: list[Cell]) -> float:
        return min(c.ratio("torch", kind) for c in cells for kind in ("forward", "both"))

    complex_cells, matmul_cells = found.parts.get("complex", []), found.parts.get("matmul", [])
    result = []
    if complex_cells:
        small = [c.ratio("torch") for c in complex_cells if c.n <= 32]
        claim = "complex, n <= 32, forward+backward, geometric mean over torch"
        result += [
            Target("complex, worst cell over torch", 1, worst(complex_cells)),
            Target(claim, 3, geometric_mean(small)),
        ]
    if matmul_cells:
        claim = f"without a kernel, worst of {len(matmul_cells)} cells over torch"
        result.append(Target(claim, 1, worst(matmul_cells)))
    return result

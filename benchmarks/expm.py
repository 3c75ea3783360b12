"""Claim: mlayer.expm is the fastest differentiable matrix exponential on a CPU.

    python benchmarks/expm.py                      everything that is not measured yet, then the targets
    python benchmarks/expm.py --others             also JAX, TensorFlow and SciPy, where installed
    python benchmarks/expm.py --parts avx2:float32 this part only; the others another time
    python benchmarks/expm.py --seconds 60         a minute's worth of what is missing
    python benchmarks/expm.py --so-far --parts     no measurement: what there is, as JSON, picture and targets
    python benchmarks/expm.py --quick              a few small cells, in seconds; no targets

Forward and forward+backward compared with torch.linalg.matrix_exp: in every cell of the grid a block of calls
of each contender in turn, repeated, medians taken. Two floors stand in the table: an operator that does
nothing, forward+backward through autograd; and our products at the rate of one large product.

Each instruction set that the machine has is measured in separate processes: MLAYER_EXPM_ISA holds our
kernel to it, ATEN_CPU_CAPABILITY torch, MKL_ENABLE_INSTRUCTIONS and ONEDNN_MAX_CPU_ISA the products behind
torch and TensorFlow, XLA_FLAGS JAX. A cell is kept in out/expm until the code of the exponential or of this
benchmark changes, and measured a second time if the quartiles of a contender are further apart
than a fifth of its median; the steadier try counts. So the whole can be measured in several quiet minutes.
Writes expm.json and expm.png into the results folder. About fifteen minutes on two cores.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from expm_cells import NORM, Cell, measure_cell, measure_others, summary_line
from expm_targets import BATCHES, LARGE, SIZES, InstructionSet, targets
from measure import RESULTS, Timing, argument_parser, circumstances, save, verdict

from mlayer.exponential import native

ROOT = Path(__file__).resolve().parents[1]
PARTS_FOLDER = ROOT / "out" / "expm"
REPETITIONS = 7
TRIES = 2  # of a cell whose times are unsteady

# Instruction set -> what holds each library to it. Torch calls AVX-512 the default of such a machine.
HELD: dict[str, dict[str, str]] = {
    "avx512": {"MLAYER_EXPM_ISA": "avx512"},
    "avx2": {
        "MLAYER_EXPM_ISA": "avx2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    },
}


@dataclass(frozen=True)
class Spec:
    """One cell to be measured."""

    n: int
    batch: int
    dtype: torch.dtype
    path: str = "auto"

    def measure(self, repetitions: int = REPETITIONS) -> Cell:
        if self.path == "others":
            return measure_others(self.n, self.batch, self.dtype, repetitions)
        return measure_cell(self.n, self.batch, self.dtype, repetitions, self.path)


def grid(dtype: torch.dtype, path: str = "auto") -> list[Spec]:
    return [Spec(n, batch, dtype, path) for n in SIZES for batch in BATCHES]


def small_and_large(dtypes: tuple[torch.dtype, ...], path: str) -> list[Spec]:
    """Cells from the smallest matrix to one that the kernel leaves to torch's products."""
    sizes = [(n, b) for n in (2, 3, 6, 16, 32) for b in (1, 32, 512)] + [(64, 64), (128, 8), (200, 2)]
    return [Spec(n, batch, dtype, path) for dtype in dtypes for n, batch in sizes]


PARTS: dict[str, list[Spec]] = {
    "float32": grid(torch.float32),
    "float64": grid(torch.float64),
    "large": [Spec(n, batch, torch.float32) for n, batch in LARGE],
    "complex": small_and_large((torch.complex64, torch.complex128), "auto"),
    "matmul": small_and_large((torch.float32, torch.complex64), "matmul"),
    "others": grid(torch.float32, "others"),
}


def fingerprint() -> str:
    """A digest of the code that is measured and of the code that measures."""
    package = ROOT / "src/mlayer/exponential"
    files = [p for ext in ("py", "h", "cpp") for p in package.rglob(f"*.{ext}")]
    files += [Path(__file__).with_name(name) for name in ("expm_cells.py", "expm_others.py", "measure.py")]
    return hashlib.sha256(b"".join(p.read_bytes() for p in sorted(files))).hexdigest()


def part_file(isa: str, part: str) -> Path:
    return PARTS_FOLDER / f"{isa}-{part}.json"


def kept(isa: str, part: str) -> dict[str, Any]:
    """The measurements of a part, made with the present code."""
    file = part_file(isa, part)
    content: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return content if content.get("fingerprint") == fingerprint() else {"cells": {}, "tries": {}}


def is_steady(cell: Cell) -> bool:
    """Quartiles within a fifth of the median, of every contender in both passes."""
    timings = [*cell.forward.values(), *cell.both.values()]
    return all(timing.high - timing.low <= 0.2 * timing.median for timing in timings)


def spread(cell: Cell) -> float:
    timings = [*cell.forward.values(), *cell.both.values()]
    return max((timing.high - timing.low) / timing.median for timing in timings)


def open_specs(isa: str, part: str) -> list[Spec]:
    """Cells that were not measured, or not steadily while tries are left."""
    done = kept(isa, part)
    return [
        spec
        for spec in PARTS[part]
        if str(spec) not in done["cells"]
        or (
            done["tries"][str(spec)] < TRIES and not is_steady(cell_from(copy.copy(done["cells"][str(spec)])))
        )
    ]


def measure_part(isa: str, part: str, seconds: float) -> None:
    """Measure in a process that is restricted to the instruction set; save after every cell."""
    begun = time.monotonic()
    facts = circumstances()
    if f"{isa} instructions" not in facts["path"]:
        raise SystemExit(f"the kernel does not run with {isa}: {facts['path']}")
    if part == "others":
        import expm_others

        facts["others"] = expm_others.versions()
    content = kept(isa, part) | {"fingerprint": fingerprint(), "circumstances": facts}
    PARTS_FOLDER.mkdir(parents=True, exist_ok=True)
    for spec in open_specs(isa, part):
        cell, name = spec.measure(), str(spec)
        print(summary_line(cell), flush=True)
        before = content["cells"].get(name)
        # The steadier try counts, whatever its ratios are.
        if before is None or spread(cell) < spread(cell_from(copy.copy(before))):
            content["cells"][name] = asdict(cell)
        content["tries"][name] = content["tries"].get(name, 0) + 1
        part_file(isa, part).write_text(json.dumps(content) + "\n")
        if time.monotonic() - begun > seconds:
            return


def start_part(isa: str, part: str, seconds: float) -> None:
    print(f"\n{isa}, {part}", flush=True)
    command = [sys.executable, __file__, "--this-part", f"{isa}:{part}", "--seconds", str(seconds)]
    if subprocess.run(command, env=os.environ | HELD[isa], check=False).returncode:
        raise SystemExit(f"{isa}:{part} failed")


def cell_from(record: dict[str, Any]) -> Cell:
    for kind in ("forward", "both"):
        record[kind] = {name: Timing(**timing) for name, timing in record[kind].items()}
    return Cell(**record)


def read_parts(isa: str) -> InstructionSet:
    parts = {}
    facts: dict[str, Any] = {}
    for part, specs in PARTS.items():
        content = kept(isa, part)
        measured = [cell_from(content["cells"][str(spec)]) for spec in specs if str(spec) in content["cells"]]
        if measured:
            parts[part] = measured
            facts |= content["circumstances"]
    return InstructionSet(isa, facts, HELD[isa], parts)


def main() -> int:
    parser = argument_parser(__doc__, "a few small cells, in seconds; no targets")
    parser.add_argument(
        "--others", action="store_true", help="also JAX, TensorFlow and SciPy, where installed"
    )
    parser.add_argument("--parts", nargs="*", metavar="SET:PART", help="only these are measured")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no cell after this long")
    parser.add_argument("--so-far", action="store_true", help="write what is measured, whatever is missing")
    parser.add_argument("--this-part", metavar="SET:PART", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where expm.json and expm.png go")
    options = parser.parse_args()
    if options.quick:
        for n, dtype in ((6, torch.float32), (12, torch.float64), (4, torch.complex64)):
            print(summary_line(Spec(n, 32, dtype).measure(3)))
        return 0
    if options.this_part:
        isa, part = options.this_part.split(":")
        measure_part(isa, part, options.seconds)
        return 0
    sets = [isa for isa in HELD if native.use_instruction_set(isa)]
    # The path without a kernel is torch's own products: measured once.
    left_out = {"matmul"} if options.others else {"matmul", "others"}
    wanted = [f"{isa}:{part}" for isa in sets for part in PARTS if part not in left_out]
    wanted += [f"{isa}:matmul" for isa in sets[:1]]
    begun = time.monotonic()
    for name in wanted if options.parts is None else options.parts:
        left = options.seconds - (time.monotonic() - begun)
        isa, part = name.split(":")
        if left > 0 and open_specs(isa, part):
            start_part(isa, part, left)
    missing = [f"{isa}:{part}" for isa, part in (name.split(":") for name in wanted) if open_specs(isa, part)]
    if missing:
        print(f"not measured, or not steadily, yet: {' '.join(missing)}")
        if not options.so_far:
            return 3
    measured_sets = [read_parts(isa) for isa in sets]
    found = {s.name: targets(s) for s in measured_sets}
    facts = circumstances() | {
        "norm": NORM,
        "unmeasured": missing,
        "command": "python benchmarks/expm.py --others",
    }
    if not options.others:
        facts["command"] = "python benchmarks/expm.py"
    content: dict[str, Any] = {
        "circumstances": facts,
        "sets": {
            s.name: {
                "circumstances": s.facts,
                "held": s.held,
                "cells": [asdict(cell) for cells in s.parts.values() for cell in cells],
                "targets": [target.record for target in found[s.name]],
            }
            for s in measured_sets
        },
    }
    save("expm", content, options.results)
    from expm_plot import draw

    draw(content).savefig(options.results / "expm.png", dpi=150)
    codes = []
    for name, its in found.items():
        print(f"\n{name}")
        codes.append(verdict(its))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())

"""The reasons for missed goals of docs/expm.md: the shares of the time, part by part.

    python benchmarks/expm_profile.py              results/expm_profile.json; six minutes on two idle cores
    python benchmarks/expm_profile.py 12 2048      this cell only, float32; no file
    python benchmarks/expm_profile.py --isa avx2   this instruction set only; no file

Needs Linux's perf, addr2line and a C++ compiler. One thread. For every cell two kinds of figures, both of
processor time, which other programs disturb less than the clock: medians of interleaved runs (ours,
autograd's floor, one large product, so that a rate is that of the same moment), and samples of the function
that was running.

1. float32, forward and backward, norm 3.5 as in benchmarks/expm.py.
2. complex128, forward, norms of 50 and 300 as in benchmarks/expm_large_norm.py: numbers of products and
   their rates, ours and torch's.
3. From results/expm.json: what the geometric mean over torch would be if every cell took the time of its
   floors.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import expm_samples
import torch
from expm_cells import gradient, matrices, product_counts
from expm_large_norm import matrices as large_matrices
from expm_samples import PARTS, PRODUCTS
from expm_targets import BATCHES, SIZES
from measure import RESULTS, argument_parser, circumstances, save

import mlayer
from mlayer.exponential import native

CELLS = tuple((n, batch) for n in (4, 8, 12, 16, 32, 64) for batch in (1, 32, 2048))
COMPLEX_CELLS = tuple((n, norm) for n in (16, 32, 64) for norm in (50.0, 300.0))
COMPLEX_BATCH = 32
SECONDS = 1.5  # of samples for each cell
LARGE_PRODUCT = 1024
QUIET = {"KINETO_LOG_LEVEL": "99"}  # of the profiler that counts the products of torch
REPETITIONS, BLOCK_SECONDS = 5, 0.01
Call = Callable[[], object]
SETS = {
    "avx512": {"MLAYER_EXPM_ISA": "avx512"},
    "avx2": {"MLAYER_EXPM_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}


# ---- The process that is measured. -----------------------------------------------------------------


def interleaved(calls: dict[str, Call]) -> dict[str, list[float]]:
    """Seconds of processor time per call, one figure for each turn; a turn is a block of calls."""
    repeats = {}
    for name, call in calls.items():
        call()
        start = time.process_time()
        call()
        repeats[name] = max(1, min(2000, round(BLOCK_SECONDS / max(1e-6, time.process_time() - start))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(REPETITIONS):
        for name, call in calls.items():
            call()  # warm again after the others' turns
            start = time.process_time()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.process_time() - start) / repeats[name])
    return times


def real_cell(n: int, batch: int) -> tuple[dict[str, Any], Call]:
    """Times of one cell in float32, and the call whose samples are wanted."""
    A, G = matrices(n, batch, torch.float32)
    A.requires_grad_()
    large = torch.randn(LARGE_PRODUCT, LARGE_PRODUCT)
    call = partial(gradient, mlayer.expm, A, G)
    empty = partial(gradient, lambda a: a.view_as(a), A, G)
    times = interleaved({"mlayer": call, "empty": empty, "large": lambda: large @ large})
    rate = 2 * LARGE_PRODUCT**3 / statistics.median(times["large"])
    operations = sum(product_counts(A.detach())) * 2 * n**3 * batch
    low, seconds, high = statistics.quantiles(times["mlayer"], n=4)
    return {
        "n": n,
        "batch": batch,
        "seconds": seconds,
        "spread": (high - low) / seconds,
        "floor_autograd": statistics.median(times["empty"]),
        "floor_products": operations / rate,
        "large_product_rate": rate,
    }, call


def complex_cell(n: int, norm: float) -> tuple[dict[str, Any], Call]:
    """The same of one cell in complex128, forward only, with torch's time and numbers of products."""
    a = large_matrices("complex", n, norm, COMPLEX_BATCH).detach()
    large = torch.randn(LARGE_PRODUCT // 2, LARGE_PRODUCT // 2, dtype=torch.complex128)
    call = partial(mlayer.expm, a)
    calls: dict[str, Call] = {
        "mlayer": call,
        "torch": partial(torch.linalg.matrix_exp, a),
        "large": lambda: large @ large,
    }
    times = {name: statistics.median(values) for name, values in interleaved(calls).items()}
    with torch.autograd.profiler.profile(use_kineto=False) as profile:
        torch.linalg.matrix_exp(a[:1])
    counts = {event.key: event.count for event in profile.key_averages()}
    return {
        "n": n,
        "norm": norm,
        "batch": COMPLEX_BATCH,
        "seconds": times["mlayer"],
        "torch_seconds": times["torch"],
        "products": twofold_products(a[0]),
        "torch_products": counts.get("aten::bmm", 0) + counts.get("aten::mm", 0),
        "large_product_rate": 8 * (LARGE_PRODUCT // 2) ** 3 / times["large"],
    }, call


def twofold_products(a: torch.Tensor) -> int:
    """Products that the kernel makes for one complex matrix with many squarings; kernel/twofold.h."""
    form = torch.cat([torch.cat([a.real, -a.imag], 1), torch.cat([a.imag, a.real], 1)])
    n = form.shape[0]

    def size(x: torch.Tensor) -> float:
        return float(torch.minimum(torch.linalg.matrix_norm(x), torch.linalg.matrix_norm(x, 1)))

    def exponent(x: float) -> int:
        return int(torch.frexp(torch.tensor(x, dtype=torch.float64)).exponent)

    half = (exponent(size(form @ form)) + 1) // 2
    squarings = half + 1
    b = form / 2.0**squarings
    above = -(-exponent(size(torch.linalg.matrix_power(b, 4))) // 4)
    ordinary = min(max(0, squarings + above - (3 if n <= 64 else 2 if n <= 96 else 1)), squarings - 1)
    twofold = squarings - 1 - ordinary  # the first is 2 Y + Y^2
    return 6 + squarings + 2 * twofold


def work(library: str) -> int:
    """Measure what comes on standard input, a cell a line; then run it until a signal says enough."""
    torch.set_num_threads(1)
    if library:
        expm_samples.use_library(library)
    running = False

    def enough(*_: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGUSR1, enough)
    for line in sys.stdin:
        kind, n, second = line.split()
        found, call = (
            real_cell(int(n), int(second)) if kind == "real" else complex_cell(int(n), float(second))
        )
        found["base"] = expm_samples.base_address("_kernel.so")
        running = True
        print(json.dumps(found), flush=True)
        while running:
            call()
    return 0


# ---- The process that measures. ---------------------------------------------------------------------


def measure(
    isa: str, library: Path | None, kind: str, cells: list[tuple[float, float]]
) -> list[dict[str, Any]]:
    """Rows of one instruction set."""
    command = [sys.executable, __file__, "--work", str(library or "")]
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            command,
            env=os.environ | SETS[isa] | QUIET,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            for n, second in cells:
                child.stdin.write(f"{kind} {n} {second}\n")
                child.stdin.flush()
                line = child.stdout.readline()
                if not line:
                    raise SystemExit("the process that is measured ended")
                row = json.loads(line)
                data = expm_samples.record(child.pid, SECONDS, folder)
                child.send_signal(signal.SIGUSR1)
                samples = expm_samples.read(data)
                file = library or Path(native.__file__).with_name("_kernel.so")
                row["shares"] = expm_samples.shares(samples, file, row.pop("base"))
                row["samples"] = len(samples)
                rows.append(row)
                print(f"{isa}: {summary_line(row)}", flush=True)
        finally:
            child.kill()
    return rows


def summary_line(row: dict[str, Any]) -> str:
    parts = ", ".join(f"{part} {row['shares'][part]:.0%}" for part in PARTS)
    if "torch_seconds" in row:
        ratio = row["torch_seconds"] / row["seconds"]
        return (
            f"complex n = {row['n']}, norm {row['norm']:g}: torch / ours {ratio:.2f}, "
            f"products {row['products']} and {row['torch_products']}; {parts}"
        )
    floors = row["floor_autograd"] + row["floor_products"]
    inside = row["floor_products"] / (row["seconds"] * row["shares"][PRODUCTS])
    return (
        f"n = {row['n']}, batch {row['batch']}: {row['seconds'] * 1e6:.0f} us, "
        f"{row['seconds'] / floors:.2f} x the floors, products at {inside:.2f} of the large product; {parts}"
    )


def bounds() -> dict[str, dict[str, float]]:
    """The mean over torch of results/expm.json as it is, at 1.6 times the floors, and at the floors."""
    file = RESULTS / "expm.json"
    if not file.exists():
        return {}
    found = {}
    for isa, entry in json.loads(file.read_text())["sets"].items():
        cells = [
            c
            for c in entry["cells"]
            if (c["dtype"], c["path"]) == ("float32", "auto") and c["n"] in SIZES and c["batch"] in BATCHES
        ]
        torchs = [c["both"]["torch"]["median"] for c in cells]
        floors = [c["both"]["empty"]["median"] + c["floor_products"] for c in cells]
        ours = [c["both"]["mlayer"]["median"] for c in cells]
        products = [c["floor_products"] for c in cells]

        def mean(times: list[float], torchs: list[float] = torchs) -> float:
            return statistics.geometric_mean([a / b for a, b in zip(torchs, times, strict=True)])

        found[isa] = {
            "cells": len(cells),
            "measured": mean(ours),
            "at 1.6 times the floors": mean([1.6 * floor for floor in floors]),
            "at the floors": mean(floors),
            "without autograd": mean(products),
            "large_product_rate": statistics.median(c["large_product_rate"] for c in cells),
        }
    return found


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("cell", type=int, nargs="*", help="n and batch")
    parser.add_argument("--isa", choices=tuple(SETS), help="this instruction set only")
    parser.add_argument("--work", metavar="LIBRARY", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        return work(options.work)
    if len(options.cell) not in (0, 2):
        parser.error("a cell is two numbers, n and batch")
    missing = [name for name in ("perf", "addr2line") if shutil.which(name) is None]
    library = None if missing else expm_samples.build_with_lines()
    if library is None:
        print(f"not installed: {', '.join(missing) or 'a C++ compiler'}")
        return 1
    facts = circumstances() | {"threads": 1}  # before another instruction set is tried
    sets = [isa for isa in SETS if native.use_instruction_set(isa) and options.isa in (None, isa)]
    cells: list[tuple[float, float]] = [*CELLS]
    if options.cell:
        cells = [(options.cell[0], options.cell[1])]
    real = {isa: measure(isa, library, "real", cells) for isa in sets}
    if options.cell:
        return 0
    complex_rows = {isa: measure(isa, None, "complex", list(COMPLEX_CELLS)) for isa in sets}
    content = {
        "circumstances": facts,
        "sets": {isa: {"held": SETS[isa], "cells": real[isa], "complex": complex_rows[isa]} for isa in sets},
        "bounds": bounds(),
    }
    for isa, found in content["bounds"].items():
        print(f"{isa}: " + ", ".join(f"{name} {value:.3g}" for name, value in found.items()))
    if options.isa is None:
        save("expm_profile", content)
    return 0


if __name__ == "__main__":
    sys.exit(main())

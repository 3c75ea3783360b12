"""Claim: without a compiled kernel expm is nowhere slower than torch's, whatever the matrices are.

    python benchmarks/expm_without_kernel.py          a quarter of an hour; results/expm_without_kernel.json;
                                                      exit code 1 if a goal is missed
    python benchmarks/expm_without_kernel.py --quick  some cells of every family, two minutes; no file

One thread, processor time of the two in turn, the least of several, forward and forward+backward. Families:
full matrices, rotations, triangular ones, triangular ones with couplings of a hundred and more times the
diagonal, badly balanced, strictly triangular and diagonal ones. Cells whose value or derivative overflows are
left out: those take a slow path (docs/expm.md).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from measure import Target, circumstances, save, verdict
from torch import Tensor

import mlayer
from mlayer.exponential.paths import VARIABLE

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 100, 128)
BATCHES = (1, 2, 8, 32, 256, 2048)
NORMS = (0.01, 1.0, 10.0, 50.0, 300.0)
DTYPES = (torch.float64, torch.float32)
QUICK_SIZES, QUICK_BATCHES, QUICK_NORMS = (2, 4, 16, 64), (1, 8, 256), (1.0, 50.0)
MOST_WORK = 64 * 32**3  # n^3 times the batch, from which on a call takes too long to be repeated
REPETITIONS, BLOCK_SECONDS = 5, 0.003
PASSES = {"forward": False, "forward+backward": True}


def families(n: int, norm: float, batch: int) -> dict[str, Tensor]:
    """Batches of each kind, in double precision; the 1-norm is that of what is to be exponentiated."""
    generator = torch.Generator().manual_seed(1000 * n + batch)
    full = torch.randn(batch, n, n, dtype=torch.float64, generator=generator)
    diagonal = -torch.rand(batch, n, dtype=torch.float64, generator=generator)

    def scaled(a: Tensor) -> Tensor:
        return a * (norm / torch.linalg.matrix_norm(a, 1))[:, None, None]

    scales = torch.exp2(torch.linspace(0, 20, n, dtype=torch.float64).round())
    return {
        "full": scaled(full),
        "rotations": scaled(full - full.mT),
        "triangular": scaled(full.triu()),
        "strongly coupled": torch.diag_embed(diagonal * min(norm, 20.0)) + 100 * norm * full.triu(1),
        "badly balanced": scaled(full) * (scales[:, None] / scales),
        "strictly triangular": scaled(full.triu(1)),
        "diagonal": torch.diag_embed(diagonal * norm),
    }


def call(function: Callable[[Tensor], Tensor], a: Tensor, backward: bool) -> Callable[[], Tensor]:
    """One call, with the backward pass or without."""
    if not backward:
        return lambda: function(a)
    leaf, cotangent = a.clone().requires_grad_(), torch.ones_like(a)
    return lambda: torch.autograd.grad(function(leaf), leaf, cotangent)[0]


def processor_times(calls: list[Callable[[], Tensor]]) -> list[float]:
    """Seconds of processor time of each, in turn: other programs change both alike."""
    counts = []
    for function in calls:
        start = time.thread_time()
        function()
        counts.append(max(1, int(BLOCK_SECONDS / max(time.thread_time() - start, 1e-6))))
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(REPETITIONS):
        for function, count, found in zip(calls, counts, times, strict=True):
            start = time.thread_time()
            for _ in range(count):
                function()
            found.append((time.thread_time() - start) / count)
    return [min(found) for found in times]


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """The measured cells."""
    sizes, batches, norms = (QUICK_SIZES, QUICK_BATCHES, QUICK_NORMS) if quick else (SIZES, BATCHES, NORMS)
    for dtype, n, batch, norm in product(DTYPES, sizes, batches, norms):
        if batch > 1 and batch * n**3 > MOST_WORK:
            continue
        for family, wide in families(n, norm, batch).items():
            a = wide.to(dtype)
            for name, backward in PASSES.items():
                ours, theirs = (
                    call(function, a, backward) for function in (mlayer.expm, torch.linalg.matrix_exp)
                )
                if not ours().isfinite().all():
                    continue
                mine, torchs = processor_times([ours, theirs])
                yield {
                    "dtype": str(dtype).removeprefix("torch."),
                    "family": family,
                    "n": n,
                    "batch": batch,
                    "norm": norm,
                    "pass": name,
                    "seconds": mine,
                    "ratio": torchs / mine,
                }


def summary(cells: list[dict[str, Any]]) -> list[Target]:
    """The worst cell of each family; printed with its place and the number of cells below 1."""
    targets = []
    for dtype, family, name in product(
        dict.fromkeys(c["dtype"] for c in cells), dict.fromkeys(c["family"] for c in cells), PASSES
    ):
        found = [c for c in cells if (c["dtype"], c["family"], c["pass"]) == (dtype, family, name)]
        worst = min(found, key=lambda c: float(c["ratio"]))
        below = sum(c["ratio"] < 1 for c in found)
        mean = statistics.geometric_mean(c["ratio"] for c in found)
        print(
            f"{dtype} {family:20} {name:16} mean {mean:5.2f}  worst {worst['ratio']:5.2f} "
            f"(n = {worst['n']}, batch {worst['batch']}, norm {worst['norm']:g})  "
            f"below 1: {below} of {len(found)}"
        )
        targets.append(Target(f"{dtype}, {family}, {name}, worst cell over torch", 1, worst["ratio"]))
    below = sum(c["ratio"] < 1 for c in cells)
    print(f"{below} of {len(cells)} cells below 1")
    return targets


def main() -> int:
    torch.set_num_threads(1)
    os.environ[VARIABLE] = "matmul"
    quick = sys.argv[1:] == ["--quick"]
    cells = list(rows(quick))
    targets = summary(cells)
    if not quick:
        content = {
            "circumstances": circumstances(),
            "rows": cells,
            "targets": [{"claim": t.claim, "reached": t.reached, "holds": t.holds} for t in targets],
        }
        save("expm_without_kernel", content)
    return verdict(targets)


if __name__ == "__main__":
    sys.exit(main())

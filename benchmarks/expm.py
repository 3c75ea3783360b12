"""Claim: mlayer.expm is the fastest differentiable matrix exponential on a CPU.

    python benchmarks/expm.py [--quick] [--others] [--results DIR]

Forward and forward+backward beside torch.linalg.matrix_exp, and with --others beside JAX,
TensorFlow and SciPy where they are installed: every cell of the grid is a block of calls of each
library in turn, repeated, medians taken. The other libraries come in a second round: once they are
loaded their thread pools take the cores from torch's, and so from torch and mlayer. Errors are measured
on the same matrices. Writes expm.json and expm.png into the results folder and ends with the targets.
Some five minutes on two cores, keep the machine quiet.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import expm_others
import torch
from measure import (
    RESULTS,
    Target,
    Timing,
    circumstances,
    geometric_mean,
    interleaved,
    save,
    verdict,
)
from torch import Tensor

import mlayer
from mlayer.exponential.schedule import root_of_square_norm, schedule_for

SIZES = (6, 12, 24, 30, 32)
BATCHES = (32, 256, 2048)
LARGE = ((64, 256), (128, 64))
# The released CIFAR-10 model has 2-norms of M between 3 and 4 (the paper, section 4.5).
NORM = 3.5
Call = Callable[[], object]


@dataclass
class Cell:
    """One size, batch and dtype: times, ratios to ours, errors, memory kept for the backward pass."""

    n: int
    batch: int
    dtype: str
    products: float  # k + s, mean over the batch, of our forward pass
    forward: dict[str, Timing] = field(default_factory=dict)
    both: dict[str, Timing] = field(default_factory=dict)
    forward_others: dict[str, Timing] = field(default_factory=dict)  # of the second round
    both_others: dict[str, Timing] = field(default_factory=dict)
    forward_error: dict[str, float] = field(default_factory=dict)
    gradient_error: dict[str, float] = field(default_factory=dict)
    kept_bytes: dict[str, int] = field(default_factory=dict)
    gemm_fraction: float | None = None

    def ratio(self, other: str, kind: str = "both") -> float:
        times: dict[str, Timing] = getattr(self, kind) | getattr(self, f"{kind}_others")
        return times[other].median / times["mlayer"].median

    def rivals(self, kind: str = "both") -> list[str]:
        """Every library that was measured here, but ours."""
        times: dict[str, Timing] = getattr(self, kind) | getattr(self, f"{kind}_others")
        return [name for name in times if name != "mlayer"]


def matrices(n: int, batch: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n * 10007 + batch)
    A = torch.randn(batch, n, n, generator=generator, dtype=torch.float64)
    A *= NORM / torch.linalg.matrix_norm(A, 2)[:, None, None]
    return A.to(dtype), torch.randn(batch, n, n, generator=generator, dtype=torch.float64).to(dtype)


def products(A: Tensor) -> float:
    schedule = schedule_for(A.dtype)
    cost = {2: 1, 4: 2, 8: 3, 16: 4}
    sizes = root_of_square_norm(A.double() @ A.double()).tolist()
    return sum(cost[schedule.degree(d)] + schedule.squarings(d) for d in sizes) / len(sizes)


def gradient(f: Callable[[Tensor], Tensor], A: Tensor, G: Tensor) -> Tensor:
    return torch.autograd.grad(f(A), A, G)[0]


def kept(f: Callable[[Tensor], Tensor], A: Tensor) -> int:
    """Bytes of distinct tensors that the graph holds on to for the backward pass."""
    held: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        held[t.data_ptr()] = t.numel() * t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        f(A)
    return sum(held.values())


def relative_error(X: Tensor, exact: Tensor) -> float:
    """Largest normwise error of a batch."""
    return float(((X.double() - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)).max())


def reference(A: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """exp(A) and the gradient by Arb balls, from the exponential of the 2n x 2n block matrix."""
    import flint

    n = A.shape[-1]
    block = torch.zeros(len(A), 2 * n, 2 * n, dtype=torch.float64)
    block[:, :n, :n] = block[:, n:, n:] = A.double().mT
    block[:, :n, n:] = G.double()
    flint.ctx.prec = 150
    exact = [flint.arb_mat(matrix.tolist()).exp().tolist() for matrix in block]
    X = torch.tensor(
        [[[float(entry.mid()) for entry in row] for row in m] for m in exact], dtype=torch.float64
    )
    return X[:, :n, :n].mT, X[:, :n, n:]


def measure_cell(n: int, batch: int, dtype: torch.dtype, repetitions: int) -> Cell:
    A, G = matrices(n, batch, dtype)
    leaf = A.clone().requires_grad_()
    ours: dict[str, Callable[[Tensor], Tensor]] = {"mlayer": mlayer.expm, "torch": torch.linalg.matrix_exp}
    forward: dict[str, Call] = {name: lambda f=f: f(A) for name, f in ours.items()}  # type: ignore[misc]
    both: dict[str, Call] = {
        name: lambda f=f: gradient(f, leaf, G)  # type: ignore[misc]
        for name, f in ours.items()
    }
    cell = Cell(n, batch, str(dtype).removeprefix("torch."), products(A))
    cell.forward = interleaved(forward, repetitions)
    cell.both = interleaved(both, repetitions)
    few = slice(0, 8 if n <= 32 else 1)
    exact, exact_gradient = reference(A[few], G[few])
    for name, f in ours.items():
        cell.forward_error[name] = relative_error(f(A[few]), exact)
        few_leaf = A[few].clone().requires_grad_()
        cell.gradient_error[name] = relative_error(gradient(f, few_leaf, G[few]), exact_gradient)
        cell.kept_bytes[name] = kept(f, leaf)
    return cell


def measure_others(cell: Cell, repetitions: int) -> None:
    A, G = matrices(cell.n, cell.batch, getattr(torch, cell.dtype))
    cell.forward_others = interleaved(expm_others.forward(A), repetitions)
    cell.both_others = interleaved(expm_others.both(A, G), repetitions)


def measure_gemm_fraction(cell: Cell, repetitions: int) -> None:
    """Our rate, counting only the 3 (k + s) products, against one large product, in one run."""
    dtype = getattr(torch, cell.dtype)
    A, G = matrices(cell.n, cell.batch, dtype)
    leaf = A.requires_grad_()
    large = torch.randn(2048, 2048, dtype=dtype)
    times = interleaved(
        {"mlayer": lambda: gradient(mlayer.expm, leaf, G), "gemm": lambda: large @ large}, repetitions
    )
    ours = 3 * cell.products * 2 * cell.n**3 * cell.batch / times["mlayer"].median
    cell.gemm_fraction = ours / (2 * 2048**3 / times["gemm"].median)


def show(cell: Cell) -> None:
    def column(kind: str) -> str:
        ours: Timing = getattr(cell, kind)["mlayer"]
        spread = (ours.high - ours.low) / ours.median
        others = "  ".join(f"{name} {cell.ratio(name, kind):5.1f}x" for name in cell.rivals(kind))
        return f"{ours.median * 1e6:9.0f} us (spread {spread:3.0%})  {others}"

    print(f"{cell.dtype} n={cell.n:3d} batch={cell.batch:4d}  forward {column('forward')}")
    print(f"{'':25}  both    {column('both')}")
    errors = "  ".join(
        f"{name} {cell.forward_error[name]:.1e}/{cell.gradient_error[name]:.1e}, "
        f"keeps {cell.kept_bytes[name] / 1e6:.2f} MB"
        for name in cell.forward_error
    )
    fraction = f"  {cell.gemm_fraction:.2f} of the large-product rate" if cell.gemm_fraction else ""
    print(f"{'':25}  error of value/gradient: {errors}{fraction}", flush=True)


def targets(cells: list[Cell]) -> list[Target]:
    single = [c for c in cells if c.dtype == "float32" and c.n in SIZES]
    double = [c for c in cells if c.dtype == "float64" and c.n in SIZES]
    large = [c for c in cells if c.n > max(SIZES)]
    found = [
        Target(
            "float32 forward+backward, geometric mean over torch",
            30,
            geometric_mean([c.ratio("torch") for c in single]),
        ),
        Target("float32 forward+backward, worst cell", 12, min(c.ratio("torch") for c in single)),
        Target(
            "float32 forward, geometric mean over torch",
            15,
            geometric_mean([c.ratio("torch", "forward") for c in single]),
        ),
        Target(
            "fraction of the large-product rate, n = 32, batch 2048",
            0.5,
            next(c.gemm_fraction or 0.0 for c in single if c.n == 32 and c.batch == 2048),
        ),
        Target("n = 64 and 128 over torch, worst", 6, min(c.ratio("torch") for c in large)),
        Target(
            "float64 forward+backward, geometric mean over torch",
            12,
            geometric_mean([c.ratio("torch") for c in double]),
        ),
        Target(
            "memory kept for backward, in units of M",
            1,
            max(
                c.kept_bytes["mlayer"] / (c.batch * c.n**2 * (4 if c.dtype == "float32" else 8))
                for c in cells
            ),
            at_most=True,
        ),
    ]
    contested = [c for c in single if c.batch == 2048 and c.both_others]
    if contested:
        best = [min(c.ratio(name) for name in c.rivals()) for c in contested]
        found.append(
            Target(
                "batch 2048, forward+backward, geometric mean over the best other library",
                12,
                geometric_mean(best),
            )
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few small cells, in seconds; no targets")
    parser.add_argument(
        "--others", action="store_true", help="JAX, TensorFlow and SciPy beside, where installed"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="where expm.json and expm.png go")
    options = parser.parse_args()
    facts = circumstances() | {"norm": NORM, "others": {}}
    print(facts, flush=True)
    cells: list[Cell] = []
    grid: list[tuple[int, int, torch.dtype]] = [(n, b, torch.float32) for n in SIZES for b in BATCHES]
    grid += [(n, b, torch.float64) for n in SIZES for b in BATCHES] + [
        (n, b, torch.float32) for n, b in LARGE
    ]
    if options.quick:
        grid = [(6, 32, torch.float32), (12, 32, torch.float64)]
    repetitions = 3 if options.quick else 7
    for n, batch, dtype in grid:
        cell = measure_cell(n, batch, dtype, repetitions)
        if n == 32 and batch == 2048 and dtype == torch.float32:
            measure_gemm_fraction(cell, repetitions)
        show(cell)
        cells.append(cell)
    if options.others:
        facts["others"] = expm_others.versions()
        print(f"\nWith {facts['others']}", flush=True)
        for cell in cells:
            if cell.dtype == "float32" and cell.n in SIZES:
                measure_others(cell, repetitions)
                show(cell)
    content: dict[str, Any] = {"circumstances": facts, "cells": [asdict(cell) for cell in cells]}
    if options.quick:
        return 0
    found = targets(cells)
    content["targets"] = [asdict(t) | {"holds": t.holds} for t in found]
    save("expm", content, options.results)
    from expm_plot import draw

    draw(content).savefig(options.results / "expm.png", dpi=150)
    return verdict(found)


if __name__ == "__main__":
    sys.exit(main())

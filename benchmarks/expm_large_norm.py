"""Claim: double-precision expm is nowhere slower than torch's, in twice the precision either.

    python benchmarks/expm_large_norm.py     ten minutes on an idle machine; results/expm_large_norm.json;
                                             exit code 1 if a goal is missed
    python benchmarks/expm_large_norm.py --balancing     the cost of balancing without a kernel, one minute;
                                             results/expm_balancing.json

From four squarings on the kernel squares in twice the precision (docs/theory/expm.md), which takes three
products for each squaring. Real matrices are random, complex ones skew-Hermitian; one thread. The table of
docs/expm.md is that of batch 32; the goals are for other batches too.

Balancing, in the path without a kernel: matrices that need none, with the search that finds that out and
without it. Entries of either sign between 1/2 and 3/2, in proportion: no row is far larger than its column.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from measure import Target, circumstances, interleaved, save, verdict
from torch import Tensor

import mlayer
from mlayer.exponential import small, small_balance

BATCH = 32
SIZES = (2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 48, 64, 96)
NORMS = (0.1, 1.0, 3.5, 10.0, 50.0, 300.0)
# Besides: small ones, and large ones as long as a call takes no more than some tenths of a second.
OTHER_BATCHES = (1, 256, 2048)
OTHER_NORMS = (1.0, 10.0, 300.0)
MOST_WORK = 256 * 24**3
BALANCED_SIZES, BALANCED_BATCHES, BALANCED_NORMS = (2, 4, 8, 16, 32), (1, 32, 256), (3.5, 10.0, 50.0)
# Goals for matrices that need no balancing: those with few squarings are not looked at, the others are.
NO_COST, LOW_COST = 1.05, 1.15
KINDS = {"real": torch.float64, "complex": torch.complex128}


def matrices(kind: str, n: int, norm: float, batch: int) -> Tensor:
    """A batch of matrices of this 1-norm, on the way to a gradient."""
    a = torch.randn(batch, n, n, dtype=KINDS[kind], generator=torch.Generator().manual_seed(n))
    if kind == "complex":
        a = a - a.mH
    a = a * (norm / torch.linalg.matrix_norm(a, 1))[:, None, None]
    return a.requires_grad_()


def passes(function: Callable[[Tensor], Tensor], a: Tensor, backward: bool) -> Callable[[], object]:
    """One call, with the backward pass or without."""
    cotangent = torch.ones_like(a)
    if backward:
        return lambda: torch.autograd.grad(function(a), a, cotangent)
    return lambda: function(a.detach())


def cells() -> list[tuple[str, int, float, int]]:
    """Kind, size, norm and batch."""
    found = [(kind, n, norm, BATCH) for kind, n, norm in product(KINDS, SIZES, NORMS)]
    others = product(KINDS, SIZES, OTHER_NORMS, OTHER_BATCHES)
    return found + [cell for cell in others if cell[3] == 1 or cell[3] * cell[1] ** 3 <= MOST_WORK]


def without_balancing(a: Tensor) -> Tensor:
    """The path without a kernel, if it did not balance."""
    found, small_balance.look = small_balance.look, lambda a: None
    try:
        return mlayer.expm(a, path="matmul")
    finally:
        small_balance.look = found


def balanced_matrices(n: int, norm: float, batch: int) -> Tensor:
    """A batch of matrices of this 1-norm that balancing does not change."""
    generator = torch.Generator().manual_seed(n)
    size, sign = torch.rand(2, batch, n, n, dtype=torch.float64, generator=generator)
    a = (size + 0.5) * (sign - 0.5).sign()
    return a * (norm / torch.linalg.matrix_norm(a, 1))[:, None, None]


def balancing() -> int:
    """Measure the cost of balancing in NumPy for matrices that need none; real ones, forward."""
    rows: list[dict[str, Any]] = []
    for n, batch, norm in product(BALANCED_SIZES, BALANCED_BATCHES, BALANCED_NORMS):
        a = balanced_matrices(n, norm, batch)
        if not small.takes(a):
            continue
        contenders = {"ours": partial(mlayer.expm, a, path="matmul"), "plain": partial(without_balancing, a)}
        times = interleaved(contenders, repetitions=15, block_seconds=0.01)
        ratio = times["ours"].median / times["plain"].median
        row = {"n": n, "batch": batch, "norm": norm, "ratio": ratio, "seconds": times["ours"].median}
        rows.append(row)
        print(f"n = {n:3} batch {batch:4} norm {norm:4g}: with balancing / without {ratio:5.2f}", flush=True)
    few = statistics.median(row["ratio"] for row in rows if row["norm"] == min(BALANCED_NORMS))
    many = statistics.median(row["ratio"] for row in rows if row["norm"] > min(BALANCED_NORMS))
    targets = [
        Target("time with balancing over without, fewer than 4 squarings, median", NO_COST, few, True),
        Target("time with balancing over without, 4 squarings or more, median", LOW_COST, many, True),
    ]
    save("expm_balancing", {"circumstances": circumstances(), "rows": rows, "targets": as_json(targets)})
    return verdict(targets)


def as_json(targets: list[Target]) -> list[dict[str, Any]]:
    return [
        {"claim": t.claim, "wanted": t.wanted, "reached": t.reached, "at_most": t.at_most, "holds": t.holds}
        for t in targets
    ]


def main() -> int:
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--balancing"]:
        return balancing()
    rows: list[dict[str, Any]] = []
    for kind, n, norm, batch in cells():
        a = matrices(kind, n, norm, batch)
        row: dict[str, Any] = {"kind": kind, "n": n, "norm": norm, "batch": batch}
        for name, backward in (("forward", False), ("forward+backward", True)):
            times = interleaved(
                {
                    "mlayer": passes(mlayer.expm, a, backward),
                    "torch": passes(torch.linalg.matrix_exp, a, backward),
                },
                repetitions=5,
                block_seconds=0.02,
            )
            row[name] = times["torch"].median / times["mlayer"].median
        rows.append(row)
        print(
            f"{kind:8} n = {n:3} norm {norm:5g} batch {batch:4}: torch / mlayer "
            f"{row['forward']:5.2f} forward, {row['forward+backward']:5.2f} forward and backward",
            flush=True,
        )
    targets = [
        Target(f"{kind}, {name}, worst cell over torch", 1, min(r[name] for r in rows if r["kind"] == kind))
        for kind, name in product(KINDS, ("forward", "forward+backward"))
    ]
    content = {
        "circumstances": circumstances(),
        "batch": BATCH,
        "rows": [row for row in rows if row["batch"] == BATCH],
        "other batches": [row for row in rows if row["batch"] != BATCH],
        "targets": as_json(targets),
    }
    save("expm_large_norm", content)
    return verdict(targets)


if __name__ == "__main__":
    sys.exit(main())

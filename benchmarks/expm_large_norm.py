"""Claim: double-precision expm is nowhere slower than torch's, in twice the precision either.

    python benchmarks/expm_large_norm.py     ten minutes on an idle machine; results/expm_large_norm.json;
                                             exit code 1 if a goal is missed

From four squarings on the kernel squares in twice the precision (docs/theory/expm.md), which takes three
products for each squaring. Real matrices are random, complex ones skew-Hermitian; one thread. The table of
docs/expm.md is that of batch 32; the goals are for other batches too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from measure import Target, circumstances, interleaved, save, verdict
from torch import Tensor

import mlayer

BATCH = 32
SIZES = (2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 48, 64, 96)
NORMS = (0.1, 1.0, 3.5, 10.0, 50.0, 300.0)
# Besides: small ones, and large ones as long as a call takes no more than some tenths of a second.
OTHER_BATCHES = (1, 256, 2048)
OTHER_NORMS = (1.0, 10.0, 300.0)
MOST_WORK = 256 * 24**3
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


def main() -> int:
    torch.set_num_threads(1)
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
        "targets": [
            {"claim": t.claim, "wanted": t.wanted, "reached": t.reached, "holds": t.holds} for t in targets
        ],
    }
    save("expm_large_norm", content)
    return verdict(targets)


if __name__ == "__main__":
    sys.exit(main())

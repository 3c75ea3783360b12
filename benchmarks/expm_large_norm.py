"""What twice the precision costs: double-precision expm of matrices with large norms, compared with torch.

    python benchmarks/expm_large_norm.py     two minutes on an idle machine; results/expm_large_norm.json

No claim: from four squarings on the kernel squares in twice the precision (docs/theory/expm.md), which takes
three products for each squaring, so that it can be slower than `torch.linalg.matrix_exp`, whose error grows
with the number of squarings. Real matrices are random, complex ones skew-Hermitian; one thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product

import torch
from measure import circumstances, interleaved, save
from torch import Tensor

import mlayer

BATCH = 32
SIZES = (6, 12, 16, 32, 64)
NORMS = (1.0, 3.5, 10.0, 50.0, 500.0)
KINDS = {"real": torch.float64, "complex": torch.complex128}


def matrices(kind: str, n: int, norm: float) -> Tensor:
    """A batch of matrices of this 1-norm, on the way to a gradient."""
    a = torch.randn(BATCH, n, n, dtype=KINDS[kind], generator=torch.Generator().manual_seed(n))
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


def main() -> int:
    torch.set_num_threads(1)
    rows = []
    for kind, n, norm in product(KINDS, SIZES, NORMS):
        a = matrices(kind, n, norm)
        row: dict[str, object] = {"kind": kind, "n": n, "norm": norm}
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
            f"{kind:8} n = {n:3} norm {norm:5g}: torch / mlayer {row['forward']:5.2f} forward, "
            f"{row['forward+backward']:5.2f} forward and backward",
            flush=True,
        )
    save("expm_large_norm", {"circumstances": circumstances(), "batch": BATCH, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Claim: mlayer.expm_action is faster than SciPy's expm_multiply on a sparse generator of 100,000 states.

    python benchmarks/expm_action.py            a few minutes; writes results/expm_action.json
    python benchmarks/expm_action.py --quick    small matrices, in seconds; asserts no speed

Three tables, each cell measured side by side in one run. (1) A generator of 100,000 states (two queues side
by side), forward, compared with `scipy.sparse.linalg.expm_multiply`, by columns and time. (2) Compared with
forming the exponential, `mlayer.expm(A) @ V`, for dense and sparse A: from which n, columns and density it
pays. (3) Forward and backward compared with forward alone.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import asdict
from typing import Any

import numpy as np
import scipy
import torch
from measure import Target, Timing, argument_parser, circumstances, finish, interleaved
from scipy.sparse import csr_matrix, diags, kronsum
from scipy.sparse.linalg import expm_multiply
from torch import Tensor

import mlayer

Row = dict[str, Any]


def queues(side: int) -> csr_matrix:
    """Two queues of up to side - 1 customers: birth-death chains, side^2 states; columns sum to zero."""

    def rates(up: float, down: float) -> csr_matrix:
        return diags([np.full(side - 1, down), np.full(side - 1, up)], [1, -1])

    moves = kronsum(rates(0.7, 0.9), rates(0.5, 0.6)).tocsr()
    return (moves - diags(np.asarray(moves.sum(0)).ravel())).tocsr()


def to_torch(a: csr_matrix) -> Tensor:
    starts, columns, values = (torch.from_numpy(x.copy()) for x in (a.indptr, a.indices, a.data))
    return torch.sparse_csr_tensor(starts, columns, values, a.shape, check_invariants=True)


def ratio(times: dict[str, Timing], other: str) -> float:
    return times[other].median / times["mlayer"].median


def beside_scipy(side: int, repetitions: int) -> list[Row]:
    a = queues(side)
    A = to_torch(a)
    trace = float(a.diagonal().sum())
    rows = []
    for columns, t in ((1, 1.0), (10, 1.0), (1, 10.0), (10, 10.0), (10, 50.0)):
        v = np.random.default_rng(0).random((a.shape[0], columns))
        v /= v.sum(0)
        V = torch.from_numpy(v)
        times = interleaved(
            {
                "mlayer": lambda: mlayer.expm_action(A, V, t),  # noqa: B023
                "scipy": lambda: expm_multiply(t * a, v, traceA=t * trace),  # noqa: B023
            },
            repetitions,
            0.0,
        )
        theirs = expm_multiply(t * a, v, traceA=t * trace)
        apart = np.abs(mlayer.expm_action(A, V, t).numpy() - theirs).max()
        row = {"states": a.shape[0], "columns": columns, "t": t, "apart": float(apart / v.max())}
        row |= {
            "scipy over mlayer": ratio(times, "scipy"),
            "seconds": {k: asdict(x) for k, x in times.items()},
        }
        spread = (times["mlayer"].high - times["mlayer"].low) / times["mlayer"].median
        print(
            f"{a.shape[0]} states, {columns:2d} columns, t = {t:4g}: mlayer {times['mlayer'].median:.3f} s "
            f"(spread {spread:.0%}), scipy / mlayer {row['scipy over mlayer']:.2f}, apart {apart:.0e}",
            flush=True,
        )
        rows.append(row)
    return rows


def random_sparse(n: int, density: float) -> Tensor:
    """A random sparse matrix of norm about 5, float32."""
    generator = torch.Generator().manual_seed(n)
    A = torch.randn(n, n, generator=generator)
    if density < 1:
        A = torch.where(torch.rand(n, n, generator=generator) < density, A, 0.0)
    return A * (5.0 / float(A.abs().sum(0).max()))


def beside_forming(sizes: tuple[int, ...], repetitions: int) -> list[Row]:
    rows = []
    for n in sizes:
        for density in (1.0, 0.01):
            dense = random_sparse(n, density)
            A = dense if density == 1.0 else dense.to_sparse_csr()
            for columns in (1, 16):
                V = torch.randn(n, columns, generator=torch.Generator().manual_seed(1))
                times = interleaved(
                    {
                        "mlayer": lambda: mlayer.expm_action(A, V),  # noqa: B023
                        "forming": lambda: mlayer.expm(dense) @ V,  # noqa: B023
                    },
                    repetitions,
                    0.02,
                )
                row = {"n": n, "density": density, "columns": columns}
                rows.append(row | {"forming over mlayer": ratio(times, "forming")})
                print(
                    f"n = {n:4d}, density {density:4g}, {columns:2d} columns: mlayer "
                    f"{times['mlayer'].median * 1e3:8.2f} ms, forming / ours {ratio(times, 'forming'):6.2f}",
                    flush=True,
                )
    return rows


def with_gradient(side: int, repetitions: int) -> Row:
    a = to_torch(queues(side)).to_sparse_coo().coalesce()
    indices, values = a.indices(), a.values().clone().requires_grad_()
    V = torch.rand(a.shape[0], 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def both() -> Tensor:
        # COO: the backward pass of torch's constructor of CSR tensors makes them dense.
        A = torch.sparse_coo_tensor(indices, values, a.shape, check_invariants=False)
        return torch.autograd.grad(mlayer.expm_action(A, V).sum(), values)[0]

    times = interleaved({"mlayer": lambda: mlayer.expm_action(a, V), "both": both}, repetitions, 0.0)
    print(
        f"{a.shape[0]} states, 4 columns: with the gradient of all rates / forward {ratio(times, 'both'):.1f}"
    )
    return {"states": a.shape[0], "columns": 4, "both over forward": ratio(times, "both")}


def main() -> int:
    """Measure, print, write, judge."""
    quick = argument_parser(__doc__, "a smoke run: no file").parse_args().quick
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
    repetitions = 2 if quick else 5
    facts = circumstances() | {"scipy": scipy.__version__}
    print(facts)
    large = beside_scipy(20 if quick else 316, repetitions)
    forming = beside_forming((32,) if quick else (64, 192, 512, 1024), repetitions)
    gradient = with_gradient(20 if quick else 100, repetitions)
    if quick:
        return 0
    main_row = next(r for r in large if r["columns"] == 10 and r["t"] == 10.0)
    targets = [
        Target("100,000 states, 10 columns, t = 10: scipy / mlayer", 3.0, main_row["scipy over mlayer"])
    ]
    content = {"circumstances": facts, "beside_scipy": large, "beside_forming": forming, "gradient": gradient}
    return finish("expm_action", content, targets)


if __name__ == "__main__":
    sys.exit(main())

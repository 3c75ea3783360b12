"""The gallery of matrices. A new row in `GALLERY` gets the whole suite.

A case is a function dtype -> (n, n) tensor; its entries, rounded to the dtype, are the exact input.
`measure` says what a good algorithm's relative normwise error is proportional to, besides eps:

    "norm"       max(1, ||A||_1), what expm.md asks for; right where A is normal or nearly so
    "condition"  the larger of that and the relative condition number of exp at A, computed in Arb by
                 the oracle, for matrices far from normal: no algorithm in floating point does better
    "one"        nothing: the structure of the matrix (disjoint scales, a finite series without
                 cancellation) makes the answer right to rounding, and that is what we hold ourselves to
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """One matrix of the gallery."""

    name: str
    make: Callable[[torch.dtype], Tensor]
    measure: str = "norm"

    def __str__(self) -> str:
        return self.name


def random_matrix(n: int, norm: float, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normally distributed entries, scaled to this 1-norm."""
    generator = torch.Generator().manual_seed(1000 * n + seed)
    matrix = torch.randn(n, n, dtype=torch.float64, generator=generator)
    return (matrix * (norm / matrix.abs().sum(0).max())).to(dtype)


def _fixed(matrix: Tensor | list[list[float]]) -> Callable[[torch.dtype], Tensor]:
    values = torch.as_tensor(matrix, dtype=torch.float64)
    return lambda dtype: values.to(dtype, copy=True)


def _jordan(n: int, eigenvalue: float, coupling: float = 1.0) -> Tensor:
    return eigenvalue * torch.eye(n, dtype=torch.float64) + coupling * torch.ones(
        n - 1, dtype=torch.float64
    ).diag(1)


def _skew(n: int, norm: float) -> Tensor:
    matrix = random_matrix(n, norm, seed=1)
    return (matrix - matrix.mT) / 2


def _companion(roots: list[float]) -> Tensor:
    polynomial = torch.ones(1, dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.float64)
    for root in roots:
        polynomial = torch.cat([polynomial, zero]) - root * torch.cat([zero, polynomial])
    matrix = torch.ones(len(roots) - 1, dtype=torch.float64).diag(-1)
    matrix[0] = -polynomial[1:]
    return matrix


def _hilbert(n: int) -> Tensor:
    index = torch.arange(n, dtype=torch.float64)
    return 1 / (index[:, None] + index[None, :] + 1)


def _generator_of_markov_chain(n: int, rate: float) -> Tensor:
    matrix = random_matrix(n, 1.0, seed=2).abs() * rate
    return matrix - matrix.sum(1).diag()


def _block_diagonal() -> Tensor:
    matrix = torch.zeros(18, 18, dtype=torch.float64)
    for start, n, norm in ((0, 5, 1e-3), (5, 6, 1.0), (11, 7, 12.0)):
        matrix[start : start + n, start : start + n] = random_matrix(n, norm)
    return matrix


def _badly_scaled(n: int, decades: float) -> Tensor:
    d = torch.logspace(-decades / 2, decades / 2, n, dtype=torch.float64)
    return d[:, None] * random_matrix(n, 2.0, seed=3) / d[None, :]


def _defective(n: int) -> Tensor:
    """A Jordan block seen from another basis; both triangles full."""
    basis: Tensor = torch.linalg.qr(random_matrix(n, 1.0, seed=4)).Q
    return basis @ _jordan(n, -1.0, 2.0) @ basis.mT


def _nilpotent_full(n: int) -> Tensor:
    """A^2 = 0 exactly, no entry zero."""
    u = torch.ones(n, 1, dtype=torch.float64)
    v = torch.tensor([1.0 if k % 2 else -1.0 for k in range(n)], dtype=torch.float64)[None, :]
    return 3 * u @ v


def _positive(n: int, size: float) -> Tensor:
    """u v^T with positive entries and ||A^2||^(1/2) = size; unequal, so that rounding goes both ways."""
    u, v = random_matrix(n, 1.0, seed=6).abs()[:2]
    matrix = torch.outer(u + u.mean(), v + v.mean())
    return matrix * (size / (matrix @ matrix).sum(0).max().sqrt())


def _triangular_ones(n: int, value: float) -> Tensor:
    return value * torch.ones(n, n, dtype=torch.float64).triu(1)


def _rotation(angle: float) -> Tensor:
    return torch.tensor([[0.0, -angle], [angle, 0.0]], dtype=torch.float64)


def _grcar(n: int) -> Tensor:
    ones = torch.ones(n, n, dtype=torch.float64)
    return ones.triu(0).tril(3) - ones.diagonal(offset=-1).diag(-1)


# ||A^2||^(1/2) a little below twice each threshold of schedule.py, of value and derivative, single and
# double: a threshold twice too large would take the next smaller degree there. On a positive matrix of
# rank one no term of the series cancels another, so the truncation error shows in full.
_NEAR_THRESHOLDS = (2.8e-8, 4.9e-8, 4.3e-4, 6.4e-4, 1.1e-3, 0.065, 0.072, 0.095, 0.84, 1.05, 1.28, 3.7, 4.45)

_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 100, 130)
_NORMS = (1e-9, 1e-4, 2e-4, 1e-2, 0.03, 0.3, 0.5, 1.0, 2.0, 5.0, 30.0)

GALLERY: tuple[Case, ...] = (
    Case("zero_1", _fixed([[0.0]])),
    Case("zero_6", _fixed(torch.zeros(6, 6))),
    Case("identity_5", _fixed(torch.eye(5))),
    Case("minus_identity_20", _fixed(-20 * torch.eye(20))),
    Case("diagonal", _fixed(torch.linspace(-8, 8, 11, dtype=torch.float64).diag())),
    Case("diagonal_wide", _fixed([[-60.0, 0.0], [0.0, 60.0]])),
    Case("tiny", _fixed(random_matrix(4, 1e-30))),
    # Finite series. Positive entries: nothing cancels.
    Case("nilpotent_2", _fixed([[0.0, 3.0], [0.0, 0.0]]), "one"),
    Case("nilpotent_3", _fixed([[0.0, 1.0, 2.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]]), "one"),
    Case("nilpotent_lower_9", _fixed(_triangular_ones(9, 0.5).mT)),
    Case("nilpotent_16", _fixed(_triangular_ones(16, 1.0))),
    Case("nilpotent_17", _fixed(_triangular_ones(17, 1.0))),
    Case("nilpotent_40", _fixed(_triangular_ones(40, 0.5))),
    Case("nilpotent_huge", _fixed([[0.0, 1e15, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]]), "one"),
    Case("nilpotent_shift_20", _fixed(_jordan(20, 0.0, 5.0))),
    # Finite series whose terms cancel: exp(A) is well conditioned, its Taylor series is not.
    Case("nilpotent_negative_8", _fixed(_triangular_ones(8, -5.0))),
    Case("nilpotent_negative_16", _fixed(_triangular_ones(16, -5.0))),
    Case("nilpotent_negative_24", _fixed(_triangular_ones(24, -5.0))),
    Case("nilpotent_negative_40", _fixed(_triangular_ones(40, -5.0))),
    Case("nilpotent_random_16", _fixed(random_matrix(16, 60.0).triu(1)), "condition"),
    Case("nilpotent_random_32", _fixed(random_matrix(32, 40.0).tril(-1)), "condition"),
    Case("nilpotent_full_6", _fixed(_nilpotent_full(6))),
    Case("nilpotent_full_20", _fixed(_nilpotent_full(20))),
    Case("jordan_4", _fixed(_jordan(4, 1.0))),
    Case("jordan_12", _fixed(_jordan(12, -2.0, 3.0)), "condition"),
    Case("jordan_large_30", _fixed(_jordan(30, 0.5, 4.0)), "condition"),
    Case("nearly_jordan", _fixed([[1e-4, 1e3], [0.0, -1e-4]]), "one"),
    Case("nearly_jordan_tiny", _fixed([[1e-9, 10.0], [0.0, -1e-9]]), "one"),
    Case("skew_3", _fixed(_skew(3, 2.0))),
    Case("skew_10", _fixed(_skew(10, 30.0))),
    Case("skew_25", _fixed(_skew(25, 3.0))),
    Case("rotation_quarter", _fixed(_rotation(math.pi / 2))),
    Case("rotation_many_turns", _fixed(_rotation(100.0))),
    Case("defective_6", _fixed(_defective(6)), "condition"),
    Case("defective_20", _fixed(_defective(20)), "condition"),
    Case("badly_scaled_4", _fixed(_badly_scaled(4, 6)), "condition"),
    Case("badly_scaled_18", _fixed(_badly_scaled(18, 4)), "condition"),
    Case("large_norm_stable", _fixed(random_matrix(6, 50.0) - 60 * torch.eye(6)), "condition"),
    Case("large_norm_5", _fixed(random_matrix(5, 80.0)), "condition"),
    Case("large_norm_20", _fixed(random_matrix(20, 150.0)), "condition"),
    Case("overscaling_1e3", _fixed([[1.0, 1e3], [0.0, -1.0]]), "one"),
    Case("overscaling_1e6", _fixed([[1.0, 1e6], [0.0, -1.0]]), "one"),
    Case("overscaling_1e12", _fixed([[1.0, 1e12], [0.0, -1.0]]), "one"),
    Case("moler_van_loan", _fixed([[-49.0, 24.0], [-64.0, 31.0]]), "condition"),
    Case("grcar_12", _fixed(_grcar(12)), "condition"),
    Case("grcar_32", _fixed(_grcar(32)), "condition"),
    Case("companion_5", _fixed(_companion([1.0, 2.0, 3.0, 4.0, 5.0])), "condition"),
    Case("hilbert_10", _fixed(_hilbert(10))),
    Case("hilbert_negative_25", _fixed(-10 * _hilbert(25)), "condition"),
    Case("triangular_7", _fixed(random_matrix(7, 6.0).triu()), "condition"),
    Case("triangular_30", _fixed(random_matrix(30, 10.0).tril()), "condition"),
    Case("block_diagonal", _fixed(_block_diagonal())),
    Case("markov_8", _fixed(_generator_of_markov_chain(8, 3.0))),
    Case("markov_24", _fixed(_generator_of_markov_chain(24, 20.0))),
    *(Case(f"positive_{x:g}_n4", _fixed(_positive(4, x))) for x in _NEAR_THRESHOLDS),
    *(Case(f"positive_{x:g}_n20", _fixed(_positive(20, x))) for x in _NEAR_THRESHOLDS),
    # And where exp(A) is small the same truncation error is large beside it.
    *(Case(f"minus_{x:g}_n4", _fixed(-x * torch.eye(4, dtype=torch.float64))) for x in _NEAR_THRESHOLDS),
    *(Case(f"minus_{x:g}_n20", _fixed(-x * torch.eye(20, dtype=torch.float64))) for x in _NEAR_THRESHOLDS),
    *(Case(f"random_{n}", _fixed(random_matrix(n, 3.0))) for n in _SIZES),
    *(Case(f"random_norm_{x:g}_n6", _fixed(random_matrix(6, x))) for x in _NORMS),
    *(Case(f"random_norm_{x:g}_n20", _fixed(random_matrix(20, x))) for x in _NORMS),
)

"""The matmul path and matrices in badly scaled bases: every precision and every size of a batch.

exp(D B D^-1) = D exp(B) D^-1 and L(D B D^-1, D E D^-1) = D L(B, E) D^-1, without rounding for powers of two.
"""

from __future__ import annotations

import flint
import pytest
import torch
from torch import Tensor

import mlayer
import oracle
from cases import random_matrix
from mlayer.exponential import grouped, small
from rounding import agree

UNITS = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
# In NumPy, and in torch.
BATCHES = {"small": (2, 6), "medium": (18, 40)}


def scaling(n: int, most: int) -> Tensor:
    """D_i / D_j."""
    steps = torch.linspace(-most, most, n, dtype=torch.float64).round()
    d = torch.exp2(steps[torch.randperm(n, generator=torch.Generator().manual_seed(4))])
    return d[:, None] / d


def error(computed: Tensor, plain: flint.arb_mat, factors: Tensor) -> float:
    """Normwise, of D X D^-1, in units of roundoff."""
    rows = zip(plain.tolist(), factors.tolist(), strict=True)
    exact = flint.arb_mat([[x * flint.arb(f) for x, f in zip(*row, strict=True)] for row in rows])
    return oracle.relative_error(computed, exact) / UNITS[computed.dtype]


@pytest.mark.parametrize("kind", ["full", "upper", "lower"])
@pytest.mark.parametrize("size", BATCHES)
@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_badly_scaled(dtype: torch.dtype, size: str, kind: str) -> None:
    """Value and gradient beside matrices of ordinary scaling: up to a million units were lost."""
    b, n = BATCHES[size]
    plain, e = (random_matrix(n, norm, seed).to(dtype).double() for norm, seed in ((6.0, 1), (1.0, 2)))
    factors = scaling(n, 20)
    if kind != "full":  # couplings far larger than the diagonal
        factors = torch.exp2(torch.linspace(20, -20, n, dtype=torch.float64).round())
        plain, factors = plain.triu(), factors[:, None] / factors
        if kind == "lower":
            plain, factors = plain.mT, factors.mT
    others = torch.stack([random_matrix(n, 20.0, k).to(dtype) for k in range(b - 1)])
    a = torch.cat([(plain * factors).to(dtype)[None], others])
    assert torch.equal(a[0].double(), plain * factors)
    assert small.takes(a) == (size == "small")
    value = mlayer.expm(a, path="matmul")
    assert error(value[0], oracle.exact_exp(oracle.to_arb(plain)), factors) <= 60
    agree(value[1:], grouped.expm(others), others)
    leaf = a.mT.contiguous().requires_grad_()
    g = (e * factors).to(dtype).expand(b, n, n)
    (gradient,) = torch.autograd.grad(mlayer.expm(leaf, path="matmul"), leaf, g)
    exact = oracle.exact_frechet(oracle.to_arb(plain), oracle.to_arb(e))
    assert error(gradient[0], exact, factors) <= 60


# What cannot be computed with them in few operations: overflow, NaN, a strictly triangular matrix, both.
NEIGHBORS = {
    "overflows": [2000.0],
    "not finite": [torch.nan],
    "strictly triangular": [0.0],
    "overflows, strictly triangular": [2000.0, 0.0],
}


@pytest.mark.parametrize("neighbors", NEIGHBORS.values(), ids=NEIGHBORS)
@pytest.mark.parametrize("size", BATCHES)
@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_badly_scaled_beside_others_that_need_care(
    dtype: torch.dtype, size: str, neighbors: list[float]
) -> None:
    """Value and gradient, which were without a correct digit beside such matrices."""
    b, n = BATCHES[size]
    plain, e = (random_matrix(n, norm, seed).to(dtype).double() for norm, seed in ((6.0, 1), (1.0, 2)))
    factors = scaling(n, 20)
    strict = random_matrix(n, 500.0, 3).triu(1)
    others = [torch.full((n,), x, dtype=torch.float64).diag() if x else strict for x in neighbors]
    a = torch.stack([plain * factors, *(others * b)[: max(b - 1, len(others))]]).to(dtype)
    value = mlayer.expm(a, path="matmul")
    assert error(value[0], oracle.exact_exp(oracle.to_arb(plain)), factors) <= 60
    leaf = a.mT.contiguous().requires_grad_()
    g = (e * factors).to(dtype).expand_as(a)
    (gradient,) = torch.autograd.grad(mlayer.expm(leaf, path="matmul"), leaf, g)
    exact = oracle.exact_frechet(oracle.to_arb(plain), oracle.to_arb(e))
    assert error(gradient[0], exact, factors) <= 60
    finite = value.isfinite().flatten(1).all(1).tolist()
    assert finite[1 : len(neighbors) + 1] == [x == 0.0 for x in neighbors]


def test_complex_numbers_of_single_precision() -> None:
    plain = torch.complex(random_matrix(5, 4.0, 3), random_matrix(5, 4.0, 4)).to(torch.complex64)
    factors = scaling(5, 20).float()
    found = mlayer.expm((plain * factors)[None], path="matmul")[0] / factors
    exact = mlayer.expm(plain.to(torch.complex128), path="matmul")
    assert (found - exact).abs().max() <= 1e-5 * exact.abs().max()


@pytest.mark.parametrize("entry", [100.0, torch.nan])
def test_single_precision_that_overflows_or_is_not_finite(entry: float) -> None:
    """Infinite where the true value is too large, and its neighbors are right."""
    factors = scaling(4, 30).float()
    a = torch.block_diag(torch.tensor([[entry]]), random_matrix(4, 6.0, 1).float() * factors)
    others = random_matrix(5, 20.0, 2).float()
    found = mlayer.expm(torch.stack([a, others]), path="matmul")
    if entry == 100.0:
        assert found[0, 0, 0] == torch.inf
        exact = mlayer.expm(a[1:, 1:].double(), path="matmul")
        assert (found[0, 1:, 1:] - exact).norm() <= 1e-5 * exact.norm()
    else:
        assert found[0].isnan().all()
    agree(found[1:], grouped.expm(others[None]), others[None])

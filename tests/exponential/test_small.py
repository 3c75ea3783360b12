"""The matmul path in NumPy beside the one in torch, for every dtype, in both arrangements of memory."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

import gallery
import mlayer
import oracle
from cases import random_matrix
from mlayer.exponential import grouped, matmul, small
from rounding import agree

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SHAPES = [(1, 2), (5, 3), (small._MANY, 2), (small._MANY + 3, 3), (3, 12), (1, 40)]
NORMS = {"tiny": 1e-5, "degree 4": 0.03, "degree 8": 0.3, "degree 16": 2.0, "squared": 30.0}


def batch(b: int, n: int, norms: list[float], dtype: torch.dtype, seed: int = 0) -> Tensor:
    made = torch.stack([random_matrix(n, norms[k % len(norms)], seed + k) for k in range(b)])
    if dtype.is_complex:
        return torch.complex(made, made.roll(1, 0)).to(dtype)
    return made.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("b", "n"), [(1, 2), (5, 3), (small._MANY, 2), (small._MANY + 3, 3), (3, 12), (1, 40)]
)
@pytest.mark.parametrize("norms", [[norm] for norm in NORMS.values()] + [list(NORMS.values())], ids=str)
def test_as_in_torch(b: int, n: int, norms: list[float], dtype: torch.dtype) -> None:
    a, g = batch(b, n, norms, dtype), batch(b, n, [1.0], dtype, seed=1000)
    assert small.takes(a)
    value, derivative = small.evaluate(a, None), small.evaluate(a, g)
    assert value is not None
    assert derivative is not None
    assert value.is_contiguous()
    assert derivative.is_contiguous()
    agree(value, grouped.expm(a), a)
    agree(derivative, grouped.frechet(a, g), a)


@pytest.mark.parametrize("b", [2, small._MANY])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, 1e30, 200.0], ids=str)
def test_what_needs_care_is_left_to_the_grouped_path(b: int, poison: float) -> None:
    a = batch(b, 3, [2.0], torch.float32)
    a[1, 0, 0] = poison
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert small.evaluate(a, None) is None
        assert small.evaluate(a, a.clone().fill_(1.0)) is None
        if poison not in (200.0, 1e30):  # as a direction these are ordinary
            assert small.evaluate(batch(b, 3, [2.0], torch.float32), a) is None
    torch.testing.assert_close(matmul.expm(a), grouped.expm(a), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("b", [3, small._MANY])
def test_strictly_triangular_matrices_have_a_finite_series(b: int) -> None:
    a = batch(b, 3, [1.0], torch.float64)
    a[1] = torch.tensor([[0.0, 1e9, 3.0], [0.0, 0.0, 1e9], [0.0, 0.0, 0.0]])
    assert small.evaluate(a, None) is None
    expected = torch.eye(3, dtype=torch.float64) + a[1] + a[1] @ a[1] / 2
    assert torch.equal(matmul.expm(a)[1], expected)


def test_no_kernel_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public function behaves the same: shapes, gradients, the argument unchanged."""
    monkeypatch.setenv("MLAYER_EXPM", "matmul")
    a = batch(6, 3, list(NORMS.values()), torch.float64).reshape(2, 3, 3, 3).requires_grad_()
    before = a.detach().clone()
    assert torch.autograd.gradcheck(mlayer.expm, a[0, :2].detach().requires_grad_())
    (gradient,) = torch.autograd.grad(mlayer.expm(a).sum(), a)
    monkeypatch.setattr(small, "takes", lambda matrices: False)
    (expected,) = torch.autograd.grad(mlayer.expm(a).sum(), a)
    agree(gradient, expected, a)
    assert torch.equal(a, before)


UNIT_ROUNDOFF = 2.0**-53
# Without balancing their largest errors were 7e4 units, of value and derivative.
BADLY_BALANCED = [name for name in gallery.MATRICES if name.startswith("badly balanced")]


@pytest.mark.parametrize("name", BADLY_BALANCED)
@pytest.mark.parametrize("company", [False, True], ids=["alone", "in a batch"])
def test_badly_scaled_matrices_are_balanced(name: str, company: bool) -> None:
    """The value, alone and in a batch with matrices that are well scaled, against Arb."""
    a = gallery.MATRICES[name]
    others = [random_matrix(len(a), 30.0, 5), random_matrix(len(a), 0.1, 6)] if company else []
    batch = torch.stack([a, *others])
    found = mlayer.expm(batch, path="matmul")
    assert oracle.relative_error(found[0], oracle.exact_exp(oracle.to_arb(a))) <= 20 * UNIT_ROUNDOFF
    agree(found[1:], grouped.expm(batch[1:]), batch[1:])


@pytest.mark.parametrize("decades", [4, 12])
def test_the_derivative_of_a_badly_scaled_matrix(decades: int) -> None:
    """L(D A D^-1, D E D^-1) is D L(A, E) D^-1, without rounding, in a badly scaled basis."""
    plain, e = random_matrix(4, 6.0, 1) / 2, random_matrix(4, 1.0, 2)
    scale = torch.exp2(torch.linspace(0, decades * 10 / 3, 4, dtype=torch.float64).round())
    factors = scale[:, None] / scale
    found = small.evaluate((plain * factors)[None], (e * factors)[None])
    assert found is not None
    exact = oracle.exact_frechet(oracle.to_arb(plain), oracle.to_arb(e))
    assert oracle.relative_error(found[0] / factors, exact) <= 40 * UNIT_ROUNDOFF


def test_complex_matrices_are_balanced() -> None:
    plain = torch.complex(random_matrix(3, 4.0, 3), random_matrix(3, 4.0, 4))
    scale = torch.tensor([1.0, 2.0**20, 2.0**-20], dtype=torch.float64)
    factors = scale[:, None] / scale
    found = mlayer.expm((plain * factors)[None], path="matmul")[0] / factors
    agree(found[None], grouped.expm(plain[None]), plain[None])

"""The matmul path in NumPy beside the one in torch, for every dtype, in both arrangements of memory."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

import mlayer
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

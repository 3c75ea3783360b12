"""expm_action, logm and sqrtm of matrices whose entries, or their sums, come near the largest number."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import mlayer

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda a: a,
    "batch": lambda a: a.expand(2, 2, 2),
    "csr": lambda a: a.to_sparse_csr(),
    "coo": lambda a: a.to_sparse(),
}
# The largest power of two of each dtype.
LARGEST = {
    torch.float32: 127,
    torch.float64: 1023,
    torch.complex64: 127,
    torch.complex128: 1023,
}
EPS = 2.0**-52


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", LARGEST, ids=str)
def test_action_of_a_matrix_whose_norm_overflows(kind: str, dtype: torch.dtype) -> None:
    """t A is all ones: exp(t A) is I + (e^2 - 1) / 2 t A. Sums of entries of A are infinite."""
    large = torch.ones(2, 2, dtype=dtype) * 2.0 ** LARGEST[dtype]
    a = KINDS[kind](large)
    v = torch.tensor([1.0, 3.0], dtype=dtype)
    found = mlayer.expm_action(a, v, 2.0 ** -LARGEST[dtype])
    exact = v + (math.e**2 - 1) / 2 * v.sum()
    assert torch.allclose(found, exact.expand(found.shape), rtol=8 * torch.finfo(dtype).eps, atol=0.0)


def test_action_of_such_a_matrix_has_gradients() -> None:
    """The gradient in V is exp(t A)^T 1, that in A is t L(t A, .): here t (e^2 / 2 ...) of all ones."""
    v = torch.tensor([1.0, 1.0], dtype=torch.float64, requires_grad=True)
    a = torch.ones(2, 2, dtype=torch.float64) * 2.0**1000
    a.requires_grad_()
    result = mlayer.expm_action(a, v, 2.0**-1000).sum()
    on_a, on_v = torch.autograd.grad(result, (a, v))
    # v = 1 is an eigenvector of t A with eigenvalue 2, on both sides.
    assert torch.allclose(on_v, torch.full((2,), math.e**2, dtype=torch.float64), rtol=8 * EPS, atol=0.0)
    wanted = torch.full((2, 2), math.e**2 * 2.0**-1000, dtype=torch.float64)
    assert torch.allclose(on_a, wanted, rtol=16 * EPS, atol=0.0)


def test_nothing_is_lost_by_scaling() -> None:
    """[[0, x], [1 / x, 0]] has the exponential cosh(1) I + sinh(1) A; a scaled 1 / x would vanish."""
    x = 2.0**1015
    a = torch.tensor([[0.0, x], [1 / x, 0.0]], dtype=torch.float64)
    found = mlayer.expm_action(a, torch.tensor([1.0, 0.0], dtype=torch.float64))
    exact = torch.tensor([math.cosh(1.0), math.sinh(1.0) / x], dtype=torch.float64)
    assert torch.allclose(found, exact, rtol=64 * EPS, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_root_and_logarithm_near_the_largest_number(dtype: torch.dtype) -> None:
    """2^1023 [[5/4, 3/4], [3/4, 5/4]] has the eigenvalues 2^1024, which is no number, and 2^1022."""
    a = 2.0**1023 * torch.tensor([[1.25, 0.75], [0.75, 1.25]], dtype=dtype)
    root = mlayer.sqrtm(a)
    # Eigenvalues 2^512 and 2^511 of the root.
    exact = 2.0**511 * torch.tensor([[1.5, 0.5], [0.5, 1.5]], dtype=dtype)
    assert torch.allclose(root, exact, rtol=16 * EPS, atol=0.0)
    log = mlayer.logm(a)
    middle, half = 1023 * math.log(2), math.log(2)
    wanted = torch.tensor([[middle, half], [half, middle]], dtype=dtype)
    assert (log - wanted).abs().max() <= 16 * EPS * middle


def test_entries_whose_absolute_value_overflows() -> None:
    """2^1023.9 (1 + i) has no absolute value in double precision; its root is that of a number."""
    part = 1.7e308
    a = torch.diag(torch.tensor([complex(part, part), complex(part, -part)], dtype=torch.complex128))
    a[0, 1] = a[0, 0] / 4
    root = mlayer.sqrtm(a)
    assert torch.allclose((root / 2.0**511) @ (root / 2.0**511), a / 2.0**1022, rtol=16 * EPS, atol=0.0)


def test_negative_eigenvalues_near_the_largest_number_are_refused() -> None:
    a = -(2.0**1023) * torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    with pytest.raises(mlayer.errors.ArgumentError, match="negative"):
        mlayer.sqrtm(a)


@pytest.mark.parametrize("t", [np.float32(0.5), np.float64(0.5), np.int64(2)], ids=lambda t: type(t).__name__)
def test_times_may_be_numbers_of_numpy(t: float) -> None:
    a, v = torch.tensor([[0.5]], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    assert abs(float(mlayer.expm_action(a, v, t)) - math.exp(0.5 * float(t))) <= 4 * EPS * math.e


def test_the_norm_of_a_function_is_estimated_in_inference_mode_too() -> None:
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    a, v = (
        torch.block_diag(*[turn] * 10),
        torch.ones(20, dtype=torch.float64),
    )  # of few rows no estimate is made
    with torch.inference_mode():
        found = mlayer.expm_action(lambda x: a @ x, v)
        inside = a.clone()
        with pytest.raises(mlayer.errors.ArgumentError, match="Give adjoint"):
            mlayer.expm_action(lambda x: inside @ x, v)
    exact = torch.tensor([math.cos(1) + math.sin(1), math.cos(1) - math.sin(1)], dtype=torch.float64)
    assert torch.allclose(found, exact.repeat(10), rtol=0.0, atol=8 * EPS)

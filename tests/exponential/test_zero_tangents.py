"""Zeros without memory, which torch hands over as tangents and cotangents of what does not vary."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import hessian, jacfwd, jacrev

import mlayer
from cases import random_matrix

Function = Callable[[Tensor], Tensor]
ORDERS: dict[str, Callable[[Function], Function]] = {
    "hessian": hessian,
    "forward over forward": lambda f: jacfwd(jacfwd(f)),
    "reverse over forward": lambda f: jacrev(jacfwd(f)),
}
LINEAR_BEFORE: dict[str, Function] = {
    "A": lambda a: a,
    "0.3 A": lambda a: 0.3 * a,
}


@pytest.mark.parametrize("before", LINEAR_BEFORE)
@pytest.mark.parametrize("order", ORDERS)
def test_second_derivatives_of_a_linear_loss(order: str, before: str, path: str) -> None:
    """The cotangent of the loss does not vary, so that its tangent is such a zero.

    The kernel took it for none and returned the exponential in place of 0.
    """
    a, weights = random_matrix(3, 1.5), random_matrix(3, 2.0, seed=1)
    argument = LINEAR_BEFORE[before]
    got = ORDERS[order](lambda x: (mlayer.expm(argument(x)) * weights).sum())(a)
    expected = hessian(lambda x: (torch.linalg.matrix_exp(argument(x)) * weights).sum())(a)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("n", [1, 3, 40])
def test_zeros_without_memory_are_zeros(n: int, dtype: torch.dtype, path: str) -> None:
    """They crashed the process as matrices."""
    zero = torch._efficientzerotensor((2, n, n), dtype=dtype)
    assert torch.equal(mlayer.expm(zero), torch.eye(n, dtype=dtype).expand(2, n, n))
    leaf = torch.eye(n, dtype=dtype).expand(2, n, n).clone().requires_grad_()
    (gradient,) = torch.autograd.grad(mlayer.expm(leaf), leaf, zero)
    assert torch.equal(gradient, torch.zeros(2, n, n, dtype=dtype))

"""Nothing in, nothing out: empty batches, no columns, no times, n = 0, with gradients of 0 of every order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import mlayer

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")

FUNCTIONS = {"expm": mlayer.expm, "logm": mlayer.logm, "sqrtm": mlayer.sqrtm}
SHAPES = [(0, 0), (0, 1, 1), (0, 3, 3), (2, 0, 0), (2, 0, 3, 3)]
# Of A, V and t; each gives an empty result.
ACTIONS = [
    ((3, 3), (3, 2), (0,)),
    ((3, 3), (3,), (0,)),
    ((3, 3), (3, 0), ()),
    ((3, 3), (3, 0), (2,)),
    ((3, 3), (0, 3, 2), (2,)),
    ((0, 0), (0, 2), (2,)),
    ((0, 3, 3), (3, 2), (2,)),
    ((2, 3, 3), (2, 3, 2), (0, 4)),
]


def leaf(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(shape, dtype=dtype, requires_grad=True)


def gradients_are_zero(result: Tensor, *leaves: Tensor) -> None:
    """Check gradients of the first and the second order; none is missing."""
    assert result.numel() == 0
    first = torch.autograd.grad(result.sum().abs(), leaves, create_graph=True)
    second = torch.autograd.grad(torch.stack([x.sum().abs() for x in first]).sum(), leaves, allow_unused=True)
    for one, two, of in zip(first, second, leaves, strict=True):
        assert (one.shape, one.dtype) == (of.shape, of.dtype)
        assert not one.any()
        assert two is None or not two.any()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.float16], ids=str)
def test_matrix_functions(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    a = leaf(shape, dtype)
    result = function(a)
    assert (result.shape, result.dtype) == (a.shape, dtype)
    gradients_are_zero(result, a)


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3, 3), (2, 0, 0)], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_under_transforms(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    a = torch.zeros(shape, dtype=torch.float64)
    assert torch.vmap(function)(a).shape == shape
    slope = torch.func.grad(lambda x: function(x).sum())
    assert torch.vmap(slope)(a).shape == shape
    assert torch.compile(function, backend="aot_eager")(a).shape == shape


@pytest.mark.parametrize("shapes", ACTIONS, ids=str)
def test_action(shapes: tuple[tuple[int, ...], ...]) -> None:
    a, v, t = map(leaf, shapes)
    result = mlayer.expm_action(a, v, t)
    batch = torch.broadcast_shapes(a.shape[:-2], v.shape[:-2])
    assert result.shape == (*batch, *t.shape, *v.shape[-2:])
    gradients_are_zero(result, a, v, t)


@pytest.mark.parametrize("columns", [0, 2])
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo], ids=str)
def test_action_of_a_sparse_matrix(layout: torch.layout, columns: int) -> None:
    a = torch.eye(3, dtype=torch.float64).to_sparse(layout=layout).requires_grad_()
    v, t = leaf((3, columns)), leaf((0,) if columns else (2,))
    mlayer.expm_action(a, v, t).sum().backward()
    assert a.grad is not None
    assert a.grad.layout == layout
    for x in (a, v, t):
        assert x.grad is not None
        assert not x.grad.to_dense().any()


def test_action_of_a_function_with_parameters() -> None:
    scale, v, t = leaf(()), leaf((3, 2)), leaf((0,))
    result = mlayer.expm_action(lambda x: scale * x, v, t, norm=1.0)
    assert result.shape == (0, 3, 2)
    gradients_are_zero(result, scale, v, t)

"""Derivatives of expm_action in A, V and t, for every kind of A; against Arb, gradcheck and gradgradcheck."""

from __future__ import annotations

from collections.abc import Callable

import flint
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import mlayer
import oracle
from cases import GALLERY, Case, random_matrix

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning"),
]

MULTIPLE = 8.0
Times = Tensor
Build = Callable[[Tensor], Tensor | Callable[[Tensor], Tensor]]

ROWS = torch.tensor([0, 0, 1, 2, 3, 3])
COLUMNS = torch.tensor([1, 3, 0, 2, 0, 1])
STARTS = torch.tensor([0, 2, 3, 4, 6])

KINDS: dict[str, tuple[Build, int]] = {
    "dense": (lambda x: x.reshape(4, 4), 16),
    "batch": (lambda x: x.reshape(2, 4, 4), 32),
    "coo": (lambda x: torch.sparse_coo_tensor(torch.stack([ROWS, COLUMNS]), x, (4, 4)), 6),
    "csr": (lambda x: torch.sparse_csr_tensor(STARTS, COLUMNS, x, (4, 4)), 6),
    "function": (lambda x: lambda v: x.reshape(4, 4) @ v, 16),
}


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, dtype=dtype, generator=generator)).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind: str, dtype: torch.dtype) -> None:
    if kind == "csr" and dtype.is_complex:
        pytest.skip("torch does not differentiate its own constructor of complex CSR tensors")
    build, size = KINDS[kind]
    x, v = drawn(size, dtype=dtype), drawn(4, 2, dtype=dtype, seed=1)
    t = torch.tensor([0.0, 0.7, -0.4], dtype=torch.float64, requires_grad=True)
    call = lambda x, v, t: mlayer.expm_action(build(x), v, t)  # noqa: E731
    assert gradcheck(call, (x, v, t), fast_mode=dtype.is_complex)


@pytest.mark.parametrize("kind", KINDS)
def test_gradgradcheck(kind: str) -> None:
    build, size = KINDS[kind]
    x, v = drawn(size), drawn(4, 1, seed=1)
    t = torch.tensor([0.7, -0.4], dtype=torch.float64, requires_grad=True)
    call = lambda x, v, t: mlayer.expm_action(build(x), v, t)  # noqa: E731
    # Torch's fast mode does not work behind its own sparse constructors.
    assert gradgradcheck(call, (x, v, t), fast_mode=kind not in ("coo", "csr"))


def test_gradgradcheck_complex_sparse() -> None:
    build, size = KINDS["coo"]
    x, v = drawn(size, dtype=torch.complex128), drawn(4, 1, dtype=torch.complex128, seed=1)
    call = lambda x, v: mlayer.expm_action(build(x), v, 0.6)  # noqa: E731
    assert gradgradcheck(call, (x, v))


def test_several_steps() -> None:
    """Norm 40: gradients cross from step to step."""
    x, v = drawn(4, 4), drawn(4, 2, seed=1)
    x = (x.detach() - x.detach().mT).mul(10).requires_grad_()
    t = torch.tensor([1.0, 0.3], dtype=torch.float64, requires_grad=True)
    assert gradcheck(mlayer.expm_action, (x, v, t), atol=1e-4, fast_mode=True)
    assert gradgradcheck(mlayer.expm_action, (x, v, t), atol=1e-2, rtol=1e-4, fast_mode=True)


def gradient_is_right(case: Case, dtype: torch.dtype) -> bool:
    """The error of the gradient in A is at most what it may be."""
    a = case.make(dtype)
    n = len(a)
    v, g = drawn(n, 2, seed=2).detach().to(dtype), drawn(n, 2, seed=3).detach().to(dtype)
    leaf = a.clone().requires_grad_()
    (got,) = torch.autograd.grad(mlayer.expm_action(leaf, v), leaf, g)
    # <G, L(A, E) V> = <L(A^T, G V^T), E>
    with flint.ctx.workprec(oracle.PRECISION):
        outer = oracle.to_arb(g) * oracle.to_arb(v.mT)
    exact = oracle.exact_frechet(oracle.to_arb(a.mT), outer)
    norm, unit = max(1.0, float(a.double().abs().sum(0).max())), MULTIPLE * torch.finfo(dtype).eps
    error = oracle.relative_error(got, exact)
    return oracle.acceptable(error, unit, norm, a if case.measure != "norm" else None)


def selected(most: int) -> list[Case]:
    return [c for c in GALLERY if c.make(torch.float64).shape[0] <= most]


@pytest.mark.parametrize("case", selected(6), ids=str)
def test_gradient_against_arb(case: Case, dtype: torch.dtype) -> None:
    assert gradient_is_right(case, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("case", selected(33), ids=str)
def test_gradient_of_the_whole_gallery_against_arb(case: Case, dtype: torch.dtype) -> None:
    assert gradient_is_right(case, dtype)


def test_gradients_where_the_value_needs_one_term() -> None:
    """A V = 0: the series of the value ends at once, those of the derivatives do not."""
    a = torch.tensor([[-3.0, 3.0], [3.0, -3.0]], dtype=torch.float64)
    v = torch.ones(2, 1, dtype=torch.float64)
    g = torch.tensor([[1.0], [-2.0]], dtype=torch.float64)
    leaves = [a.clone().requires_grad_(), v.clone().requires_grad_()]
    on_a, on_v = torch.autograd.grad(mlayer.expm_action(*leaves), leaves, g)
    leaves = [a.clone().requires_grad_(), v.clone().requires_grad_()]
    expected_a, expected_v = torch.autograd.grad(mlayer.expm(leaves[0]) @ leaves[1], leaves, g)
    torch.testing.assert_close(on_a, expected_a, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(on_v, expected_v, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("s", [1.0, 1e6])
def test_gradient_of_a_nilpotent_matrix(s: float) -> None:
    """A^2 = 0 makes the value linear, not the derivative: A E A counts."""
    a = torch.tensor([[0.0, s], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    v, g = (
        torch.tensor([[0.0], [1.0]], dtype=torch.float64),
        torch.tensor([[1.0], [0.5]], dtype=torch.float64),
    )
    (got,) = torch.autograd.grad(mlayer.expm_action(a, v), a, g)
    (expected,) = torch.autograd.grad(mlayer.expm(a) @ v, a, g)
    assert (got - expected).norm() <= 1e-14 * expected.norm()


def test_leaf_that_is_sparse_gets_a_sparse_gradient() -> None:
    dense = random_matrix(4, 2.0).masked_fill(torch.eye(4, dtype=torch.bool), 0.0)
    v = drawn(4, 2)
    leaf = dense.clone().requires_grad_()
    torch.autograd.backward(mlayer.expm_action(leaf, v.detach()).sum())
    assert leaf.grad is not None
    for layout in (torch.sparse_coo, torch.sparse_csr):
        sparse = dense.to_sparse(layout=layout).requires_grad_()
        torch.autograd.backward(mlayer.expm_action(sparse, v.detach()).sum())
        assert sparse.grad is not None
        assert sparse.grad.layout == layout
        torch.testing.assert_close(sparse.grad.to_dense(), torch.where(dense == 0, 0.0, leaf.grad))


def test_gradient_through_a_function_that_autograd_does_not_see() -> None:
    a = random_matrix(5, 3.0)

    def outside(matrix: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: torch.from_numpy(matrix.numpy() @ x.detach().numpy())

    v = drawn(5, 2)
    call = lambda v: mlayer.expm_action(outside(a), v, 1.3, adjoint=outside(a.mT))  # noqa: E731
    assert gradcheck(call, v)
    assert gradgradcheck(call, v)


def test_parameters_of_a_function_learn_even_if_its_adjoint_is_given() -> None:
    a = random_matrix(5, 3.0).requires_grad_()
    v = drawn(5, 2).detach()
    (plain,) = torch.autograd.grad(mlayer.expm_action(a, v).sum(), a)
    moved = mlayer.expm_action(lambda x: a @ x, v, adjoint=lambda x: a.mT @ x)
    (got,) = torch.autograd.grad(moved.sum(), a)
    torch.testing.assert_close(got, plain)


def test_not_finite_gives_no_finite_gradient() -> None:
    a = torch.stack([random_matrix(3, 1.0), torch.full((3, 3), torch.nan, dtype=torch.float64)])
    a.requires_grad_()
    (got,) = torch.autograd.grad(mlayer.expm_action(a, torch.ones(3, dtype=torch.float64)).sum(), a)
    assert got[0].isfinite().all()
    assert got[1].isnan().all()


def test_memory_kept_for_the_backward_pass() -> None:
    """A and V at every step, none of the terms."""
    a = (random_matrix(30, 60.0)).requires_grad_()
    v = drawn(30, 2)
    kept: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        kept[x.data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        mlayer.expm_action(a, v)
    assert sum(kept.values()) < 2 * a.numel() + 60 * v.numel()

"""Derivatives of every order and in every mode; exactly linear in the incoming gradient; only A is kept."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, jvp, vjp, vmap

import mlayer
from cases import random_matrix
from mlayer.exponential.arguments import HALVES
from rounding import agree

# Forward mode makes torch load its own decompositions, which it still compiles with torch.jit.script.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

CHECKED = {
    "zero": torch.zeros(3, 3, dtype=torch.float64),
    "identity": torch.eye(3, dtype=torch.float64),
    "diagonal": torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64).diag(),
    "nilpotent 2": torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=torch.float64),
    "nilpotent 4": 2 * torch.ones(4, 4, dtype=torch.float64).triu(1),
    "nilpotent lower": torch.ones(3, 3, dtype=torch.float64).tril(-1),
    "nilpotent full": torch.tensor([[1.0, -1.0], [1.0, -1.0]], dtype=torch.float64),
    "nearly nilpotent": torch.tensor([[1e-9, 3.0], [0.0, -1e-9]], dtype=torch.float64),
    "tiny": random_matrix(3, 1e-9),
    "degree 4": random_matrix(3, 1e-4),
    "degree 8": random_matrix(3, 0.03),
    "degree 16": random_matrix(3, 0.4),
    "squarings": random_matrix(4, 5.0),
    "nearly equal eigenvalues": torch.tensor([[1.0, 1.0], [1e-10, 1.0]], dtype=torch.float64),
    "one by one": torch.tensor([[0.7]], dtype=torch.float64),
    "rows of the kernel": random_matrix(9, 2.0),
    "batch": torch.stack([random_matrix(3, x) for x in (1e-9, 1e-3, 0.1, 6.0)]),
}


@pytest.mark.parametrize("name", CHECKED)
def test_gradcheck(name: str, path: str) -> None:
    a = CHECKED[name].clone().requires_grad_()
    assert gradcheck(
        mlayer.expm, a, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )


@pytest.mark.parametrize("name", [k for k in CHECKED if len(CHECKED[k]) < 4])
def test_gradgradcheck(name: str, path: str) -> None:
    a = CHECKED[name].clone().requires_grad_()
    assert gradgradcheck(mlayer.expm, a, check_fwd_over_rev=True, check_rev_over_rev=True)


@pytest.mark.parametrize("norm", [0.01, 3.0])
def test_gradcheck_complex(norm: float) -> None:
    a = torch.complex(random_matrix(3, norm), random_matrix(3, norm, seed=1)).requires_grad_()
    assert gradcheck(mlayer.expm, a, check_forward_ad=True)
    assert gradgradcheck(mlayer.expm, a)


def test_complex_value() -> None:
    z = torch.complex(random_matrix(4, 5.0), random_matrix(4, 5.0, seed=1))
    torch.testing.assert_close(mlayer.expm(z), torch.linalg.matrix_exp(z), rtol=1e-13, atol=1e-13)
    embedded = torch.cat([torch.cat([z.real, -z.imag], 1), torch.cat([z.imag, z.real], 1)])
    x = mlayer.expm(embedded)
    torch.testing.assert_close(mlayer.expm(z), torch.complex(x[:4, :4], x[4:, :4]), rtol=1e-13, atol=1e-13)
    assert mlayer.expm(z.to(torch.complex64)).dtype == torch.complex64


def _series_derivative(a: Tensor, *directions: Tensor) -> Tensor:
    """Derivatives of any order by the definition: nested dual numbers as block matrices, plain Taylor sum."""
    if not directions:
        result = term = torch.eye(a.shape[-1], dtype=a.dtype)
        for k in range(1, 60):
            term = term @ a / k
            result = result + term
        return result
    n = a.shape[-1]
    zero = torch.zeros_like(a)

    def double(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([torch.cat([x, y], 1), torch.cat([torch.zeros_like(x), x], 1)])

    rest = [double(d, zero) for d in directions[1:]]
    return _series_derivative(double(a, directions[0]), *rest)[:n, n:]


@pytest.mark.parametrize("name", ["zero", "identity", "nilpotent 2", "nilpotent 4", "degree 8", "squarings"])
def test_forward_mode_to_the_second_order(name: str, path: str) -> None:
    a = CHECKED[name]
    directions = [random_matrix(len(a), 1.0, seed=k) for k in (11, 12)]

    def along(f: Callable[[Tensor], Tensor], direction: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: jvp(f, (x,), (direction,))[1]

    f: Callable[[Tensor], Tensor] = mlayer.expm
    for order, direction in enumerate(directions, 1):
        f = along(f, direction)
        expected = _series_derivative(a, *directions[:order])
        torch.testing.assert_close(f(a), expected, rtol=1e-12, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["zero", "nilpotent 2", "nilpotent 4", "degree 16"])
def test_reverse_mode_to_the_third_order(name: str, path: str) -> None:
    a = CHECKED[name].clone().requires_grad_()
    g, e, f = (random_matrix(len(a), 1.0, seed=k) for k in (14, 15, 16))
    (first,) = torch.autograd.grad(mlayer.expm(a), a, g, create_graph=True)
    (second,) = torch.autograd.grad(first, a, e, create_graph=True)
    (third,) = torch.autograd.grad(second, a, f)
    # <third, h> = <g, D^3 exp(A)[e, f, h]>
    for seed in range(17, 20):
        h = random_matrix(len(a), 1.0, seed=seed)
        expected = (g * _series_derivative(a.detach(), e, f, h)).sum()
        torch.testing.assert_close((third * h).sum(), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["zero", "nilpotent 2", "degree 16", "squarings"])
def test_jacobians_and_hessian(name: str, path: str) -> None:
    a = CHECKED[name]
    n = len(a)
    basis = torch.eye(n * n, dtype=a.dtype).reshape(n, n, n, n)
    expected = torch.stack([torch.stack([_series_derivative(a, e) for e in row]) for row in basis])
    expected = expected.permute(2, 3, 0, 1)
    for jacobian in (jacrev(mlayer.expm)(a), jacfwd(mlayer.expm)(a)):
        torch.testing.assert_close(jacobian, expected, rtol=1e-12, atol=1e-12)
    if n == 2:
        second = hessian(mlayer.expm)(a)
        for i in range(4):
            for j in range(4):
                e, f = basis.reshape(4, 2, 2)[i], basis.reshape(4, 2, 2)[j]
                got = second.reshape(2, 2, 4, 4)[..., i, j]
                torch.testing.assert_close(got, _series_derivative(a, e, f), rtol=1e-12, atol=1e-12)


Mode = Callable[..., Callable[[Tensor], Tensor]]


def _names(modes: tuple[Mode, ...]) -> str:
    return "-".join(mode.__name__ for mode in modes)


@pytest.mark.parametrize("modes", list(product((jacfwd, jacrev), repeat=3)), ids=_names)
def test_modes_mix_to_the_third_order(modes: tuple[Mode, ...], path: str) -> None:
    """Torch switches the outer of two nested forward modes off in the derivative of a user's function."""
    a = random_matrix(2, 2.0)
    f: Callable[[Tensor], Tensor] = mlayer.expm
    for mode in modes:
        f = mode(f)
    got = f(a).reshape(2, 2, 4, 4, 4)
    basis = torch.eye(4, dtype=a.dtype).reshape(4, 2, 2)
    for i, j, k in ((0, 1, 2), (3, 1, 1), (2, 2, 0), (3, 3, 3)):
        expected = _series_derivative(a, basis[i], basis[j], basis[k])
        torch.testing.assert_close(got[..., i, j, k], expected, rtol=1e-12, atol=1e-13)


def test_is_grads_batched(dtype: torch.dtype, path: str) -> None:
    a = torch.stack([random_matrix(5, x, dtype=dtype) for x in (0.1, 3.0)]).requires_grad_()
    value = mlayer.expm(a)
    g = torch.randn(7, 2, 5, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))
    (batched,) = torch.autograd.grad(value, a, g, is_grads_batched=True, retain_graph=True)
    for k in range(7):
        (single,) = torch.autograd.grad(value, a, g[k], retain_graph=True)
        agree(batched[k], single, a)


@pytest.mark.parametrize("in_dim", [0, 1, 2, -1])
def test_vmap(in_dim: int, path: str) -> None:
    a = torch.randn(4, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    moved = a.movedim(0, in_dim)
    agree(vmap(mlayer.expm, in_dims=in_dim)(moved), mlayer.expm(a), a)
    agree(vmap(vmap(mlayer.expm))(a.expand(3, 4, 5, 5)), mlayer.expm(a).expand(3, 4, 5, 5), a)

    def gradient(x: Tensor, g: Tensor) -> Tensor:
        return torch.as_tensor(vjp(mlayer.expm, x)[1](g)[0])

    g = random_matrix(5, 1.0)
    got = vmap(gradient, in_dims=(in_dim, None))(moved, g)
    expected = torch.stack([gradient(x, g) for x in a])
    agree(got, expected, a)
    got = vmap(gradient, in_dims=(None, 0))(a[0], a)
    agree(got, torch.stack([gradient(a[0], x) for x in a]), a[0])


def test_forward_ad_levels(path: str) -> None:
    a, e = random_matrix(4, 2.0), random_matrix(4, 1.0, seed=1)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(a, e)
        tangent = forward_ad.unpack_dual(mlayer.expm(dual)).tangent
    assert tangent is not None
    torch.testing.assert_close(tangent, _series_derivative(a, e), rtol=1e-12, atol=1e-12)


GRADIENT_SIZES = [-100, -40, -10, -1, 1, 16, 20, 40, 100]


@pytest.mark.parametrize("n", [2, 6, 12, 20])
def test_exactly_linear_in_the_incoming_gradient(n: int, dtype: torch.dtype, implementation: str) -> None:
    """Powers of two go through to the last bit: the schedule must not look at G."""
    norms = (1e-4, 0.1, 1.0, 20.0)
    a = torch.stack([random_matrix(n, norm, dtype=dtype) for norm in norms]).requires_grad_()
    value = mlayer.expm(a)
    g = torch.randn(len(a), n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(dtype)
    (once,) = torch.autograd.grad(value, a, g, retain_graph=True)
    for k in GRADIENT_SIZES:
        (scaled,) = torch.autograd.grad(value, a, g * 2.0**k, retain_graph=True)
        # Where 2^k brings an entry out of the normal range its last bits cannot all be there.
        exact = (once * 2.0**k).abs() > 1e6 * torch.finfo(dtype).tiny
        assert torch.equal(scaled[exact], (once * 2.0**k)[exact])
        assert exact.float().mean() > 0.9
    (negative,) = torch.autograd.grad(value, a, -g, retain_graph=True)
    assert torch.equal(negative, -once)
    (nothing,) = torch.autograd.grad(value, a, torch.zeros_like(g), retain_graph=True)
    assert torch.equal(nothing, torch.zeros_like(g))
    other = g.flip(0)
    (second,) = torch.autograd.grad(value, a, other, retain_graph=True)
    (together,) = torch.autograd.grad(value, a, g + other)
    size = torch.linalg.matrix_norm(once).maximum(torch.linalg.matrix_norm(second))
    difference = torch.linalg.matrix_norm(together - once - second)
    assert (difference <= 8 * torch.finfo(dtype).eps * torch.tensor(norms).clamp(min=1) * size).all()


@pytest.mark.parametrize("scale", [1.0, 65536.0, 1e6, 1e20, 1e36, 3e38])
def test_double_backward_at_large_gradients(scale: float, path: str) -> None:
    """The precision is single; the last scale is above the largest power of two that has a successor."""
    a = random_matrix(3, 2.0, dtype=torch.float32)
    g = torch.eye(3) * scale
    e = random_matrix(3, 1.0, seed=1, dtype=torch.float32) * 1e-30

    def second(a: Tensor, g: Tensor, e: Tensor) -> Tensor:
        a = a.clone().requires_grad_()
        (first,) = torch.autograd.grad(mlayer.expm(a), a, g, create_graph=True)
        return torch.autograd.grad(first, a, e)[0]

    got = second(a, g, e).double()
    expected = second(a.double(), g.double(), e.double())
    assert (got - expected).norm() <= 32 * 2.0**-24 * expected.norm()


@pytest.mark.parametrize("scale", [1e-30, 1e-40, 1e-44])
def test_double_backward_at_small_gradients(scale: float, path: str) -> None:
    a = random_matrix(3, 2.0, dtype=torch.float32).requires_grad_()
    (first,) = torch.autograd.grad(mlayer.expm(a), a, torch.eye(3) * scale, create_graph=True)
    (second,) = torch.autograd.grad(first, a, torch.ones(3, 3))
    assert second.isfinite().all()
    assert second.abs().max() <= 100 * scale


@pytest.mark.parametrize("n", [2, 7, 32])
def test_only_the_argument_is_kept(n: int, path: str) -> None:
    a = random_matrix(n, 2.0, dtype=torch.float32).requires_grad_()
    kept: list[Tensor] = []

    def pack(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        value = mlayer.expm(a)
    assert [x.data_ptr() for x in kept] == [a.data_ptr()]
    torch.autograd.backward(value.sum())


def test_argument_changed_in_place_before_backward_is_noticed(path: str) -> None:
    a = torch.eye(3, requires_grad=True)
    b = a * 1
    value = mlayer.expm(b)
    b += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(value.sum())


def test_half_gradients(path: str) -> None:
    for dtype in HALVES:
        a = random_matrix(6, 3.0).to(dtype).requires_grad_()
        g = random_matrix(6, 1.0, seed=1).to(dtype)
        (gradient,) = torch.autograd.grad(mlayer.expm(a), a, g)
        assert gradient.dtype == dtype
        exact = a.detach().double().requires_grad_()
        (expected,) = torch.autograd.grad(mlayer.expm(exact), exact, g.double())
        assert (gradient.double() - expected).norm() <= torch.finfo(dtype).eps * expected.norm()


def test_gradient_of_a_result_that_overflows_in_part(path: str) -> None:
    """Single precision: exp(100) is infinite, exp(1) is not, and neither is its derivative."""
    a = torch.tensor([[100.0, 0.0], [0.0, 1.0]], requires_grad=True)
    value = mlayer.expm(a)
    g = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    (gradient,) = torch.autograd.grad(value, a, g)
    torch.testing.assert_close(gradient, torch.tensor([[0.0, 0.0], [0.0, 1.0]]).exp() * g)
    (gradient,) = torch.autograd.grad(mlayer.expm(a), a, torch.eye(2))
    assert gradient[0, 0] == torch.inf
    torch.testing.assert_close(gradient[1, 1], torch.tensor(1.0).exp())


def test_gradient_is_right_where_its_value_overflows_only_before_scaling(path: str) -> None:
    """L(A, G) with exp(A) near the end of the range and G tiny."""
    a = torch.full((2, 2), 0.0) + torch.tensor([88.0, 87.0]).diag()
    a.requires_grad_()
    g = torch.tensor([[1.0, 2.0], [3.0, 4.0]]) * 1e-20
    (got,) = torch.autograd.grad(mlayer.expm(a), a, g)
    exact = a.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(mlayer.expm(exact), exact, g.double())
    assert (got.double() - expected).norm() <= 4 * 88 * 2.0**-23 * expected.norm()

"""logm and sqrtm in second order, forward over reverse and twice forward; without values; odd dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import hessian, jacfwd, jacrev, jvp

import mlayer
from cases import random_matrix
from mlayer.errors import ArgumentTypeError

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
Function = Callable[[Tensor], Tensor]
# f, and its divided differences f[x, y] and f[x, y, z], in closed form for three different numbers.
SCALARS: dict[str, tuple[Function, Callable[[float], float]]] = {
    "logm": (mlayer.logm, math.log),
    "sqrtm": (mlayer.sqrtm, math.sqrt),
}


def _divided(f: Callable[[float], float], *points: float) -> float:
    if len(points) == 1:
        return f(points[0])
    return (_divided(f, *points[1:]) - _divided(f, *points[:-1])) / (points[-1] - points[0])


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize(
    "order", ["hessian", "twice forward", "forward over reverse", "reverse over forward"]
)
def test_second_derivatives_at_a_diagonal_matrix(name: str, order: str) -> None:
    """There D2f(E, F)_ij is the sum over k of f[a_i, a_k, a_j] (E_ik F_kj + F_ik E_kj)."""
    f, scalar = SCALARS[name]
    points = [1.0, 2.5, 4.0]
    a = torch.diag(torch.tensor(points, dtype=torch.float64))
    e = torch.zeros_like(a)
    e[0, 1], e[2, 0] = 1.0, 0.5
    h = torch.zeros_like(a)
    h[1, 2], h[0, 2] = 2.0, 1.0
    expected = torch.zeros_like(a)
    for i in range(3):
        for j in range(3):
            for k in range(3):
                if len({i, j, k}) == 3:
                    both = e[i, k] * h[k, j] + h[i, k] * e[k, j]
                    expected[i, j] += _divided(scalar, points[i], points[k], points[j]) * both
    outer = {
        "hessian": hessian,
        "twice forward": lambda g: jacfwd(jacfwd(g)),
        "forward over reverse": lambda g: jacfwd(jacrev(g)),
        "reverse over forward": lambda g: jacrev(jacfwd(g)),
    }[order]
    # Entries that meet only different indices, so that no repeated divided difference is needed.
    for i, j in ((0, 2), (2, 1)):
        second = torch.einsum("abcd,ab,cd->", outer(lambda x, i=i, j=j: f(x)[i, j])(a), e, h)
        torch.testing.assert_close(second, expected[i, j], rtol=1e-12, atol=1e-13)


def test_a_third_order_in_nested_forward_modes() -> None:
    """The root of P(t)^2, P(t) = I + B + t E + t^3 F, has the third derivative 6 F."""
    b, e, f = (random_matrix(2, 0.3, seed=k) for k in range(3))

    def root(t: Tensor) -> Tensor:
        path = torch.eye(2, dtype=b.dtype) + b + t * e + t**3 * f
        return mlayer.sqrtm(path @ path)

    def slope(g: Function) -> Function:
        return lambda t: jvp(g, (t,), (torch.ones_like(t),))[1]

    at = torch.tensor(0.1, dtype=b.dtype)
    torch.testing.assert_close(slope(slope(slope(root)))(at), 6 * f, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", SCALARS)
def test_tensors_without_values_have_results_without_values(name: str) -> None:
    f = SCALARS[name][0]
    a = torch.empty(3, 4, 4, device="meta", requires_grad=True)
    x = f(a)
    assert (x.device.type, x.shape, x.dtype) == ("meta", a.shape, a.dtype)
    (gradient,) = torch.autograd.grad(x.sum(), a)
    assert (gradient.device.type, gradient.shape) == ("meta", a.shape)


@pytest.mark.parametrize("f", [mlayer.expm, mlayer.logm, mlayer.sqrtm])
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
def test_complex_halves_are_not_told_to_drop_their_imaginary_part(f: Function) -> None:
    with pytest.raises(ArgumentTypeError, match=r"complex32.*A\.to\(torch\.complex64\)"):
        f(torch.eye(2).to(torch.complex32))


@pytest.mark.parametrize("name", SCALARS)
def test_many_gradients_at_once(name: str) -> None:
    """torch.autograd.grad(is_grads_batched=True), which functional.jacobian(vectorize=True) uses."""
    f, _ = SCALARS[name]
    a = torch.tensor([[2.0, 1.0], [0.5, 3.0]], dtype=torch.float64)
    leaf = a.clone().requires_grad_()
    units = torch.eye(4, dtype=torch.float64).reshape(4, 2, 2)
    (found,) = torch.autograd.grad(f(leaf), leaf, units, is_grads_batched=True)
    assert torch.allclose(found.reshape(2, 2, 2, 2), jacrev(f)(a), rtol=1e-13)


@pytest.mark.parametrize("name", SCALARS)
def test_compiled_without_a_break_in_the_graph(name: str) -> None:
    f, scalar = SCALARS[name]
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
    for points in ([1.5, 2.0], [3.0]):
        a = torch.diag(torch.tensor(points, dtype=torch.float64)).requires_grad_()
        value = compiled(a)
        exact = torch.tensor([scalar(x) for x in points], dtype=torch.float64)
        assert torch.allclose(value.diagonal(), exact, rtol=1e-15)
        (gradient,) = torch.autograd.grad(value.diagonal().sum(), a)
        slope = [1 / x if name == "logm" else 0.5 / math.sqrt(x) for x in points]
        assert torch.allclose(gradient.diagonal(), torch.tensor(slope, dtype=torch.float64), rtol=1e-14)


@pytest.mark.parametrize("name", SCALARS)
def test_operators_obey_the_rules_of_torch(name: str) -> None:
    a = torch.tensor([[2.0, 1.0], [0.5, 3.0]], dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(getattr(torch.ops.mlayer, name).default, (a,))
    torch.library.opcheck(getattr(torch.ops.mlayer, f"{name}_frechet").default, (a, a.detach().clone()))

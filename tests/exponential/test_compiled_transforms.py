"""torch.func and forward mode inside torch.compile; the action in compiled and exported programs."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jvp, vmap

import mlayer
from cases import random_matrix

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
Function = Callable[[Tensor], Tensor]
N = 3
VECTORS = random_matrix(N, 1.0, seed=5)[:, :2].contiguous()
TIMES = torch.tensor([0.4, -0.6], dtype=torch.float64)


def _root(a: Tensor) -> Tensor:
    """The square root by eigenvalues, which differ."""
    values, vectors = torch.linalg.eigh(a)
    return vectors * values.sqrt() @ vectors.mT


# Functions of a positive definite matrix, each with the same from torch's own operators.
FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "expm": (mlayer.expm, torch.linalg.matrix_exp),
    "sqrtm": (lambda a: mlayer.sqrtm(a + a.mT), lambda a: _root(a + a.mT)),
    "expm_action": (
        lambda a: mlayer.expm_action(a, VECTORS, TIMES),
        lambda a: torch.linalg.matrix_exp(TIMES[:, None, None] * a) @ VECTORS,
    ),
}


def matrix(seed: int) -> Tensor:
    a = random_matrix(N, 1.0, seed=seed)
    return a @ a.mT + torch.eye(N, dtype=torch.float64)


def transformed(f: Function, second_order: bool) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    def loss(x: Tensor) -> Tensor:
        return f(x).square().sum()

    def all_of_it(a: Tensor, e: Tensor) -> tuple[Tensor, ...]:
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(a, e))).tangent
        found = tangent, jvp(f, (a,), (e,))[1], vmap(grad(loss))(torch.stack([a, 2 * a]))
        return (*found, jacfwd(f)(a), hessian(loss)(a)) if second_order else found

    return all_of_it


@pytest.mark.parametrize("second_order", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms_inside_a_graph(name: str, second_order: bool) -> None:
    """Forward mode gave zeros without an error; grad did not compile."""
    torch.compiler.reset()
    ours, torchs = FUNCTIONS[name]
    compiled = torch.compile(transformed(ours, second_order), backend="aot_eager", fullgraph=True)
    for seed in (1, 2):
        a, e = matrix(seed), matrix(seed + 2)
        expected = transformed(torchs, second_order)(a, e)
        torch.testing.assert_close(compiled(a, e), expected, rtol=1e-9, atol=1e-9)


def test_a_third_order_in_nested_forward_modes_in_a_graph() -> None:
    torch.compiler.reset()

    def along(f: Function) -> Function:
        return lambda x: jvp(f, (x,), (torch.ones_like(x),))[1]

    compiled = torch.compile(along(along(along(mlayer.expm))), backend="aot_eager", fullgraph=True)
    expected = along(along(along(torch.linalg.matrix_exp)))(matrix(1))
    torch.testing.assert_close(compiled(matrix(1)), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_action_in_one_graph_with_dynamic_shapes() -> None:
    """Values and gradients in A, V and t, for other batches, sizes, columns and norms than the first."""
    torch.compiler.reset()

    def call(a: Tensor, v: Tensor, t: Tensor) -> Tensor:
        return mlayer.expm_action(a * 2, v, t).sin()

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=True)
    for n, batch, columns, norm in ((3, (2,), 2, 0.5), (4, (3,), 5, 4.0), (6, (2,), 3, 1.0)):
        a = random_matrix(n, norm, seed=n).expand(*batch, n, n).clone().requires_grad_()
        v = random_matrix(max(n, columns), 1.0, seed=1)[:n, :columns].clone().requires_grad_()
        t = torch.linspace(-0.3, 0.5, columns, dtype=torch.float64).requires_grad_()
        formed = (mlayer.expm(t[:, None, None] * 2 * a[:, None]) @ v).sin()
        torch.testing.assert_close(compiled(a, v, t), formed, rtol=1e-11, atol=1e-11)
        got, expected = (torch.autograd.grad(x.sum(), (a, v, t)) for x in (compiled(a, v, t), formed))
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


class Evolution(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.A = torch.nn.Parameter(random_matrix(N, 2.0, seed=7))

    def forward(self, v: Tensor, t: Tensor) -> Tensor:
        return mlayer.expm_action(self.A, v, t)


def test_action_exported_with_a_dynamic_batch_of_matrices() -> None:
    torch.compiler.reset()

    class OfMatrices(torch.nn.Module):
        def forward(self, a: Tensor) -> Tensor:
            return mlayer.expm_action(a, VECTORS, TIMES)

    example, other = (torch.stack([matrix(k) for k in range(count)]) for count in (2, 5))
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(OfMatrices(), (example,), dynamic_shapes=({0: batch},))
    expected = mlayer.expm(TIMES[:, None, None] * other[:, None]) @ VECTORS
    torch.testing.assert_close(program.module()(other), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("strict", [False, True])
def test_action_exported(strict: bool) -> None:
    """Saved and loaded, run on more columns and longer times than the example had."""
    torch.compiler.reset()
    module, columns = Evolution(), torch.export.Dim("columns", min=2)
    program: Any = torch.export.export(
        module, (VECTORS, TIMES), dynamic_shapes=({1: columns}, None), strict=strict
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    v = random_matrix(5, 1.0, seed=8)[:N]  # 5 columns
    got = torch.export.load(file).module()(v, 4 * TIMES)
    expected = mlayer.expm(4 * TIMES[:, None, None] * module.A) @ v
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_action_is_an_operator_that_obeys_the_rules_of_torch() -> None:
    a, v, t = matrix(1)[None].requires_grad_(), VECTORS[None].clone().requires_grad_(), TIMES[:, None].clone()
    operator = torch.ops.mlayer.expm_action.default
    g = random_matrix(N, 1.0, seed=9)[:, :2].expand(2, 1, N, 2).clone()
    torch.library.opcheck(operator, ([a, v, t.requires_grad_(), g], [7], 1000, None, None))

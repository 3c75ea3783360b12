"""torch.compile, torch.export, ONNX, the operators' contracts, autocast, tensors without memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import mlayer
from cases import random_matrix
from mlayer.errors import ArgumentError
from mlayer.exponential import operator
from mlayer.exponential.arguments import HALVES
from rounding import agree

NORMS = (1e-6, 0.01, 0.3, 1.0, 4.0, 30.0)


def _batch(n: int, dtype: torch.dtype, count: int = len(NORMS)) -> Tensor:
    return torch.stack([random_matrix(n, NORMS[k % len(NORMS)], seed=k, dtype=dtype) for k in range(count)])


class Exponential(torch.nn.Module):
    def forward(self, a: Tensor) -> Tensor:
        return mlayer.expm(a)


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch.compiler.reset()


# aot_eager runs everything of torch.compile but the code generator: graph capture, fake tensors,
# functionalization and the joint graph of the gradient, which is where an operator can fail.


@pytest.mark.parametrize("n", [1, 5, 20])
def test_compile(n: int, dtype: torch.dtype, path: str) -> None:
    def product(a: Tensor) -> Tensor:
        return mlayer.expm(a.mT * 2.0) * (1.5 + a.sin())

    compiled = torch.compile(product, backend="aot_eager", fullgraph=True)
    a = _batch(n, dtype).requires_grad_()
    got, expected = compiled(a), product(a)
    agree(got, expected, 2 * a.mT)
    (got_gradient,) = torch.autograd.grad(got.sum(), a)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), a)
    agree(got_gradient, expected_gradient, 2 * a)


def test_compile_with_a_dynamic_batch() -> None:
    compiled = torch.compile(mlayer.expm, backend="aot_eager", fullgraph=True, dynamic=True)
    for count in (2, 3, 7, 12):
        a = _batch(4, torch.float64, count)
        agree(compiled(a), mlayer.expm(a), a)


@pytest.mark.parametrize("dtype", [*HALVES, torch.complex64], ids=str)
def test_compile_other_dtypes(dtype: torch.dtype) -> None:
    compiled = torch.compile(mlayer.expm, backend="aot_eager", fullgraph=True)
    a = random_matrix(4, 2.0).to(dtype)
    torch.testing.assert_close(compiled(a), mlayer.expm(a))


# The code generator imports modules of torch that warn about their own deprecations.
@pytest.mark.skipif(
    "ATEN_CPU_CAPABILITY" in os.environ,
    reason="torch's code generator writes vector code all the same, which then does not compile",
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_inductor() -> None:
    """Once through the default back end, forward and backward; some ten seconds of C++ compilation."""
    compiled = torch.compile(lambda a: mlayer.expm(a * 0.5) * 2, fullgraph=True)
    a = _batch(5, torch.float32).requires_grad_()
    try:
        got = compiled(a)
    except RuntimeError as error:  # pragma: no cover
        if "compiler" in str(error).lower():
            pytest.skip("inductor needs a C++ compiler")
        raise
    expected = mlayer.expm(a * 0.5) * 2
    agree(got, expected, a)
    (got_gradient,) = torch.autograd.grad(got.sum(), a)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), a)
    agree(got_gradient, expected_gradient, a)


def _exported(n: int, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    example = _batch(n, dtype, 2)
    program = torch.export.export(
        Exponential(), (example,), dynamic_shapes=({0: torch.export.Dim("batch", min=0)},), strict=False
    )
    module: Callable[[Tensor], Tensor] = program.module()
    return module


@pytest.fixture(scope="module")
def exported() -> Callable[[Tensor], Tensor]:
    """A float32 program for (batch, 4, 4), exported from two matrices."""
    return _exported(4, torch.float32)


def test_export_with_a_dynamic_batch(exported: Callable[[Tensor], Tensor]) -> None:
    for count in (1, 2, 5, 11):
        a = _batch(4, torch.float32, count)
        agree(exported(a), mlayer.expm(a), a)


def test_export_of_an_empty_batch(exported: Callable[[Tensor], Tensor]) -> None:
    assert exported(torch.zeros(0, 4, 4)).shape == (0, 4, 4)


def test_export_in_double_precision() -> None:
    a = _batch(6, torch.float64)
    agree(_exported(6, torch.float64)(a), mlayer.expm(a), a)


@pytest.mark.parametrize("norm", [100.0, 1e3, 1e5])
def test_export_large_norms(norm: float, exported: Callable[[Tensor], Tensor]) -> None:
    """More squarings than the example had; a stable matrix, so that nothing overflows."""
    a = torch.stack([-norm * torch.eye(4), random_matrix(4, 1.0, dtype=torch.float32)])
    a[0, 0, 1] = norm / 2
    agree(exported(a)[1:], mlayer.expm(a)[1:], a[1:])
    assert (exported(a)[0].abs() <= 1e-30).all()


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf, 3e38], ids=str)
def test_export_keeps_poison_in_its_own_item(poison: float, exported: Callable[[Tensor], Tensor]) -> None:
    a = _batch(4, torch.float32)
    expected = mlayer.expm(a)
    a[1, 0, 0] = poison
    value = exported(a)
    others = [0, 2, 3, 4, 5]
    agree(value[others], expected[others], a[others])
    assert not value[1].isfinite().all()


def test_exported_graph_holds_no_operator_of_ours() -> None:
    """So that a program runs where mlayer is not installed."""
    program = torch.export.export(Exponential(), (_batch(3, torch.float32, 2),))
    assert "mlayer" not in str(program.graph)


# The exporter and its libraries warn about their own deprecations while they are imported and run.
ONNX_WARNINGS = ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.mark.filterwarnings(*ONNX_WARNINGS)
def test_onnx_with_a_dynamic_batch(tmp_path: Path) -> None:
    """Exported once, run by onnxruntime on other batch sizes, large norms and a poisoned item."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    file = tmp_path / "expm.onnx"
    torch.onnx.export(
        Exponential(),
        (_batch(4, torch.float32, 2),),
        file,
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        verbose=False,
    )
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

    def run(a: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: a.numpy()})[0])

    for count in (1, 2, 6, 13):
        a = _batch(4, torch.float32, count)
        agree(run(a), mlayer.expm(a), a)
    stable = torch.stack([-1e4 * torch.eye(4), random_matrix(4, 1.0, dtype=torch.float32)])
    agree(run(stable)[1:], mlayer.expm(stable)[1:], stable[1:])
    zero = torch.zeros(3, 4, 4)
    assert torch.equal(run(zero), torch.eye(4).expand(3, 4, 4))
    a = _batch(4, torch.float32)
    expected = mlayer.expm(a)
    a[1, 2, 3] = torch.nan
    value = run(a)
    assert value[1].isnan().any()
    others = [0, 2, 3, 4, 5]
    agree(value[others], expected[others], a[others])


# opcheck traces through torch.fx, which warns about its own use of deprecated names.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("n", [pytest.param(2, marks=pytest.mark.slow), 9])
def test_operators_keep_their_contracts(n: int, dtype: torch.dtype, path: str) -> None:
    # opcheck compares entry by entry: matrices of moderate norm, whose every entry is right to a few eps.
    a = _batch(n, dtype)[:4]
    e = _batch(n, dtype)[:4].flip(0)
    for tensor in (a, a.mT, a[:0], a[0], a[:1].expand(3, n, n), a.clone().requires_grad_()):
        torch.library.opcheck(torch.ops.mlayer.expm.default, (tensor,))
    for pair in (
        (a, e),
        (a.mT, e),
        (a, e.mT),
        (a.clone().requires_grad_(), e),
        (a, e.clone().requires_grad_()),
    ):
        torch.library.opcheck(torch.ops.mlayer.frechet.default, pair)


def test_operators_are_ours(path: str) -> None:
    a = _batch(3, torch.float64)
    agree(torch.ops.mlayer.expm(a), mlayer.expm(a), a)
    agree(torch.ops.mlayer.frechet(a, a), operator.frechet(a, a), a)


def test_operators_differentiate(path: str) -> None:
    a = random_matrix(3, 1.0).requires_grad_()
    e = random_matrix(3, 1.0, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(torch.ops.mlayer.expm, a)
    assert torch.autograd.gradgradcheck(torch.ops.mlayer.expm, a)
    assert torch.autograd.gradcheck(torch.ops.mlayer.frechet, (a, e))


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_autocast_leaves_the_inside_alone(half: torch.dtype, path: str) -> None:
    a = _batch(6, torch.float32).requires_grad_()
    value = mlayer.expm(a)
    (gradient,) = torch.autograd.grad(value.sum(), a)
    with torch.autocast("cpu", dtype=half):
        inside = mlayer.expm(a)
        (inside_gradient,) = torch.autograd.grad(inside.sum(), a)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, value)
    assert torch.equal(inside_gradient, gradient)
    with torch.autocast("cpu", dtype=half):
        product = a @ a
        assert product.dtype == half
        assert mlayer.expm(product).dtype == half


@pytest.mark.parametrize("shape", [(3, 3), (0, 4, 4), (2, 5, 1, 1), (7, 20, 20)], ids=str)
def test_meta_and_fake_tensors(shape: tuple[int, ...], dtype: torch.dtype, path: str) -> None:
    meta = mlayer.expm(torch.empty(shape, dtype=dtype, device="meta"))
    assert meta.is_meta
    assert (meta.shape, meta.dtype) == (shape, dtype)
    with FakeTensorMode():
        fake = mlayer.expm(torch.empty(shape, dtype=dtype))
        assert (fake.shape, fake.dtype, fake.device.type) == (shape, dtype, "cpu")
    a = torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)
    (gradient,) = torch.autograd.grad(mlayer.expm(a).sum(), a)
    assert gradient.shape == shape


# torch says that jit.trace is deprecated, and warns where the check of the shape meets traced sizes.
@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_jit_trace_is_refused_with_advice() -> None:
    words = r"the exporter must be torch\.export .* got torch\.jit\.trace, which would freeze the number of"
    with pytest.raises(ArgumentError, match=words):
        torch.jit.trace(mlayer.expm, (torch.eye(3),))

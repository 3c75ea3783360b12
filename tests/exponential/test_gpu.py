"""On a CUDA device, for whoever has one: pytest -m gpu -s. Nobody has sent a result back yet."""

from __future__ import annotations

import pytest
import torch
from test_accuracy import LARGEST_FOR_GRADIENT, _derivative, _direction, _value, measure

import mlayer
import oracle
from cases import GALLERY, Case, random_matrix
from rounding import MULTIPLES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@pytest.fixture(params=["matmul", "triton"])
def path(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name == "triton":
        pytest.importorskip("triton")
    return name


def test_which_device() -> None:
    """For the report: run with -s and send back what is printed."""
    lines = [torch.cuda.get_device_name(), f"torch {torch.__version__}", f"mlayer {mlayer.__version__}"]
    print("; ".join(lines))  # noqa: T201
    assert torch.cuda.device_count() >= 1


@pytest.mark.parametrize("case", GALLERY, ids=str)
def test_value_and_gradient_on_the_device(case: Case, dtype: torch.dtype, path: str) -> None:
    a = case.make(dtype)
    bound = MULTIPLES[dtype] * torch.finfo(dtype).eps * measure(case.name, dtype)
    on_device = a.cuda().requires_grad_()
    value = mlayer.expm(on_device, path=path)
    assert oracle.relative_error(value.detach().cpu(), _value(case.name, dtype)) <= bound
    if len(a) <= LARGEST_FOR_GRADIENT:
        (gradient,) = torch.autograd.grad(value, on_device, _direction(a).cuda())
        assert oracle.relative_error(gradient.cpu(), _derivative(case.name, dtype)) <= bound


def test_tensor_cores_do_not_reduce_the_precision(path: str) -> None:
    a = torch.stack([random_matrix(24, 10.0, seed, torch.float32) for seed in range(64)])
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        value = mlayer.expm(a.cuda(), path=path).cpu().double()
    finally:
        torch.set_float32_matmul_precision(before)
    exact = mlayer.expm(a.double())
    error = torch.linalg.matrix_norm(value - exact) / torch.linalg.matrix_norm(exact)
    assert error.max() <= MULTIPLES[torch.float32] * 10 * torch.finfo(torch.float32).eps


def test_the_backward_pass_does_not_synchronize() -> None:
    a = torch.stack([random_matrix(12, norm, dtype=torch.float32) for norm in (0.1, 1.0, 9.0)]).cuda()
    value = mlayer.expm(a.requires_grad_(), path="matmul")
    cotangent = torch.ones_like(value)
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.grad(value, a, cotangent)
    finally:
        torch.cuda.set_sync_debug_mode("default")

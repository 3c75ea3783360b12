"""Faults that users of other libraries report (see docs/theory), and that `expm` does not have.

Where torch has the fault, a test asserts that the pinned torch still has it, so that we notice when it is
corrected; such a test is about torch, and its failure is good news. A later torch may have corrected it.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import expm as scipy_expm
from torch import Tensor

import mlayer
import oracle
from cases import random_matrix
from mlayer.exponential.arguments import HALVES
from rounding import agree

EPS = 2.0**-23
of_the_pinned_torch = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="about torch 2.13; a later one may have corrected it"
)


def _relative(computed: Tensor, exact: Tensor) -> float:
    return float((computed.double() - exact.double()).norm() / exact.double().norm())


# ---- torch: the error of the gradient grows with the incoming gradient. --------------------------


def _gradient_error(expm: object, scale: float) -> float:
    a = random_matrix(8, 6.0, dtype=torch.float32).requires_grad_()
    g = random_matrix(8, 4.0, seed=1, dtype=torch.float32)
    assert callable(expm)
    (gradient,) = torch.autograd.grad(expm(a), a, g * scale)
    exact = oracle.exact_frechet(oracle.to_arb(a.detach().mT), oracle.to_arb(g * scale))
    return oracle.relative_error(gradient, exact)


@pytest.mark.parametrize("scale", [1.0, 65536.0, 1e6, 1e20])
def test_gradient_error_does_not_grow_with_the_incoming_gradient(scale: float, path: str) -> None:
    assert _gradient_error(mlayer.expm, scale) <= 4 * EPS * 6


@of_the_pinned_torch
def test_torch_gradient_error_still_grows() -> None:
    assert _gradient_error(torch.linalg.matrix_exp, 1.0) < 1e-5
    assert _gradient_error(torch.linalg.matrix_exp, 65536.0) > 1e-3
    assert _gradient_error(torch.linalg.matrix_exp, 1e6) > 1e-2


# ---- torch #196592: a single matrix is off, the same one in a batch is not. ----------------------


def test_single_matrix_is_as_right_as_in_a_batch(path: str) -> None:
    a = -0.5 * torch.eye(4)
    exact = math.exp(-0.5) * torch.eye(4, dtype=torch.float64)
    assert _relative(mlayer.expm(a), exact) <= EPS
    agree(mlayer.expm(a), mlayer.expm(a.expand(8, 4, 4))[5], a)


@of_the_pinned_torch
def test_torch_single_matrix_is_still_off() -> None:
    a = -0.5 * torch.eye(4)
    exact = math.exp(-0.5) * torch.eye(4, dtype=torch.float64)
    assert _relative(torch.linalg.matrix_exp(a), exact) > 1e-5
    mixed = torch.stack([a, random_matrix(4, 9.0, dtype=torch.float32)])
    assert _relative(torch.linalg.matrix_exp(mixed)[0], exact) < 4 * EPS


# ---- torch: half precisions on the CPU. ----------------------------------------------------------


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_half_precisions_are_computed_in_single(half: torch.dtype, path: str) -> None:
    a = torch.stack([random_matrix(5, x) for x in (0.1, 1.0, 4.0, 8.0)]).to(half)
    value = mlayer.expm(a)
    assert value.dtype == half
    assert torch.equal(value, mlayer.expm(a.float()).to(half))
    exact = torch.from_numpy(scipy_expm(a.double().numpy()))
    for k in range(len(a)):
        assert _relative(value[k], exact[k]) <= torch.finfo(half).eps


@of_the_pinned_torch
@pytest.mark.parametrize("half", HALVES, ids=str)
def test_torch_half_precisions_are_still_garbage(half: torch.dtype) -> None:
    a = torch.stack([random_matrix(5, x) for x in (0.1, 1.0, 4.0, 8.0)]).to(half)
    exact = torch.from_numpy(scipy_expm(a.double().numpy()))
    errors = [_relative(x, e) for x, e in zip(torch.linalg.matrix_exp(a), exact, strict=True)]
    assert not max(errors) < 0.1  # NaN counts


# ---- torch #82282, #126749, TF #40231: NaN or inf spoils the others or hangs. --------------------


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf], ids=str)
def test_one_bad_item_does_not_spoil_the_others(poison: float, path: str) -> None:
    a = torch.stack([random_matrix(3, x, dtype=torch.float32) for x in (0.01, 0.5, 3.0, 20.0)])
    expected = mlayer.expm(a)
    a[1, 0, 0] = poison
    value = mlayer.expm(a)
    agree(value[[0, 2, 3]], expected[[0, 2, 3]], a[[0, 2, 3]])
    assert value[1].isnan().all()


def test_overflow_is_infinite(path: str) -> None:
    assert mlayer.expm(torch.tensor([[1e30, 0.0], [0.0, 1.0]]))[0, 0] == torch.inf
    assert mlayer.expm(torch.eye(2) * 1e10).diagonal().isposinf().all()


@of_the_pinned_torch
def test_torch_overflow_is_still_nan() -> None:
    assert torch.linalg.matrix_exp(torch.tensor([[1e30, 1.0], [0.0, 1.0]])).isnan().any()


# ---- torch: matrix_exp cannot be exported to ONNX. (Ours can: test_graphs.py.) -------------------


class _TorchExponential(torch.nn.Module):
    def forward(self, a: Tensor) -> Tensor:
        return torch.matrix_exp(a)


# The exporter's own libraries warn about their own deprecations when they are imported.
@of_the_pinned_torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_torch_still_cannot_export_to_onnx(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"linalg_matrix_exp"):
        torch.onnx.export(
            _TorchExponential(), (torch.eye(3)[None],), tmp_path / "m.onnx", dynamo=True, verbose=False
        )


# ---- torch: overscaling of [[1, s], [0, -1]]. ----------------------------------------------------


def _coupled(s: float) -> tuple[Tensor, Tensor]:
    a = torch.tensor([[1.0, s], [0.0, -1.0]])
    exact = torch.tensor([[math.e, float(a[0, 1]) * math.sinh(1)], [0.0, 1 / math.e]], dtype=torch.float64)
    return a, exact


@pytest.mark.parametrize("s", [1e3, 1e6, 1e12, 1e30])
def test_no_overscaling(s: float, path: str) -> None:
    """Right in every entry, which says more than the norm here."""
    a, exact = _coupled(s)
    torch.testing.assert_close(mlayer.expm(a).double(), exact, rtol=4 * EPS, atol=0)


@of_the_pinned_torch
def test_torch_still_overscales() -> None:
    errors = [_relative(torch.linalg.matrix_exp(a), exact) for a, exact in map(_coupled, (1e3, 1e6, 1e12))]
    assert errors[0] > 1e-6
    assert errors[1] > 1e-4
    assert errors[2] > 1e-1


# ---- JAX #13985, #26802: NaN beyond 16 squarings, wrong values where SciPy is right. -------------


@pytest.mark.parametrize("norm", [1e5, 1e6, 1e8])
def test_many_squarings(norm: float, path: str) -> None:
    """Rates of a stiff Markov chain: more than 16 squarings, and the answer is a probability."""
    a = torch.tensor([[-1.0, 1.0], [2.0, -2.0]], dtype=torch.float64) * norm
    value = mlayer.expm(a)
    expected = torch.tensor([[2.0, 1.0], [2.0, 1.0]], dtype=torch.float64) / 3
    assert _relative(value, expected) <= 4 * 2.0**-52 * norm * 4
    np.testing.assert_allclose(value.numpy(), scipy_expm(a.numpy()), rtol=1e-15 * norm * 16)


def test_many_squarings_of_a_rotation(path: str) -> None:
    for turns in (1e4, 1e6):
        a = torch.tensor([[0.0, -turns], [turns, 0.0]], dtype=torch.float64)
        c, s = math.cos(turns), math.sin(turns)
        expected = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        assert _relative(mlayer.expm(a), expected) <= 4 * 2.0**-52 * turns


# ---- TF #77693: the gradient fails under the compiler. (test_graphs.py has more.) ----------------


def test_gradient_of_a_compiled_function() -> None:
    compiled = torch.compile(lambda x: mlayer.expm(x).square().sum(), backend="aot_eager", fullgraph=True)
    a = random_matrix(4, 2.0).requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(a), a)
    (expected,) = torch.autograd.grad(mlayer.expm(a).square().sum(), a)
    agree(gradient, expected, a)


# ---- SciPy #25924: batched results. --------------------------------------------------------------


def test_batches_agree_with_scipy_one_at_a_time(path: str) -> None:
    a = torch.stack([random_matrix(6, x) for x in (1e-3, 0.2, 2.0, 15.0)])
    expected = np.stack([scipy_expm(x) for x in a.numpy()])
    for got, want in zip(mlayer.expm(a), expected, strict=True):
        assert _relative(got, torch.from_numpy(want)) <= 16 * 15 * 2.0**-52


def test_scipy_is_not_the_version_whose_batches_are_wrong() -> None:
    assert sys.modules["scipy"].__version__ != "1.18.0"

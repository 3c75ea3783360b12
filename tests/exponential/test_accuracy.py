"""Value and derivative against Arb over the gallery, for every implementation.

The bound is relative and normwise, `MULTIPLE` eps times the measure that the case names (cases.py).
Rounding alone makes about one: the last product of the polynomial and every squaring each commit
a relative error of eps / 2 or so, and what is committed before a squaring doubles in it.

Single precision gets twice the multiple. Its largest threshold is theta = 2.35, where the terms of the
polynomial are exp(theta) large while the result may be exp(-theta) small (A = -theta I): in the worst
case exp(2 theta) / theta eps / 2, or 23 eps times the norm, is lost to rounding; 5.4 is what was seen.
In double precision theta is 0.68 and the same figure is below 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import flint
import pytest
import torch
from scipy.linalg import expm as scipy_expm
from torch import Tensor

import mlayer
import oracle
from cases import GALLERY, random_matrix
from rounding import MULTIPLE, MULTIPLES

LARGEST_FOR_GRADIENT = 33
LARGE = [127, 128, 129, 191, 192, 193]

_BY_NAME = {case.name: case for case in GALLERY}


def test_every_case_has_its_own_name() -> None:
    assert len(_BY_NAME) == len(GALLERY)


def _norm(name: str, dtype: torch.dtype) -> float:
    if _BY_NAME[name].measure == "one":
        return 1.0
    return max(1.0, float(_BY_NAME[name].make(dtype).double().abs().sum(0).max()))


@cache
def measure(name: str, dtype: torch.dtype) -> float:
    norm = _norm(name, dtype)
    if _BY_NAME[name].measure in ("one", "norm"):
        return norm
    return max(norm, oracle.condition_number(_BY_NAME[name].make(dtype)))


def acceptable(error: float, name: str, dtype: torch.dtype, times: float = 1.0) -> bool:
    """Within the bound; what takes long to compute is asked last, and of few."""
    unit = times * MULTIPLES[dtype] * torch.finfo(dtype).eps
    return error <= unit * _norm(name, dtype) or error <= unit * measure(name, dtype)


@cache
def _value(name: str, dtype: torch.dtype) -> flint.arb_mat:
    return oracle.exact_exp(oracle.to_arb(_BY_NAME[name].make(dtype)))


def _direction(a: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(a.shape, dtype=torch.float64, generator=generator).to(a.dtype)


@cache
def _derivative(name: str, dtype: torch.dtype) -> flint.arb_mat:
    """The gradient: L(A^T, G)."""
    a = _BY_NAME[name].make(dtype)
    return oracle.exact_frechet(oracle.to_arb(a.mT), oracle.to_arb(_direction(a)))


# The gallery in eight parts, a test each: a test for each of its matrices takes longer to start than to run.
@pytest.mark.parametrize("part", range(8))
def test_value_against_arb(part: int, dtype: torch.dtype, implementation: str) -> None:
    wrong = {}
    for case in GALLERY[part::8]:
        error = oracle.relative_error(mlayer.expm(case.make(dtype)), _value(case.name, dtype))
        if not acceptable(error, case.name, dtype):
            wrong[case.name] = error
    assert wrong == {}


@pytest.mark.parametrize("part", range(8))
def test_gradient_against_arb(part: int, dtype: torch.dtype, implementation: str) -> None:
    wrong = {}
    for case in GALLERY[part::8]:
        a = case.make(dtype).requires_grad_()
        if len(a) > LARGEST_FOR_GRADIENT:
            continue
        (computed,) = torch.autograd.grad(mlayer.expm(a), a, _direction(a))
        error = oracle.relative_error(computed, _derivative(case.name, dtype))
        if not acceptable(error, case.name, dtype):
            wrong[case.name] = error
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("n", [48, 65, 96, 130])
def test_gradient_of_larger_sizes_against_arb(n: int, dtype: torch.dtype, implementation: str) -> None:
    a = random_matrix(n, 3.0, dtype=dtype).requires_grad_()
    (computed,) = torch.autograd.grad(mlayer.expm(a), a, _direction(a))
    exact = oracle.exact_frechet(oracle.to_arb(a.detach().mT), oracle.to_arb(_direction(a)))
    assert oracle.relative_error(computed, exact) <= MULTIPLE * 3 * torch.finfo(dtype).eps


@pytest.mark.parametrize("part", range(10))
def test_every_size_in_single_precision_against_scipy_in_double(part: int, implementation: str) -> None:
    for n in range(1 + part, 131, 10):
        _single_precision_against_scipy_in_double(n)


def _single_precision_against_scipy_in_double(n: int) -> None:
    """Value and gradient; the block matrix of the gradient only where it is cheap."""
    a = torch.stack([random_matrix(n, norm, dtype=torch.float32) for norm in (0.01, 0.4, 2.0, 9.0)])
    g = torch.stack([random_matrix(n, 1.0, seed=5, dtype=torch.float32)] * len(a))
    a.requires_grad_()
    value = mlayer.expm(a)
    (gradient,) = torch.autograd.grad(value, a, g)
    exact = a.detach().double()
    assert _worst(value, torch.from_numpy(scipy_expm(exact.numpy()))) <= MULTIPLE * 9 * 2.0**-23
    if n <= 40 or n in (64, 65, 96, 97, 128, 129):
        zero = torch.zeros_like(exact)
        block = torch.cat([torch.cat([exact.mT, g.double()], -1), torch.cat([zero, exact.mT], -1)], -2)
        expected = torch.from_numpy(scipy_expm(block.numpy()))[:, :n, n:]
        assert _worst(gradient, expected) <= MULTIPLE * 9 * 2.0**-23


@pytest.mark.parametrize("sizes", [range(1, 14), range(14, 28), range(28, 41), [63, 64, 65], LARGE], ids=str)
def test_kernel_and_matmul_agree(
    sizes: Iterable[int], dtype: torch.dtype, instruction_set: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in sizes:
        with monkeypatch.context() as local:
            _kernel_and_matmul_agree(n, dtype, local)


def _kernel_and_matmul_agree(n: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    norms = (1e-5, 0.01, 0.1, 0.4, 2.0, 9.0, 30.0)
    a = torch.stack([random_matrix(n, norm, dtype=dtype) for norm in norms]).requires_grad_()
    g = torch.stack([random_matrix(n, 1.0, seed=5, dtype=dtype)] * len(a))
    native_value = mlayer.expm(a)
    (native_gradient,) = torch.autograd.grad(native_value, a, g)
    monkeypatch.setenv("MLAYER_EXPM", "matmul")
    matmul_value = mlayer.expm(a)
    (matmul_gradient,) = torch.autograd.grad(matmul_value, a, g)
    bound = 2 * MULTIPLE * norms[-1] * torch.finfo(dtype).eps
    assert _worst(native_value, matmul_value.double()) <= bound
    assert _worst(native_gradient, matmul_gradient.double()) <= bound


@pytest.mark.parametrize("name", ["skew_3", "skew_10", "skew_25", "rotation_quarter", "rotation_many_turns"])
def test_exponential_of_skew_is_orthogonal(name: str, dtype: torch.dtype, implementation: str) -> None:
    a = _BY_NAME[name].make(dtype)
    q = mlayer.expm(a).double()
    identity = torch.eye(len(a), dtype=torch.float64)
    bound = 2 * MULTIPLE * torch.finfo(dtype).eps * measure(name, dtype) * len(a) ** 0.5
    assert (q @ q.mT - identity).norm() <= bound


@pytest.mark.parametrize("name", ["markov_8", "markov_24"])
def test_exponential_of_markov_generator_is_stochastic(
    name: str, dtype: torch.dtype, implementation: str
) -> None:
    a = _BY_NAME[name].make(dtype)
    p = mlayer.expm(a).double()
    # The rows of the rounded generator sum to zero only to rounding.
    drift = float(a.double().sum(1).abs().max())
    bound = drift + MULTIPLE * torch.finfo(dtype).eps * measure(name, dtype) * len(a) ** 0.5
    assert (p.sum(1) - 1).abs().max() <= bound
    assert p.min() >= -bound


def _worst(computed: Tensor, exact: Tensor) -> float:
    difference = torch.linalg.matrix_norm(computed.detach().double() - exact.detach())
    return float((difference / torch.linalg.matrix_norm(exact.detach())).max())

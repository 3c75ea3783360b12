"""Complex matrices: value and gradient against Arb, on every implementation."""

from __future__ import annotations

from functools import cache

import flint
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

import mlayer
import oracle
from cases import random_matrix
from mlayer.exponential import native
from rounding import MULTIPLES, agree

SIZES = [2, 3, 5, 8, 11, 17]
NORMS = [1e-5, 0.3, 3.0, 40.0]
_PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def drawn(n: int, norm: float, dtype: torch.dtype, seed: int = 0) -> Tensor:
    real = _PARTS[dtype]
    return torch.complex(
        random_matrix(n, norm, seed, dtype=real), random_matrix(n, norm, seed + 1, dtype=real)
    )


def real_form(z: Tensor) -> Tensor:
    """[[B, -C], [C, B]] of B + i C, by the definition and not by our code."""
    return torch.cat([torch.cat([z.real, -z.imag], 1), torch.cat([z.imag, z.real], 1)])


def error(computed: Tensor, exact: flint.arb_mat) -> float:
    return oracle.relative_error(real_form(computed), exact)


@cache
def exact_value(n: int, norm: float, dtype: torch.dtype) -> flint.arb_mat:
    return oracle.exact_exp(oracle.to_arb(real_form(drawn(n, norm, dtype))))


@cache
def exact_gradient(n: int, norm: float, dtype: torch.dtype) -> flint.arb_mat:
    """L(A^H, G): the real form of the adjoint is the transpose of the real form."""
    a, g = drawn(n, norm, dtype), drawn(n, 1.0, dtype, seed=5)
    return oracle.exact_frechet(oracle.to_arb(real_form(a).mT), oracle.to_arb(real_form(g)))


@pytest.mark.parametrize("dtype", list(_PARTS), ids=str)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", SIZES)
def test_value_and_gradient_against_arb(n: int, norm: float, dtype: torch.dtype, implementation: str) -> None:
    a = drawn(n, norm, dtype).requires_grad_()
    x = mlayer.expm(a)
    (gradient,) = torch.autograd.grad(x, a, drawn(n, 1.0, dtype, seed=5))
    size = max(1.0, float(a.detach().abs().sum(0).max()))
    bound = MULTIPLES[dtype] * torch.finfo(dtype).eps * size
    assert error(x.detach(), exact_value(n, norm, dtype)) <= bound
    assert error(gradient, exact_gradient(n, norm, dtype)) <= bound


@pytest.mark.parametrize("dtype", list(_PARTS), ids=str)
@pytest.mark.parametrize("n", [2, 4, 7, 12, 20])
def test_the_same_bits_whatever_stands_beside(n: int, dtype: torch.dtype, instruction_set: str) -> None:
    batch = torch.stack([drawn(n, norm, dtype, seed) for seed in range(9) for norm in NORMS])
    g = torch.stack([drawn(n, 1.0, dtype, seed) for seed in range(len(batch))])
    value, derivative = native.expm(batch), native.frechet(batch, g)
    for k in (0, 5, len(batch) - 1):
        assert torch.equal(native.expm(batch[k]), value[k])  # exact: the kernel's own loops
        assert torch.equal(native.frechet(batch[k], g[k]), derivative[k])  # exact: the kernel's own loops


def complex_form(x: Tensor) -> Tensor:
    """B + i C of [[B, -C], [C, B]]."""
    n = x.shape[-1] // 2
    return torch.complex(x[:n, :n], x[n:, :n])


# One matrix at a time, real and imaginary parts are stored side by side; rows end with whole vectors, with
# padded ones, or with a vector that both share. The real form is stored and computed in another way.
@pytest.mark.parametrize("dtype", list(_PARTS), ids=str)
def test_every_size_is_that_of_the_real_form(dtype: torch.dtype, instruction_set: str) -> None:
    for n in (*range(2, 36), 41, 48, 52, 63):
        a, g = drawn(n, (0.3, 3.0, 40.0)[n % 3], dtype, n), drawn(n, 1.0, dtype, seed=5)
        form, direction = real_form(a), real_form(g)
        agree(native.expm(a), complex_form(native.expm(form)), form)
        agree(native.frechet(a, g), complex_form(native.frechet(form, direction)), form)
        pullback = native.frechet(form, direction, adjoint=True)
        agree(native.frechet(a, g, adjoint=True), complex_form(pullback), form)


def special(n: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Matrices that the kernel computes as real forms, with exact diagonals or with care, and near ones."""
    a, real = drawn(n, 30.0, dtype), random_matrix(n, 30.0, 7, dtype=_PARTS[dtype]).to(dtype)
    corner = a.clone()
    corner[-1, 0] = corner[0, -1] = 0
    return {
        "real": real,
        "real, upper triangular": real.triu(),
        "real, lower triangular": real.tril() / 8,
        "strictly triangular": real.triu(1).tril(3),
        "diagonal": torch.diag_embed(real.diagonal()),
        "zero": torch.zeros_like(a),
        "imaginary": 1j * real,
        "no entries in the corners": corner,
        "overflow": a + torch.full((n,), 1e4 if dtype == torch.complex128 else 1e3, dtype=dtype).diag(),
        "NaN": torch.where(torch.eye(n, dtype=torch.bool).roll(1, 0), torch.nan, a),
        "infinite": torch.where(torch.eye(n, dtype=torch.bool).roll(1, 0), torch.inf, a),
    }


@pytest.mark.parametrize("dtype", list(_PARTS), ids=str)
@pytest.mark.parametrize("n", [16, 20])
def test_special_matrices_are_those_of_the_real_form(
    n: int, dtype: torch.dtype, instruction_set: str
) -> None:
    g = drawn(n, 1.0, dtype, seed=5)
    for a in special(n, dtype).values():
        form = real_form(a)
        agree(native.expm(a), complex_form(native.expm(form)), form)
        agree(native.frechet(a, g), complex_form(native.frechet(form, real_form(g))), form)


@pytest.mark.parametrize("dtype", list(_PARTS), ids=str)
@pytest.mark.parametrize("n", [16, 20])
def test_badly_scaled_matrices_are_balanced(n: int, dtype: torch.dtype, instruction_set: str) -> None:
    """exp(D A D^-1) = D exp(A) D^-1, and powers of two lose no digit."""
    a, g, d = drawn(n, 30.0, dtype), drawn(n, 1.0, dtype, 5), 2.0 ** torch.arange(0.0, 2 * n, 2)
    there, back = (d[:, None] / d).to(_PARTS[dtype]), (d / d[:, None]).to(_PARTS[dtype])
    agree(native.expm(a * there) * back, native.expm(a), a)
    agree(native.frechet(a * there, g * there) * back, native.frechet(a, g), a)


@pytest.mark.parametrize("dtype", list(_PARTS), ids=str)
def test_strides_and_conjugate_views(dtype: torch.dtype, path: str) -> None:
    z = torch.stack([drawn(4, norm, dtype, seed=3) for norm in NORMS[:3]])
    plain, g = mlayer.expm(z), torch.stack([drawn(4, 1.0, dtype, seed) for seed in range(3)])
    agree(mlayer.expm(z.mT), plain.mT.contiguous(), z.mT)
    agree(mlayer.expm(z.mH), plain.mH.contiguous().resolve_conj(), z.mH)
    agree(mlayer.expm(z.conj()), plain.conj().resolve_conj(), z)
    agree(mlayer.expm(z[..., ::1].movedim(0, 2).movedim(2, 0)), plain, z)
    for view, cotangent in ((z, g.mH), (z.mT, g), (z.mH, g.conj()), (z.conj(), g)):
        leaf = view.detach().requires_grad_()
        copy = view.clone().resolve_conj().contiguous().requires_grad_()
        (got,) = torch.autograd.grad(mlayer.expm(leaf), leaf, cotangent)
        plain_cotangent = cotangent.clone().resolve_conj().contiguous()
        (expected,) = torch.autograd.grad(mlayer.expm(copy), copy, plain_cotangent)
        agree(got.resolve_conj(), expected, copy)


def test_poison_stays_in_its_own_matrix(implementation: str) -> None:
    clean = torch.stack([drawn(5, norm, torch.complex64, seed=2) for norm in NORMS])
    value = mlayer.expm(clean)
    dirty = clean.clone()
    dirty.imag[1, 2, 3] = torch.inf
    got = mlayer.expm(dirty)
    assert got[1].isnan().all()
    agree(got[[0, 2, 3]], value[[0, 2, 3]], clean[[0, 2, 3]])


def test_gradcheck(path: str) -> None:
    a = torch.stack([drawn(3, norm, torch.complex128) for norm in (0.01, 2.0)]).requires_grad_()
    assert gradcheck(mlayer.expm, a, check_forward_ad=True)

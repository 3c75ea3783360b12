"""Balancing by powers of two and exact diagonals: matrices that squarings alone would spoil."""

from __future__ import annotations

from functools import cache

import flint
import pytest
import torch
from torch import Tensor

import gallery
import mlayer
import oracle
import random_gallery
from cases import random_matrix
from mlayer.exponential import native

UNIT_ROUNDOFF = 2.0**-53
# Kinds that lose digits to squarings, and gain them in twice the precision. Without it the largest errors of
# value and derivative were 2.3e6 and 9e4 units.
_MANY_SQUARINGS = ("stiff", "Hamiltonian", "symmetric", "skew", "diffusion", "companion")
TWOFOLD = [name for name in gallery.MATRICES if name.startswith(_MANY_SQUARINGS)]
# Kinds that balancing and exact diagonals serve. Without them the largest errors of value and derivative were
# 1.2e5 and 9.5e5 units.
SERVED = [name for name in gallery.MATRICES if name.startswith(("badly", "overscaled", "triangular"))]
VALUE, DERIVATIVE = 20.0, 2000.0

needs_kernel = pytest.mark.skipif(not native.available(), reason=native.description())


@cache
def exact_value(name: str) -> flint.arb_mat:
    return oracle.exact_exp(oracle.to_arb(gallery.MATRICES[name]))


@cache
def exact_gradient(name: str) -> flint.arb_mat:
    a = gallery.MATRICES[name]
    return oracle.exact_frechet(oracle.to_arb(a.mT), oracle.to_arb(direction(a)))


def units(computed: Tensor, exact: flint.arb_mat) -> float:
    return oracle.relative_error(computed, exact) / UNIT_ROUNDOFF


def real_form(z: Tensor) -> Tensor:
    """[[B, -C], [C, B]] of B + i C."""
    if not z.is_complex():
        return z
    return torch.cat([torch.cat([z.real, -z.imag], 1), torch.cat([z.imag, z.real], 1)])


def direction(a: Tensor) -> Tensor:
    return random_matrix(len(a), 1.0, seed=9)


def test_the_gallery_is_large_enough() -> None:
    assert len(gallery.MATRICES) >= 120


@pytest.mark.parametrize("name", SERVED)
def test_value_and_gradient_against_arb(name: str, instruction_set: str) -> None:
    a = gallery.MATRICES[name].clone().requires_grad_()
    g = direction(a)
    x = mlayer.expm(a)
    (gradient,) = torch.autograd.grad(x, a, g)
    assert units(x.detach(), exact_value(name)) <= VALUE
    assert units(gradient, exact_gradient(name)) <= DERIVATIVE


@pytest.mark.parametrize("name", TWOFOLD)
def test_many_squarings_cost_no_digits(name: str, instruction_set: str) -> None:
    a = gallery.MATRICES[name].clone().requires_grad_()
    g = direction(a).to(a.dtype)
    x = mlayer.expm(a)
    (gradient,) = torch.autograd.grad(x, a, g)
    form = real_form(a.detach())
    wanted = oracle.exact_exp(oracle.to_arb(form))
    slope = oracle.exact_frechet(oracle.to_arb(form.mT), oracle.to_arb(real_form(g)))
    assert units(real_form(x.detach()), wanted) <= 8
    assert units(real_form(gradient), slope) <= 8


def test_twice_the_precision_for_large_matrices(instruction_set: str) -> None:
    """Beyond the sizes in lanes, with an odd number of columns, and a spectrum from 0 to -400."""
    q = torch.linalg.qr(random_matrix(37, 1.0, seed=3))[0]
    a = q @ torch.diag(-torch.linspace(0, 400, 37, dtype=torch.float64)) @ q.mT
    g = direction(a)
    assert units(native.expm(a), oracle.exact_exp(oracle.to_arb(a))) <= 2
    exact = oracle.exact_frechet(oracle.to_arb(a), oracle.to_arb(g))
    assert units(native.frechet(a, g), exact) <= 2


# Sparingly: these sizes end with ordinary squarings. With ordinary ones alone 350, 85 and 19 are lost.
SPARING = {"evolution 12, time 500": 80.0, "complex random 12, norm 200": 30.0, "turning 41, norm 25": 8.0}


@pytest.mark.parametrize("name", SPARING)
def test_twice_the_precision_sparingly(name: str, instruction_set: str) -> None:
    a = gallery.MATRICES[name]
    g = direction(a).to(a.dtype)
    form = oracle.to_arb(real_form(a))
    assert units(real_form(native.expm(a)), oracle.exact_exp(form)) <= SPARING[name]
    slope = oracle.exact_frechet(form, oracle.to_arb(real_form(g)))
    assert units(real_form(native.frechet(a, g)), slope) <= SPARING[name]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", [3, 6, 12, 20])
def test_the_same_bits_whatever_stands_beside(n: int, dtype: torch.dtype, instruction_set: str) -> None:
    """Small matrices go in lanes, and those that are balanced one at a time."""
    d = 2.0 ** torch.arange(0, 3 * n, 3, dtype=torch.float64)
    kinds = [random_matrix(n, 20.0, seed=1), d[:, None] * random_matrix(n, 8.0, seed=2) / d]
    kinds += [random_matrix(n, 30.0, seed=3).triu(), random_matrix(n, 30.0, seed=3).tril(), torch.eye(n) * 9]
    batch = torch.stack([kinds[k % len(kinds)] for k in range(23)]).to(dtype)
    g = torch.stack([random_matrix(n, 1.0, seed=k) for k in range(len(batch))]).to(dtype)
    value, derivative = native.expm(batch), native.frechet(batch, g)
    for k in range(len(kinds)):
        # exact: the kernel's own loops, a promise of docs/expm.md
        assert torch.equal(native.expm(batch[k]), value[k])
        assert torch.equal(native.frechet(batch[k], g[k]), derivative[k])  # exact: the same promise


# Random matrices with 2 or 3 squarings, and triangular ones; value or derivative had lost 4.5 to 7.5 units.
FEW_SQUARINGS = (
    ("triangular", 37),
    ("Jordan", 23),
    ("Toeplitz", 23),
    ("Kahan", 39),
    ("integers", 26),
    ("shifted", 4),
    ("nearly nilpotent, rotated", 17),
    ("complex", 1),
    ("damped", 3),
)


@cache
def random_matrices() -> dict[str, Tensor]:
    return {name.split(":")[0]: a for _, name, a in random_gallery.matrices(40, seed=1)}


@pytest.mark.parametrize(("kind", "number"), FEW_SQUARINGS)
def test_few_squarings_cost_few_units(kind: str, number: int, instruction_set: str) -> None:
    a = random_matrices()[f"{kind} {number}"]
    g = torch.randn(a.shape, dtype=a.dtype, generator=torch.Generator().manual_seed(7))
    form = oracle.to_arb(real_form(a))
    assert units(real_form(native.expm(a)), oracle.exact_exp(form)) <= 4
    slope = oracle.exact_frechet(form, oracle.to_arb(real_form(g)))
    assert units(real_form(native.frechet(a, g)), slope) <= 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("n", [2, 3, 5, 6, 10, 16])
def test_the_same_bits_in_lanes_and_alone(n: int, dtype: torch.dtype, instruction_set: str) -> None:
    """Twice the precision, each matrix with its own squarings; then 0 to 3 squarings in one block."""
    for norms in ([6.0 * 1.3**k for k in range(19)], [0.3 * 1.18**k for k in range(19)]):
        batch = torch.stack([random_matrix(n, norm, seed=k) for k, norm in enumerate(norms)]).to(dtype)
        if dtype.is_complex:
            batch = batch + 0.5j * batch.mT
        batch[3] = batch[3].triu()
        g = torch.stack([random_matrix(n, 1.0, seed=k) for k in range(len(batch))]).to(dtype)
        value, derivative = native.expm(batch), native.frechet(batch, g)
        for k in range(len(batch)):
            assert torch.equal(native.expm(batch[k]), value[k])  # exact: the same promise
            assert torch.equal(native.frechet(batch[k], g[k]), derivative[k])  # exact: the same promise


@needs_kernel
@pytest.mark.parametrize("upper", [True, False], ids=["upper", "lower"])
def test_triangular_diagonals_are_those_of_the_scalar_exponential(upper: bool) -> None:
    a = (random_matrix(8, 60.0, seed=4).triu() * torch.linspace(1, 40, 8)).double()
    a = a if upper else a.mT.contiguous()
    x = mlayer.expm(a)
    torch.testing.assert_close(x.diagonal(), a.diagonal().exp(), rtol=4e-16, atol=0)
    assert torch.equal(x.triu() if upper else x.tril(), x)


@needs_kernel
def test_gradients_of_balanced_matrices() -> None:
    """The derivative of exp, not of our arithmetic; linear in the direction at every scale."""
    d = 2.0 ** torch.tensor([0.0, 6.0, 12.0], dtype=torch.float64)
    a = d[:, None] * random_matrix(3, 6.0, seed=5) / d
    for scale in (1.0, 2.0**300):
        e = direction(a) * scale
        exact = oracle.exact_frechet(oracle.to_arb(a), oracle.to_arb(e))
        assert units(native.frechet(a, e), exact) <= DERIVATIVE


@needs_kernel
def test_entries_that_would_underflow_forbid_balancing() -> None:
    a = torch.tensor([[20.0, 1e30, 0.0], [1e-300, -20.0, 1e30], [0.0, 1e-320, 3.0]], dtype=torch.float64)
    assert units(mlayer.expm(a), oracle.exact_exp(oracle.to_arb(a))) <= 1e3

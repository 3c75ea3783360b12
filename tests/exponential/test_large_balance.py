"""Balancing of matrices beyond the kernel's size, against exponentials that are known by construction.

S = I (x) B has exp(S) = I (x) exp(B), with B so small that Arb is quick, and H S H with a reflection H of
dyadic entries is full, without rounding. D S D^-1 with powers of two is badly balanced, without rounding too.
"""

from __future__ import annotations

import flint
import numpy as np
import pytest
import torch
from torch import Tensor

import mlayer
import oracle
from mlayer.exponential import large_balance, matmul, native, small_balance
from mlayer.numerics.arrays import AnyArray

UNITS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
N, B = 256, 8


def whole(seed: int, size: int = B) -> Tensor:
    """Entries of a few bits: products with H are exact."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-16, 17, (size, size), generator=g).double() / 8


def exactly(matrix: flint.arb_mat) -> AnyArray:
    with flint.ctx.workprec(256):
        rows = []
        for row in matrix.tolist():
            high = [float(x.mid()) for x in row]
            low = [float(x.mid() - y) for x, y in zip(row, high, strict=True)]
            rows.append(np.array(high, dtype=np.longdouble) + np.array(low, dtype=np.longdouble))
    return np.stack(rows)


def reflected(block: AnyArray) -> AnyArray:
    """H (I (x) block) H with H = I - 2/n J, J all ones; rank one, so that no product is needed."""
    s = np.kron(np.eye(N // len(block), dtype=block.dtype), block)
    s = s - s.sum(0) * 2 / N
    return np.asarray(s - s.sum(1)[:, None] * 2 / N)


def scaling(dtype: torch.dtype = torch.float64) -> Tensor:
    """D_i / D_j."""
    most = 15 if dtype == torch.float64 else 8
    g = torch.Generator().manual_seed(1)
    d = torch.exp2(torch.randint(-most, most + 1, (N,), generator=g).to(dtype))
    return d[:, None] / d


def units(computed: Tensor, exact: AnyArray) -> float:
    difference = computed.double().numpy() - exact
    return (
        float(np.linalg.norm(difference.astype(float)) / np.linalg.norm(exact.astype(float)))
        / UNITS[computed.dtype]
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("company", [False, True], ids=["alone", "in a batch"])
def test_badly_balanced(dtype: torch.dtype, company: bool) -> None:
    """Value and gradient, with a matrix of ordinary scaling and NaN beside it."""
    b, e = whole(1), whole(2)
    factors = scaling(dtype)
    plain = torch.from_numpy(reflected(b.numpy())).to(dtype)
    assert torch.equal(plain.double(), torch.from_numpy(reflected(b.numpy())))
    direction = torch.from_numpy(reflected(e.numpy())).to(dtype) * factors.mT
    a = torch.stack([plain * factors, plain, torch.full_like(plain, torch.nan)][: 3 if company else 1])
    a.requires_grad_()
    x = mlayer.expm(a)
    (gradient,) = torch.autograd.grad(x, a, direction.expand_as(a))
    value = exactly(oracle.exact_exp(oracle.to_arb(b)))
    slope = exactly(oracle.exact_frechet(oracle.to_arb(b.mT), oracle.to_arb(e)))
    # Balancing restores the accuracy of the matrix of ordinary scaling; without it 6e5 units are lost.
    ordinary = plain.clone().requires_grad_()
    y = mlayer.expm(ordinary)
    (slope_of_ordinary,) = torch.autograd.grad(y, ordinary, torch.from_numpy(reflected(e.numpy())).to(dtype))
    of_value, of_slope = units(y.detach(), reflected(value)), units(slope_of_ordinary, reflected(slope))
    assert units(x[0].detach() / factors, reflected(value)) <= 2 * of_value + 4
    assert units(gradient[0] * factors, reflected(slope)) <= 2 * of_slope + 4
    if company:
        assert units(x[1].detach(), reflected(value)) <= 2 * of_value + 4
        assert x[2].isnan().all()


def test_complex_numbers() -> None:
    """The balanced one is as accurate as that of ordinary scaling; unbalanced, 6e5 units are lost."""
    b = whole(1)
    factors = scaling()
    # exp(B + 2 pi i I) = exp(B), and the rounding of 2 pi changes it by less than a unit.
    plain, turn = torch.from_numpy(reflected(b.numpy())), 2j * torch.pi * torch.eye(N, dtype=torch.float64)
    exact = reflected(exactly(oracle.exact_exp(oracle.to_arb(b))))
    y, x = mlayer.expm(plain + turn), mlayer.expm(plain * factors + turn) / factors
    bound = 2 * max(units(y.real, exact), units(y.real + y.imag, exact)) + 4
    assert bound < 2000
    assert units(x.real, exact) <= bound
    assert units(x.real + x.imag, exact) <= bound


@pytest.mark.parametrize("lower", [False, True], ids=["upper", "lower"])
@pytest.mark.parametrize("triangular", [False, True], ids=["blocks", "triangular"])
def test_overscaled_blocks(triangular: bool, lower: bool) -> None:
    """exp([[S, c K], [0, S]]) has c L(S, K) in its corner; 1,500 units are lost unbalanced."""
    b, k, c = 2 * whole(3), whole(4), 2.0**20
    b = b.triu() if triangular else b
    eye = torch.eye(N // (2 * B), dtype=torch.float64)
    s = torch.kron(eye, b)
    a = torch.cat([torch.cat([s, c * torch.kron(eye, k)], 1), torch.cat([torch.zeros_like(s), s], 1)])
    same = exactly(oracle.exact_exp(oracle.to_arb(b)))
    corner = c * exactly(oracle.exact_frechet(oracle.to_arb(b), oracle.to_arb(k)))
    exact = np.block([[np.kron(eye, same), np.kron(eye, corner)], [np.zeros(s.shape), np.kron(eye, same)]])
    x = mlayer.expm(a.mT if lower else a)
    assert units(x.mT if lower else x, exact) <= 40


def test_underflow_forbids_balancing() -> None:
    a = torch.from_numpy(reflected(whole(1).numpy())) * scaling()
    a[0, 1] = a[1, 0] = 3 * 2.0**-1074
    assert torch.equal(mlayer.expm(a), matmul._without_balancing(a[None], None)[0])


def test_matrices_of_ordinary_scaling_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_balance, "equalizing_exponents", lambda a: pytest.fail("searched"))
    a = torch.from_numpy(reflected(whole(1).numpy()))
    for x in (a, a.mT, a.triu(), torch.diag(a.diagonal()) * 9, a - a.mT):
        assert mlayer.expm(4 * x).isfinite().all()
    with np.errstate(divide="ignore"):
        assert not large_balance._of_triangular(4 * a.triu()[None].numpy()).any()


@pytest.mark.slow
def test_transforms() -> None:
    """vmap, forward mode, second derivatives and torch.compile give what the plain call gives."""
    factors = scaling()
    n = native.LARGEST_SIZE + 2
    a = (torch.from_numpy(reflected(whole(1).numpy())) * factors)[:n, :n].contiguous()
    e = (torch.from_numpy(reflected(whole(2).numpy())) * factors)[:n, :n].contiguous()
    value = mlayer.expm(a)
    size = value.norm()

    def close(x: Tensor, y: Tensor) -> bool:
        return bool((x - y).norm() <= 1e-13 * y.norm())

    assert close(torch.func.vmap(mlayer.expm)(torch.stack([a, a.mT]))[0], value)
    tangent = torch.func.jvp(mlayer.expm, (a,), (e,))[1]
    g = 1 / factors[:n, :n]

    def slope(x: Tensor) -> Tensor:
        return torch.func.grad(lambda y: (mlayer.expm(y) * g).sum() / size)(x)

    assert abs((slope(a) * e).sum() * size / (tangent * g).sum() - 1) < 1e-12
    # Second derivatives: along e, against a difference of first ones.
    second = torch.func.jvp(slope, (a,), (e,))[1]
    h = 2.0**-17
    difference = (slope(a + h * e) - slope(a - h * e)) / (2 * h)
    assert (second - difference).norm() <= 1e-7 * difference.norm()
    compiled = torch.compile(mlayer.expm, fullgraph=True, backend="eager")
    assert close(compiled(a), value)

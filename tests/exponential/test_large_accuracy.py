"""Accuracy of large matrices, most beyond the kernel's size, against exponentials known by construction.

Full matrices are H (I (x) B) H with a reflection H of dyadic entries, as in test_large_balance; generators of
walks are circulant. In each of these the squarings would double errors that are the same in many entries, or
of the size of the identity's rounding: the walk in both directions lost 4,187 units so. The order of a BLAS's
sums moves these errors by a factor of 15, so that walks are held to the condition number, which is the 2-norm
of a normal matrix.
"""

from __future__ import annotations

import flint
import numpy as np
import pytest
import scipy.linalg
import torch
from test_large_balance import exactly, reflected, units

import mlayer
import oracle
from mlayer.exponential import native
from mlayer.exponential.schedule import LARGE
from mlayer.numerics.arrays import AnyArray

N = 200


def circulant(row: list[flint.arb]) -> AnyArray:
    column = exactly(flint.arb_mat([[x] for x in row]))[:, 0]
    return np.asarray(scipy.linalg.circulant(column))


def walk(rates: dict[int, float]) -> tuple[AnyArray, AnyArray]:
    """A walk on a cycle with these steps, and its exact transition probabilities at time 1."""
    i = np.arange(N)
    a = np.zeros((N, N))
    for step, rate in rates.items():
        a[(i + step) % N, i] += rate
    out = -float(sum(a[:, 0]))
    a[i, i] = out
    with flint.ctx.workprec(256):
        cosines = [(2 * flint.arb.pi() * k / N).cos() for k in range(N)]
        sines = [(2 * flint.arb.pi() * k / N).sin() for k in range(N)]
        decay, turn = [], []
        for k in range(N):
            decay.append(sum((r * cosines[k * s % N] for s, r in rates.items()), flint.arb(out)).exp() / N)
            turn.append(sum((r * sines[k * s % N] for s, r in rates.items()), flint.arb(0)))
        pairs = [(d * t.cos(), d * t.sin()) for d, t in zip(decay, turn, strict=True)]
        row = [
            sum(
                (x * cosines[j * k % N] + y * sines[j * k % N] for k, (x, y) in enumerate(pairs)),
                flint.arb(0),
            )
            for j in range(N)
        ]
        return a, circulant(row)


def graph(coupling: float) -> dict[int, float]:
    """Half of all places, with one rate in both directions."""
    steps = (torch.randperm(N // 2 - 1, generator=torch.Generator().manual_seed(4))[: N // 4] + 1).tolist()
    return {sign * step: coupling for step in steps for sign in (1, -1)}


@pytest.mark.parametrize(
    ("rates", "limit"),
    [
        ({1: 300.0, -1: 300.0}, 1200),
        ({1: 51.0}, 102),
        ({1: 100.0, -1: 50.0}, 300),
        (graph(0.53), 2 * 62),
    ],
    ids=["both_ways", "one_way", "drift", "graph"],
)
def test_generators(rates: dict[int, float], limit: float) -> None:
    a, exact = walk(rates)
    assert N > native.LARGEST_SIZE
    assert units(mlayer.expm(torch.from_numpy(a)), exact) <= limit


def blocks(kind: str) -> torch.Tensor:
    g = torch.Generator().manual_seed(3)
    b = torch.randint(-16, 17, (8, 8), generator=g).double()
    return {"skew": b - b.mT, "symmetric": (b + b.mT) / 2, "decaying": -(b @ b.mT) / 64}[kind] / 2


@pytest.mark.parametrize("kind", ["skew", "symmetric", "decaying"])
@pytest.mark.parametrize("backward", [False, True])
def test_full_matrices(kind: str, backward: bool) -> None:
    b = blocks(kind)
    a = torch.from_numpy(reflected(b.numpy()))
    if backward:
        k = blocks("symmetric")
        e = torch.from_numpy(reflected(k.numpy()))
        leaf = a.mT.contiguous().requires_grad_()
        found = torch.autograd.grad(mlayer.expm(leaf), leaf, e)[0]
        exact = reflected(exactly(oracle.exact_frechet(oracle.to_arb(b), oracle.to_arb(k))))
    else:
        found = mlayer.expm(a)
        exact = reflected(exactly(oracle.exact_exp(oracle.to_arb(b))))
    assert units(found, exact) <= 240


def test_neighbors_keep_their_own_squarings() -> None:
    """Matrices that stop earlier keep value and rounding error."""
    a, exact = walk({1: 300.0, -1: 300.0})
    b, exact_b = walk({1: 2.0, -1: 1.0})
    both = mlayer.expm(torch.from_numpy(np.stack([a, b])))
    assert units(both[0], exact) <= 1200
    assert units(both[1], exact_b) <= 6


def test_decay_as_a_whole_does_not_cancel() -> None:
    """There exp(B) is far smaller than exp(B) - I; and the 1-norm does not grow with the size."""
    n = LARGE + 100
    assert n > native.LARGEST_SIZE
    rates = [-20.0, 1.0, -3.0]
    a = torch.stack([r * torch.eye(n, dtype=torch.float64) for r in rates])
    for rate, found in zip(rates, mlayer.expm(a), strict=True):
        exact = np.eye(n, dtype=np.longdouble) * exactly(flint.arb_mat([[flint.arb(rate).exp()]]))
        assert units(found, exact) <= max(4, 1.5 * abs(rate)), rate


@pytest.mark.skipif(not native.available(), reason="sums of the kernel")
@pytest.mark.parametrize("total", [1.0, -1.0, 3.0, -3.0, 10.0, -10.0])
def test_equal_entries(total: float) -> None:
    """A = t J is exponentiated to I + (exp(n t) - 1) / n J, and L(A, I) is the same.

    The terms of all products are equal, and sums of 190 of them were rounded in one direction: the kernel had
    20 to 270 units of error, the more with the identity in the sums.
    """
    n = 190
    assert n < native.LARGEST_SIZE
    rate = round(total / n * 2**12) / 2**12
    a = torch.full((n, n), rate, dtype=torch.float64)
    with flint.ctx.workprec(256):
        other = exactly(flint.arb_mat([[(flint.arb(rate * n).exp() - 1) / n]]))
    exact = np.full((n, n), other[0, 0]) + np.eye(n)
    leaf = a.clone().requires_grad_()
    found = mlayer.expm(leaf)
    derivative = torch.autograd.grad(found, leaf, torch.eye(n, dtype=torch.float64))[0]
    assert units(found.detach(), exact) <= 4 * (1 + abs(total))
    assert units(derivative, exact) <= 4 * (1 + abs(total))

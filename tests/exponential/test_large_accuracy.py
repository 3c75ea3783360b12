"""Accuracy beyond the kernel's size, against exponentials that are known by construction.

Full matrices are H (I (x) B) H with a reflection H of dyadic entries, as in test_large_balance; generators of
walks on a cycle are circulant. In each of these the squarings would double errors that are the same in all
entries, or rounded at the size of the identity; the bounds are below what that gave.
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


def on_a_cycle(there: int, back: int, time: int) -> tuple[AnyArray, AnyArray]:
    """A walk with these two rates for a time, and its exact transition probabilities."""
    i = np.arange(N)
    a = np.zeros((N, N))
    a[(i + 1) % N, i] += there * time
    a[(i - 1) % N, i] += back * time
    a -= np.diag(a.sum(0))
    with flint.ctx.workprec(256):
        angles = [2 * flint.arb.pi() * k / N for k in range(N)]
        decay = [((there + back) * time * (x.cos() - 1)).exp() / N for x in angles]
        turn = [(there - back) * time * x.sin() for x in angles]
        row = [
            sum((d * (j * x - t).cos() for d, x, t in zip(decay, angles, turn, strict=True)), flint.arb(0))
            for j in range(N)
        ]
        return a, circulant(row)


@pytest.mark.parametrize(
    ("there", "back", "time", "limit"), [(1, 1, 300, 200), (3, 0, 17, 60), (2, 1, 50, 60)]
)
def test_generators(there: int, back: int, time: int, limit: float) -> None:
    a, exact = on_a_cycle(there, back, time)
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
    a, exact = on_a_cycle(1, 1, 300)
    b, exact_b = on_a_cycle(2, 1, 1)
    both = mlayer.expm(torch.from_numpy(np.stack([a, b])))
    assert units(both[0], exact) <= 200
    assert units(both[1], exact_b) <= 6


def test_decay_as_a_whole_does_not_cancel() -> None:
    """There exp(B) is far smaller than exp(B) - I; and the 1-norm does not grow with the size."""
    n = LARGE + 100
    rates = [-20.0, 1.0, -3.0]
    a = torch.stack([r * torch.eye(n, dtype=torch.float64) for r in rates])
    for rate, found in zip(rates, mlayer.expm(a), strict=True):
        exact = np.eye(n, dtype=np.longdouble) * exactly(flint.arb_mat([[flint.arb(rate).exp()]]))
        assert units(found, exact) <= max(4, 1.5 * abs(rate)), rate

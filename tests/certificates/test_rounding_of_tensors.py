"""The allowance for the rounding of second to fourth derivatives: above the error, and not far above."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import flint
import numpy as np
import pytest
import torch

import mlayer
from mlayer.certificates import Certifier
from mlayer.certificates.bounds.quadrature import nodes_needed
from mlayer.certificates.bounds.quartic_tensor import Quartic, quartic_form
from mlayer.certificates.derivatives.jets import sorted_pairs
from mlayer.certificates.derivatives.spectral import SpectralPath
from mlayer.certificates.problem.expansion import Pair, Row

# Distances of eigenvalues: the smaller, the worse the condition of the eigenvectors (7, 70, 700).
GAPS = [0.3, 0.03, 0.003]


def near_a_jordan_block(gap: float, seed: int) -> Pair:
    """The first pair of a layer whose matrix at 0 has two eigenvalues with nearly the same eigenvector."""
    random = torch.Generator().manual_seed(seed)
    layer = mlayer.MLayer(7, 3, matrix_size=5, embedding_size=4, generator=random).double()
    with torch.no_grad():
        layer.generators.copy_(torch.randn(4, 5, 5, generator=random, dtype=torch.float64))
        B = torch.diag(torch.tensor([0.5, 0.5 + gap, -1.0, 0.2, -0.4], dtype=torch.float64))
        B[0, 1] = 1.0
        B[2, 3], B[3, 2] = 2.0, -2.0  # a complex pair
        Q = torch.linalg.qr(torch.randn(5, 5, generator=random, dtype=torch.float64)).Q
        assert layer.matrix_bias is not None
        assert layer.embedding_bias is not None
        layer.matrix_bias.copy_(Q @ B @ Q.mT)
        layer.embedding_bias.zero_()
    row = Row(Certifier(layer, fit_steps=0)._model, np.zeros(7), 0)
    return row.pair(1)


@pytest.fixture(autouse=True)
def bits() -> Iterator[None]:
    """Balls of 250 bits."""
    before, flint.ctx.prec = flint.ctx.prec, 250
    yield
    flint.ctx.prec = before


def term(M: np.ndarray, N: list[list[flint.arb]], W: np.ndarray, order: int) -> flint.arb:
    """The coefficient of t^order in W : exp(M + t N), by Arb on the block matrix."""
    n = len(M)
    block = flint.arb_mat(n * (order + 1), n * (order + 1))
    for k, r, c in product(range(order + 1), range(n), range(n)):
        block[k * n + r, k * n + c] = flint.arb(float(M[r, c]))
        if k < order:
            block[k * n + r, (k + 1) * n + c] = N[r][c]
    E = block.exp()
    terms = (flint.arb(float(W[r, c])) * E[r, order * n + c] for r, c in product(range(n), repeat=2))
    return sum(terms, flint.arb(0))


def along(y: np.ndarray, T: np.ndarray) -> list[list[flint.arb]]:
    """sum_a y_a T_a without rounding."""
    n = T.shape[1]
    return [
        [
            sum((flint.arb(float(a)) * float(t) for a, t in zip(y, T[:, r, c], strict=True)), flint.arb(0))
            for c in range(n)
        ]
        for r in range(n)
    ]


@pytest.mark.parametrize("gap", GAPS)
def test_errors_are_within_the_allowance(gap: float) -> None:
    random = np.random.default_rng(1)
    for seed in range(2):
        pair = near_a_jordan_block(gap, seed)
        row, T = pair.row, pair.row.model.white.T
        path = row.derivatives
        assert isinstance(path, SpectralPath)
        assert np.linalg.cond(np.linalg.eig(row.M)[1]) > 1 / gap
        y = random.standard_normal(len(T))
        y /= np.linalg.norm(y)
        N, unit_ball = along(y, T), pair.tensor_slack(1.0, 2)
        two = float(abs(term(row.M, N, pair.W, 2) - float(y @ pair.second @ y)))
        assert two <= unit_ball
        three = float(abs(term(row.M, N, pair.W, 3) - float(np.einsum("abc,a,b,c", pair.third, y, y, y))))
        assert three <= pair.tensor_slack(1.0, 3) - unit_ball
        quartic = Quartic(pair, 1.0)
        nodes, error = nodes_needed(pair, 1.0)
        form, single = quartic_form(path, pair.W, nodes)
        i, j = sorted_pairs(len(T))[0].T
        flat = np.where(i == j, 1.0, np.sqrt(2.0)) * y[i] * y[j]
        four = float(abs(term(row.M, N, pair.W, 4) - float(flat @ form @ flat)))
        rounding = path.rounding(pair.W, 4, 0.0, 0.0, 0.0)
        rounding += pair.moved_with(path.distance) * row.model.constants.delta_2**4 / 24
        assert four <= error + single + rounding
        assert quartic.fall >= -float(term(row.M, N, pair.W, 4).mid()) * (1 - 1e-9)


@pytest.mark.parametrize("gap", GAPS)
def test_the_allowance_is_small(gap: float) -> None:
    """Relative to the tensors themselves: once it was a tenth of a margin on images of ill-conditioned M."""
    pair = near_a_jordan_block(gap, 0)
    path = pair.row.derivatives
    assert isinstance(path, SpectralPath)
    sizes = {2: np.linalg.norm(pair.second), 3: np.linalg.norm(pair.third)}
    for order, size in sizes.items():
        rounding = pair.tensor_slack(1.0, order) - (pair.tensor_slack(1.0, 2) if order == 3 else 0.0)
        assert rounding <= 5e-11 / gap ** (order + 1) * float(size)

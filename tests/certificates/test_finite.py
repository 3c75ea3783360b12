"""Expansions that end (theorem 10): degrees, the quadratic term, and certificates without a remainder."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mlayer
from mlayer.certificates import Certifier
from mlayer.certificates.bounds import methods
from mlayer.certificates.bounds.of_pair import Bounds
from mlayer.certificates.bounds.remainder import norm_curvature, norm_remainder
from mlayer.certificates.derivatives.jets import JetPath
from mlayer.certificates.derivatives.polynomial_degree import FinitePath, degree_of
from mlayer.certificates.problem.expansion import Row
from mlayer.numerics.arrays import Array


def triangular(seed: int, n: int, blocks: int, inputs: int = 4, classes: int = 3) -> mlayer.MLayer:
    """Matrices that lead from each block of rows to later ones only, in a random order of the rows."""
    random = np.random.default_rng(seed)
    level = np.sort(np.concatenate([np.arange(blocks), random.integers(0, blocks, n - blocks)]))
    order = random.permutation(n)
    mask = (level[:, None] < level)[np.ix_(order, order)]
    # A walk through all blocks is there for certain, so that the degree is what it says.
    T = random.standard_normal((inputs, n, n)) * mask
    return mlayer.MLayer.from_weights(
        torch.from_numpy(T),
        torch.from_numpy(random.standard_normal((classes, n, n))),
        matrix_bias=torch.from_numpy(random.standard_normal((n, n)) * mask),
        output_bias=torch.from_numpy(random.standard_normal(classes)),
    )


def row_of(layer: mlayer.MLayer, x: torch.Tensor) -> Row:
    with torch.no_grad():
        label = int(layer(x).argmax())
    return Row(Certifier(layer, fit_steps=0)._model, x.numpy(), label)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 4))
def test_the_degree_is_the_longest_walk(seed: int, blocks: int, more: int) -> None:
    layer = triangular(seed, blocks + more, blocks)
    model = Certifier(layer, fit_steps=0)._model
    assert degree_of(model.weights.B, model.weights.T0) == blocks - 1
    assert model.degree == blocks - 1


def test_one_entry_back_and_the_expansion_does_not_end() -> None:
    layer = triangular(0, 6, 3)
    T = layer.generators.detach().clone()
    forward = torch.nonzero(T[0])[0]
    T[1, forward[1], forward[0]] = 1e-300
    cyclic = mlayer.MLayer.from_weights(T, layer.readout.detach())
    assert Certifier(cyclic, fit_steps=0)._model.degree == math.inf
    full = mlayer.MLayer(3, 2, matrix_size=4, embedding_size=3)
    assert Certifier(full, fit_steps=0)._model.degree == math.inf


def test_the_quadratic_term_against_jets() -> None:
    for seed in range(4):
        row = row_of(triangular(seed, 7, 3), torch.randn(4, dtype=torch.float64))
        T, pair = row.model.white.T, row.pair((row.label + 1) % 3)
        assert isinstance(row.derivatives, FinitePath)
        jets = JetPath(row.M, T)
        np.testing.assert_allclose(pair.second, jets.second(pair.W), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(jets.third(pair.W), 0.0, atol=1e-12)
        assert not pair.third.any()


@pytest.mark.parametrize("blocks", [2, 3, 4])
def test_no_remainder_beyond_the_degree(blocks: int) -> None:
    row = row_of(triangular(1, 6, blocks), torch.randn(4, dtype=torch.float64))
    pair = row.pair((row.label + 1) % 3)
    for K in range(2, 6):
        ends = blocks - 1 < K
        assert (norm_remainder(pair, 0.3, K) == 0) == ends
        assert (norm_curvature(pair, 0.3, K) == 0) == ends


@given(st.integers(0, 10**6), st.integers(2, 4), st.floats(0.02, 0.6))
def test_bounds_hold_and_lose_only_what_the_tensors_lose(seed: int, blocks: int, eps: float) -> None:
    """Least margins over points and corners: never below the bound; for degree one equal to it."""
    layer = triangular(seed, 6, blocks)
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal(4))
    row = row_of(layer, x)
    corners = torch.cartesian_prod(*[torch.tensor([-eps, eps], dtype=torch.float64)] * 4)
    inside = (torch.rand(200, 4, generator=torch.Generator().manual_seed(seed)).double() * 2 - 1) * eps
    with torch.no_grad():
        outputs = layer(x + torch.cat([corners, inside]))
    for rival in range(3):
        if rival == row.label:
            continue
        least = float((outputs[:, row.label] - outputs[:, rival]).min())
        pair = row.pair(rival)
        bounds = Bounds(pair)
        scale = 1e-9 * (1 + float(outputs.abs().max()))
        for method in methods.taylor_bounds():
            assert bounds.lower(method.name, eps) <= least + scale, method.name
        if blocks == 2:  # linear: exact but for what is set aside for rounding
            slack = pair.value_slack(eps)
            assert bounds.lower("first_order", eps) + slack == pytest.approx(least, abs=scale)
            assert slack < 100 * scale


def test_a_formula_that_was_written_down_is_certified_exactly() -> None:
    """Sign of x y against 0.1: a polynomial of degree two, so its radius is nearly the attack's."""
    import sympy

    x, y = sympy.symbols("x y")
    layer = mlayer.from_polynomial([x * y, sympy.Rational(1, 10) + 0 * x], [x, y])
    points = torch.tensor([[1.0, 0.5], [0.7, -0.3], [0.2, 0.1], [-1.0, -0.4]], dtype=torch.float64)
    labels = layer(points.to(next(layer.parameters()).dtype)).argmax(1)
    certifier = Certifier(layer, fit_steps=0)
    assert certifier._model.degree == 2
    found = certifier(points, labels, method="second_order").radius
    broken = mlayer.attack(layer, points, labels).radius
    assert bool((found <= broken).all())
    assert float((found / broken).min()) > 0.9


def test_quadratic_terms_are_computed_once_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The form of a margin of degree two does not depend on the input: one for each label and rival."""
    layer = triangular(3, 6, 3)
    x = torch.rand(40, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        labels = layer(x).argmax(1)
    computed: list[int] = []
    second = FinitePath.second

    def counted(path: FinitePath, W: Array) -> Array:
        computed.append(1)
        return second(path, W)

    monkeypatch.setattr(FinitePath, "second", counted)
    certifier = Certifier(layer, fit_steps=0)
    radii = certifier(x, labels).radius
    used = len(labels.unique())
    assert 0 < len(computed) <= 2 * used
    certifier(x, labels, eps=float(radii.median()))
    assert len(computed) <= 2 * used

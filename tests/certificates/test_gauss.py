"""Gauss's rule of the quartic tensor and the bound of its error: theorem 6."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from certificate_layers import random_layer
from mlayer.certificates import Certifier
from mlayer.certificates.bounds import quartic_tensor as quartic
from mlayer.certificates.bounds.quadrature import (
    _terms,
    derivative_bound,
    gauss_error,
    gauss_rule,
    nodes_needed,
)
from mlayer.certificates.derivatives.spectral import SpectralPath
from mlayer.certificates.problem.expansion import Pair, Row

SEEDS = range(12)


def pair_of(seed: int, kind: str = "full") -> Pair:
    layer, x, labels = random_layer(kind, seed)
    row = Row(Certifier(layer, fit_steps=10)._model, x[0].numpy(), int(labels[0]))
    return row.pair((row.label + 1) % len(row.outputs))


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_error_of_the_rule(nodes: int) -> None:
    """For t^(2 nodes) the error is the bound: 5 % less would not hold."""
    p = 2 * nodes
    t, w = gauss_rule(nodes)
    np.testing.assert_allclose([w.sum(), w @ t], [1 / 12, 1 / 20], rtol=1e-13)
    off = 1 / (p + 3) - 1 / (p + 4) - float(w @ t**p)
    bound = gauss_error(nodes) * math.factorial(p)
    assert off == pytest.approx(bound, rel=1e-5)
    assert 0.95 * bound < off


def test_expected_powers_against_sampling() -> None:
    """Expected powers of the speeds of the four N: exact for even powers, elsewhere a bound near them."""
    random = np.random.default_rng(0)
    u, v = random.random(400_000), random.dirichlet([1, 1, 1], 400_000)
    rates = np.abs([u, u - v[:, 0], v[:, 2] - (1 - u), 1 - u])
    k, bounds = _terms(4)
    assert len(k) == math.comb(7, 3)
    for powers, bound in zip(k, bounds, strict=True):
        sampled = float((rates.T**powers).prod(1).mean()) / math.prod(math.factorial(j) for j in powers)
        assert bound == pytest.approx(sampled, rel=0.02) if not (powers % 2).any() else bound > 0.98 * sampled
        assert bound < 1.6 * sampled


@pytest.mark.parametrize("seed", SEEDS)
def test_commutator_norms_against_samples(seed: int) -> None:
    row = pair_of(seed).row
    norms, T = row.commutator_norms(4), row.model.T_gauge
    random = np.random.default_rng(seed)
    for _ in range(20):
        y = random.standard_normal(len(T))
        N = np.tensordot(y / np.linalg.norm(y), T, 1)
        assert np.linalg.norm(N, 2) <= norms[0]
        for norm in norms[1:]:
            N = row.M_gauge @ N - N @ row.M_gauge
            assert np.linalg.norm(N) <= norm
    # Along the top eigenvector the commutators are as large as that: 5 % less would not hold.
    for norm in norms[1:]:
        T = row.M_gauge @ T - T @ row.M_gauge
        largest = float(np.linalg.norm(T.reshape(len(T), -1), 2))
        assert largest <= norm
        assert 0.95 * norm < largest or norm < 1e-9  # of size 1 everything commutes


@pytest.mark.parametrize("seed", [0, 1])
def test_derivative_bound_is_its_formula(seed: int) -> None:
    """Written out again, with expectations by sampling: 5 % less would not agree."""
    pair, order = pair_of(seed), 2
    random = np.random.default_rng(seed)
    u, v = random.random(300_000), random.dirichlet([1, 1, 1], 300_000)
    rates = (u, u - v[:, 0], v[:, 2] - (1 - u), 1 - u)
    constants, norms = pair.row.model.constants, pair.row.commutator_norms(order)
    total = 0.0
    for k in product(range(order + 1), repeat=4):
        if sum(k) != order:
            continue
        means = [
            float(
                np.mean(
                    math.prod(
                        r ** (j + way * (j % 2) * (n in (1, 2)))
                        for n, (r, j) in enumerate(zip(rates, k, strict=True))
                    )
                )
            )
            for way in (-1, 1)
        ]
        factorials = math.prod(math.factorial(j) for j in k)
        left = max(0, 2 - sum(j > 0 for j in k))
        readout = min(pair.nuclear, pair.spectral * (constants.delta_F / constants.delta_2) ** left)
        total += math.sqrt(means[0] * means[1]) / factorials * readout * math.prod(norms[j] for j in k)
    expected = 0.5 * math.factorial(order) * math.exp(pair.row.mu) * total
    assert derivative_bound(pair, order) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_derivatives_against_finite_products(seed: int, order: int) -> None:
    """The derivative of the other factor of the integrand, summed over its places, is below the bound."""
    pair = pair_of(seed)
    row = pair.row
    M, T, W = row.M_gauge, row.model.T_gauge, pair.W_gauge
    bound = derivative_bound(pair, order)
    values, vectors = np.linalg.eig(M)
    inverse = np.linalg.inv(vectors)

    def exponential(s: float) -> np.ndarray:
        return ((vectors * np.exp(s * values)) @ inverse).real

    random = np.random.default_rng(seed)
    for _ in range(5):
        y = random.standard_normal(len(T))
        commutators = [np.tensordot(y / np.linalg.norm(y), T, 1)]
        for _ in range(order):
            commutators.append(M @ commutators[-1] - commutators[-1] @ M)
        t, total = random.random(), 0.0
        samples = 40
        for _ in range(samples):
            u, v = random.random(), random.dirichlet([1, 1, 1])
            s = ((1 - t) * u, *(t * v), (1 - t) * (1 - u))
            rates = (u, u - v[0], v[2] - (1 - u), -(1 - u))
            between = [exponential(length) for length in s]
            for k in product(range(order + 1), repeat=4):
                if sum(k) == order:
                    factor = math.factorial(order) / math.prod(math.factorial(j) for j in k)
                    factor *= math.prod(r**j for r, j in zip(rates, k, strict=True))
                    chain = between[0]
                    for j, E in zip(k, between[1:], strict=True):
                        chain = chain @ commutators[j] @ E
                    total += factor * float((W * chain).sum())
        assert abs(total) / samples / 2 <= bound


@pytest.mark.parametrize("seed", SEEDS)
def test_error_of_the_form(seed: int) -> None:
    """Few nodes against many: the forms differ by no more than the bounds say."""
    pair = pair_of(seed)
    path = pair.row.derivatives
    if not isinstance(path, SpectralPath):
        pytest.skip("no good eigenvectors")
    fine, fine_off = quartic.quartic_form(path, pair.W, 14)
    random = np.random.default_rng(seed)
    d = len(path.generators)
    i, j = np.array([(a, b) for a in range(d) for b in range(a, d)]).T
    for nodes in (2, 3):
        form, off = quartic.quartic_form(path, pair.W, nodes)
        allowed = gauss_error(nodes) * derivative_bound(pair, 2 * nodes) + off + fine_off
        for _ in range(30):
            y, v = random.standard_normal((2, d))
            y, v = y / np.linalg.norm(y), v / np.linalg.norm(v)
            for a, b in ((y, y), (y, v)):
                z = (a[i] * b[j] + a[j] * b[i]) / np.where(i == j, 2.0, math.sqrt(2))
                assert abs(z @ (form - fine) @ z) <= allowed


def test_the_first_rule_that_is_good_enough() -> None:
    pair = pair_of(0)
    errors = [gauss_error(nodes) * derivative_bound(pair, 2 * nodes) for nodes in range(2, 9)]
    assert errors == sorted(errors, reverse=True)
    assert nodes_needed(pair, errors[2]) == (4, errors[2])
    assert nodes_needed(pair, 0.999 * errors[2])[0] == 5
    assert nodes_needed(pair, 0.0) == (0, math.inf)


def test_matrices_too_large() -> None:
    pair = pair_of(0)
    pair.row.M_gauge = pair.row.M_gauge * 1e200
    assert nodes_needed(pair, 1.0) == (0, math.inf)

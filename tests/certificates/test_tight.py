"""The tighter proofs, piece by piece: quartic tensor, touching functions, caps; attacked and mutated."""

from __future__ import annotations

import math
from itertools import product
from unittest import mock

import flint
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from certificate_layers import KINDS, random_layer
from mlayer.certificates import Certifier, attack, linalg
from mlayer.certificates.bounds import caps, tangent
from mlayer.certificates.bounds import quartic_tensor as quartic
from mlayer.certificates.bounds.caps import cap
from mlayer.certificates.bounds.methods import METHODS as ROWS
from mlayer.certificates.bounds.methods import names
from mlayer.certificates.bounds.of_pair import Bounds
from mlayer.certificates.bounds.quadratic_terms import BoxQuadratic, Minorant
from mlayer.certificates.derivatives.spectral import SpectralPath
from mlayer.certificates.linalg import top_eigenvalue
from mlayer.certificates.problem.expansion import Row
from mlayer.certificates.solve import strategy


def rows_of(kind: str, seed: int, **kwargs: object) -> list[Row]:
    layer, x, labels = random_layer(kind, seed)
    certifier = Certifier(layer, fit_steps=10, **kwargs)  # type: ignore[arg-type]
    return [Row(certifier._model, row, int(label)) for row, label in zip(x.numpy(), labels, strict=True)][:3]


def fourth_coefficient(M: np.ndarray, N: np.ndarray, W: np.ndarray) -> float:
    """The coefficient of W : exp(M + t N) at t^4, by Arb on the block matrix."""
    n = len(M)
    block = np.kron(np.eye(5), M) + np.kron(np.diag(np.ones(4), 1), N)
    E = flint.arb_mat(block.tolist()).exp()
    return sum(W[r, c] * float(E[r, 4 * n + c].mid()) for r, c in product(range(n), repeat=2))


@pytest.mark.parametrize("seed", range(6))
def test_quartic_tensor_against_balls(seed: int) -> None:
    random = np.random.default_rng(seed)
    row = rows_of("full", seed)[0]
    pair = row.pair((row.label + 1) % len(row.outputs))
    path = row.derivatives
    if not isinstance(path, SpectralPath):
        pytest.skip("no good eigenvectors")
    d = len(row.model.white.T)
    form, off = quartic.quartic_form(path, pair.W, 8)
    i, j = np.array([(a, b) for a in range(d) for b in range(a, d)]).T
    fall = quartic.Quartic(pair, 1e-9).fall
    for _ in range(20):
        y = random.standard_normal(d)
        y /= np.linalg.norm(y)
        z = y[i] * y[j] * np.where(i == j, 1.0, math.sqrt(2))
        true = fourth_coefficient(row.M, np.tensordot(y, row.model.white.T, 1), pair.W)
        assert abs(z @ form @ z - true) <= off + 1e-9
        assert off < 1e-2 * np.abs(form).max()
        assert true >= -fall


def test_the_eigenvalue_of_the_quick_bound_counts() -> None:
    """H falls along the eigenvector as far as the bound says, and 5 % less would not hold."""
    row = rows_of("full", 1)[0]
    second = Bounds(row.pair((row.label + 1) % len(row.outputs))).second
    least = float(np.linalg.eigvalsh(second.pair.second)[0])
    assert least < 0
    assert -least <= second.pair.fall <= -least * (1 + 1e-6)
    assert 0.95 * second.pair.fall < -least


def test_a_bound_of_zero_proves_nothing() -> None:
    """The guess of the number of caps is 0, which ends the search, only for a positive bound."""
    assert caps._levels(-1e-300, 1.0, 0.5) == 0
    assert caps._levels(0.0, 1.0, 0.5) > 0
    assert caps._levels(0.1, 1.0, 0.9) > caps._levels(0.1, 1.0, 0.5) > 0
    assert caps._levels(0.1, 1.0, 1.0) == caps._levels(2.0, 1.0, 0.5) == math.inf


def test_rivals_left_out_do_not_matter() -> None:
    """The rivals that may bind are found without the others: the radius is that of all of them."""
    for seed in range(4):
        layer, x, labels = random_layer("full", seed)
        certifier = Certifier(layer, fit_steps=10)
        found = certifier(x, labels).radius
        with mock.patch.object(strategy, "_likely", side_effect=lambda rivals: (rivals, {})):
            every = certifier(x, labels).radius
        np.testing.assert_allclose(found, every, rtol=0.05)


def test_eigenvalue_claims_are_proved() -> None:
    random = np.random.default_rng(0)
    A = random.standard_normal((4, 6, 6))
    A = A + A.transpose(0, 2, 1)
    exact = np.linalg.eigvalsh(A)[:, -1]
    np.testing.assert_allclose(top_eigenvalue(A), exact, rtol=1e-8)
    assert bool((top_eigenvalue(A) >= exact).all())
    one_fails = np.array([True, True, False, True])
    with mock.patch.object(linalg, "are_positive", return_value=one_fails):
        found = top_eigenvalue(A)
    np.testing.assert_allclose(found[one_fails], exact[one_fails], rtol=1e-8)
    assert float(found[2]) == pytest.approx(float(np.linalg.norm(A[2])))
    A[1, 0, 0] = np.nan
    assert linalg.are_positive(A, 100.0).tolist() == [True, False, True, True]


@pytest.mark.parametrize("kind", ["full", "large", "nilpotent"])
def test_touching_functions_stay_below(kind: str) -> None:
    random = np.random.default_rng(0)
    for seed in (3, 4, 5):
        for row in rows_of(kind, seed)[:2]:
            weights = row.model.weights
            pair = row.pair((row.label + 1) % len(row.outputs))
            bounds = Bounds(pair)
            for order in (bounds.second, bounds.third, bounds.fourth):
                for eps in (0.05, 0.5):
                    radius = row.radius(eps)
                    low, high = row.interval(eps)
                    curvature = order.curvature(radius)
                    box = BoxQuadratic(pair, low, high, 9, curvature)
                    found = tangent.tangent(pair, box, low, high, radius)
                    assert found is not None
                    for k in range(40):
                        step = random.uniform(-eps, eps, len(low))
                        if k % 2:
                            step = eps * np.sign(step)
                        M = torch.from_numpy(weights.matrix(row.x + step))
                        E = torch.linalg.matrix_exp(M).numpy()
                        true = float(weights.V[row.label] - weights.V[pair.rival]) + float((pair.W * E).sum())
                        bound = found.linear.constant + float(found.linear.slopes @ step)
                        assert bound <= true + 1e-12 * max(1.0, abs(true))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0.0, 1.0))
def test_caps_hold_what_they_should(seed: int, m: int, share: float) -> None:
    """Every corner, and many points, of the box where the linear function is <= 0 lie in the ball."""
    random = np.random.default_rng(seed)
    low, high = -random.random(m), random.random(m)
    w = random.random(m) + 1e-3
    slopes = random.standard_normal(m) * (random.random(m) < 0.8)
    least = np.minimum(slopes * low, slopes * high).sum()
    most = np.maximum(slopes * low, slopes * high).sum()
    cut = Minorant(float(-least - share * (most - least)), slopes)
    center, radius = cap(cut, low, high, w)
    points = np.concatenate(
        [
            low + (high - low) * np.array(list(product((0.0, 1.0), repeat=m))),
            random.uniform(low, high, (300, m)),
        ]
    )
    inside = points[cut.constant + points @ slopes <= 0]
    assert bool((((inside - center) ** 2 @ w) <= radius**2 * (1 + 1e-12) + 1e-15).all())
    whole = float(w @ ((high - low) / 2) ** 2)
    assert radius**2 <= whole * (1 + 1e-6)


# ---- A weakened constant is found out: each true radius is known or attacked. ----------------------------


def exact_case(change: float) -> tuple[float, float]:
    """Touching functions of 3 - exp(x) against 0, with the curvature scaled: radius and truth."""
    from mlayer import MLayer

    readout = torch.tensor([[[-1.0]], [[0.0]]], dtype=torch.float64)
    layer = MLayer.from_weights(
        torch.ones(1, 1, 1, dtype=torch.float64), readout, output_bias=torch.tensor([3.0, 0.0]).double()
    )
    certifier = Certifier(layer, fit_steps=0)
    row = Row(certifier._model, np.zeros(1), 0)
    bounds = Bounds(row.pair(1))
    eps = math.log(3)
    return change * bounds.second.curvature(eps), 0.5 * 3.0 - 0.5


def test_curvature_is_exact_where_it_should_be_and_counts() -> None:
    """Half the second derivative of 3 - e^x falls from -1/2 at 0 to -3/2 at log 3: the curvature is 1."""
    curvature, true = exact_case(1.0)
    assert true <= curvature <= true * (1 + 1e-6)
    assert exact_case(0.95)[0] < true


def test_fall_counts() -> None:
    """P_4 of 3 - e^x is -x^4 / 24; 5 % less would not hold."""
    from mlayer import MLayer

    readout = torch.tensor([[[-1.0]], [[0.0]]], dtype=torch.float64)
    layer = MLayer.from_weights(
        torch.ones(1, 1, 1, dtype=torch.float64), readout, output_bias=torch.tensor([3.0, 0.0]).double()
    )
    row = Row(Certifier(layer, fit_steps=0)._model, np.zeros(1), 0)
    fall = quartic.Quartic(row.pair(1), 1e-9).fall
    assert 1 / 24 <= fall <= 1.01 / 24
    assert 0.95 * fall < 1 / 24


def test_cap_radius_counts() -> None:
    """Four coordinates, of which one may cross: the ball touches those corners, and 5 % less misses them."""
    low, high = -np.ones(4), np.ones(4)
    center, radius = cap(Minorant(2.0, np.ones(4)), low, high, np.ones(4))
    np.testing.assert_allclose(center, -0.5, rtol=1e-6)
    far = float(np.linalg.norm(np.array([1.0, -1.0, -1.0, -1.0]) - center))
    assert far <= radius <= far * (1 + 1e-6)
    assert far == pytest.approx(math.sqrt(3), rel=1e-6)
    assert 0.95 * radius < far


# ---- Random layers: every certificate of every method is attacked. ----------------------------------------


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(KINDS),
    st.integers(0, 10**5),
    st.sampled_from(["linf", "l2", "boxed"]),
    st.sampled_from([1e-3, 0.3, 1.0, 4.0]),
)
def test_random_layers_are_never_broken(kind: str, seed: int, norm: str, size: float) -> None:
    check_random_layer(kind, seed, norm, size)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(KINDS),
    st.integers(0, 10**5),
    st.sampled_from(["linf", "l2", "boxed"]),
    st.floats(1e-4, 8.0),
)
def test_many_random_layers_are_never_broken(kind: str, seed: int, norm: str, size: float) -> None:
    check_random_layer(kind, seed, norm, size)


def check_random_layer(kind: str, seed: int, norm: str, size: float) -> None:
    """All methods on all rows: attack, sampling, corners. No tolerance."""
    layer, x, labels = random_layer(kind, seed)
    with torch.no_grad():
        layer.readout.mul_(size)
    labels = layer(x).argmax(1).detach()
    where: dict[str, object] = {"norm": "l2" if norm == "l2" else "linf"}
    if norm == "boxed":
        where["box"] = (0, 1)
    certifier = Certifier(layer, fit_steps=4, **where)  # type: ignore[arg-type]
    broken = attack(layer, x, labels, starts=2, **where).radius  # type: ignore[arg-type]
    random = torch.Generator().manual_seed(seed)
    for method in names():
        radius = certifier(x, labels, method=method).radius
        assert bool((radius <= broken).all()), method
        reach = radius.clamp(max=10.0)[:, None, None]
        noise = torch.rand(len(x), 60, x.shape[1], generator=random, dtype=x.dtype) * 2 - 1
        noise[:, ::2] = noise[:, ::2].sign()
        if norm == "l2":
            noise = noise / noise.norm(dim=2, keepdim=True)
        points = x[:, None] + reach * noise
        points = points.clamp(0, 1) if norm == "boxed" else points
        outputs = layer(points.flatten(0, 1)).detach().reshape(*points.shape[:2], -1)
        own = outputs.gather(2, labels[:, None, None].expand(-1, 60, 1))[..., 0]
        others = outputs.scatter(2, labels[:, None, None].expand(-1, 60, 1), -torch.inf).max(2).values
        assert bool((own > others)[radius > 0].all()), method


def test_proofs_are_all_used() -> None:
    """The cascade reaches every kind of proof on some row, so the tests above attack them all."""
    seen: set[str] = set()
    for kind, seed in product(("full", "large"), range(12)):
        layer, x, labels = random_layer(kind, seed)
        found = Certifier(layer, fit_steps=10)(x, labels)
        seen |= set(found.method)
        if {"tangent", "caps"} <= seen:
            break
    assert {"tangent", "caps"} <= seen
    assert {row.name for row in ROWS} >= seen - {"misclassified"}

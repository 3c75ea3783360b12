"""Errors that a derivative knows of are charged: of its eigenvectors, and of products in single precision."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from certificate_layers import random_layer
from mlayer import MLayer
from mlayer.certificates import Certifier
from mlayer.certificates.bounds import caps, methods, quartic_tensor
from mlayer.certificates.bounds.of_pair import Bounds
from mlayer.certificates.bounds.quadratic_terms import BoxQuadratic
from mlayer.certificates.boxes import planes
from mlayer.certificates.boxes.enclosed import Enclosed
from mlayer.certificates.derivatives.spectral import SpectralPath, usable_eigenvectors
from mlayer.certificates.problem import constants as constants_module
from mlayer.certificates.problem.constants import evaluate
from mlayer.certificates.problem.coordinates import whiten
from mlayer.certificates.problem.expansion import Pair, Row
from mlayer.certificates.problem.fit import Fitted
from mlayer.certificates.problem.model import Model, log_norms


def pair_of(seed: int) -> Pair:
    layer, x, labels = random_layer("full", seed)
    row = Row(Certifier(layer, fit_steps=0)._model, x.numpy()[0], int(labels[0]))
    return row.pair((row.label + 1) % len(row.outputs))


@pytest.mark.parametrize("off", [1e-9, 1e-3])
def test_eigenvalues_that_are_off(off: float) -> None:
    """The derivatives are those of another matrix; its distance moves the terms of every order."""
    row = pair_of(7).row
    found = usable_eigenvectors(row.M)
    assert found is not None
    values, vectors, inverse = found
    path = SpectralPath(row.M, row.model.white.T, values + off, vectors, inverse)
    near = (vectors * (values + off)) @ inverse
    assert float(np.linalg.norm(row.M - near)) <= path.distance <= 1e3 * off * len(row.M)
    slack, pair = pair_of(7).tensor_slack(1.0, 2), pair_of(7)
    pair.row.derivatives = path
    assert pair.tensor_slack(1.0, 2) > slack


def test_the_error_of_the_quartic_form_is_in_its_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, form_of = pair_of(7), quartic_tensor.quartic_form
    fall = quartic_tensor.Quartic(pair, 1.0).fall

    def with_error(*arguments: Any) -> Any:
        form, error = form_of(*arguments)
        return form, error + 5.0

    monkeypatch.setattr(quartic_tensor, "quartic_form", with_error)
    assert quartic_tensor.Quartic(pair, 1.0).fall - fall == pytest.approx(5.0, rel=1e-6)


def test_coordinates_that_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 - e^x over 0 with a direction that is too short, by an error that is known: lemma 5."""
    real, off = whiten, 1e-3

    def whitened(*arguments: Any) -> Any:
        white = real(*arguments)
        lost = np.linalg.norm(np.tensordot(white.rows, off * white.T, 1), axis=(1, 2))
        return replace(white, T=white.T * (1 - off), error=white.error + lost)

    one = torch.ones(1, 1, dtype=torch.float64)
    layer = MLayer.from_weights(
        one[None], torch.stack([-one, 0 * one]), output_bias=torch.tensor([3.0, 0.0]).double()
    )
    monkeypatch.setattr(constants_module, "whiten", whitened)
    certifier = Certifier(layer, fit_steps=0)
    x, label = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([0])
    for method in methods.names():
        radius = float(certifier(x, label, method=method).radius[0])
        assert 0 < radius <= math.log(3), method
    asked = (math.log(3) * (1 + k * off / 8) for k in range(1, 9))
    assert not any(bool(certifier(x, label, eps=eps).certified[0]) for eps in asked)


def test_the_basis_counts_for_tangents_and_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of(7)
    bounds, eps = Bounds(pair), 0.05
    plain = bounds.tangent(bounds.third, eps)
    given: list[float] = []
    real = BoxQuadratic

    def recorded(*arguments: Any, **options: Any) -> Any:
        given.append(arguments[6] if len(arguments) > 6 else options.get("extra", 0.0))
        return real(*arguments, **options)

    monkeypatch.setattr(Pair, "curvature_of_basis", lambda *_: 100.0)
    assert Bounds(pair).tangent(bounds.third, eps) < plain - 0.03
    monkeypatch.setattr(caps, "BoxQuadratic", recorded)
    found = Bounds(pair).caps
    low, high = pair.row.interval(eps)
    elsewhere = pair_of(7)
    elsewhere.margin = 0.0  # the plane alone does not prove it
    found._view(found._again(elsewhere), bounds.second.box(eps), low, high, 1e-3 * pair.row.radius(eps))
    assert given == [100.0]


def test_a_gauge_whose_inverse_is_off() -> None:
    """Norms and logarithmic norms are those of the exact inverse of P."""
    random = np.random.default_rng(0)
    for seed in range(6):
        layer, x, labels = random_layer("full", seed)
        certifier = Certifier(layer, fit_steps=0)
        weights, n = certifier._model.weights, certifier._model.weights.n
        P = np.eye(n) + 0.3 * random.standard_normal((n, n))
        inverse = np.linalg.inv(P).astype(np.float64)
        fitted = Fitted(certifier.constants.w, P, inverse * (1 - 1e-9), np.zeros((n * n, n * n)))
        found, white = evaluate(weights, certifier.region.norm, fitted)
        assert found.gauge_error > 0
        flat = (P @ white.T @ inverse).reshape(len(white.T), -1)
        assert np.linalg.norm(flat, 2) <= found.delta_F
        assert np.linalg.cond(P) <= found.condition * (1 + 1e-9)
        row = Row(Model(weights, certifier.region, found, white), x.numpy()[0], int(labels[0]))
        for A in (row.M, row.M - 20 * np.eye(n)):
            in_gauge = P @ A @ inverse
            row.M, top = A, float(np.linalg.eigvalsh((in_gauge + in_gauge.T) / 2)[-1])
            for name in ("mu", "off", "M_norm", "M_gauge", "M_gauge_norm", "_log_norms"):
                vars(row).pop(name, None)
            assert top <= row.mu + 1e-12


@pytest.mark.parametrize("error", [0.0, 1e-3])
def test_logarithmic_norms_are_proved(error: float) -> None:
    """For two rows m is one if (m - a)(m - d) >= b^2 and m >= a, d, in rational numbers."""
    random = np.random.default_rng(1)
    M = random.standard_normal((200, 2, 2)) * 10.0 ** random.uniform(-3, 3, (200, 1, 1))
    enclosed = Enclosed(torch.from_numpy(M), torch.full((200,), error, dtype=torch.float64))
    of_boxes = [Fraction(v) - Fraction(error) for v in planes._growth_rate(enclosed).tolist()]
    for A, *norms in zip(M.tolist(), map(Fraction, log_norms(M).tolist()), of_boxes, strict=True):
        (a, b), (c, d) = [[Fraction(v) for v in row] for row in A]
        for m in norms:
            assert m >= max(a, d)
            assert (m - a) * (m - d) >= ((b + c) / 2) ** 2


def test_the_ball_of_a_cap_is_around_the_rounded_center(monkeypatch: pytest.MonkeyPatch) -> None:
    """Centers at x = 10^8 are rounded by more than the ball's radius; in y it is larger by the reach."""
    one = torch.ones(1, 1, dtype=torch.float64)
    layer = MLayer.from_weights(
        one[None], torch.stack([-one, 0 * one]), output_bias=torch.tensor([3.0, 0.0]).double(),
        embedding=one, embedding_bias=torch.tensor([-1e8]).double(),
    )  # fmt: skip
    row = Row(Certifier(layer, fit_steps=0)._model, np.array([1e8]), 0)
    row.model.white = replace(row.model.white, reach=2.0)
    found, radius, center = Bounds(row.pair(1)).caps, 1e-10, 0.123456789
    seen: list[tuple[float, float]] = []

    def view(_: Any, order: Any, __: Any, ___: Any, ____: Any, ball: float) -> caps.View:
        seen.append((float(order.pair.row.x[0]), ball))
        done = len(seen) > 1
        return caps.View(0.0 if done else 1.0, np.array([center]), radius, None)

    monkeypatch.setattr(caps.Caps, "_view", view)
    assert found.passes(0.5)
    (_, _), (x, ball) = seen
    moved_by = abs(Fraction(x) - 10**8 - Fraction(center)) * Fraction(math.sqrt(row.model.white.w[0]))
    assert moved_by > 10 * radius
    assert ball >= 2 * (radius + float(moved_by)) * (1 - 1e-12)

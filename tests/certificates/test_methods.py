"""The table of bounds: every list of bounds derives from it; a new one is one file and one row."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType
from typing import Any, Literal

import pytest
import torch

from certificate_layers import random_layer
from mlayer.certificates import Certifier, attack, certify
from mlayer.certificates.bounds import methods
from mlayer.certificates.bounds.of_pair import Bounds
from mlayer.certificates.problem.expansion import Row
from mlayer.certificates.problem.region import make_region
from mlayer.certificates.solve.strategy import certified_at, radius_of
from mlayer.errors import ArgumentError


def test_every_row_has_its_file() -> None:
    for row in methods.METHODS:
        module = row.load(row.norms[0])
        if row.closed_form:
            assert callable(getattr(module, f"{row.name}_radius"))
        elif row.offered:
            assert callable(module.build)
        assert row.norms
        assert set(row.norms) <= {"linf", "l2"}
    assert methods.names()[-1] == "best"
    costs = [row.cost for row in methods.METHODS]
    assert costs == sorted(costs)


def test_a_new_bound_is_one_file_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with `build` and a row: certify, its errors, the strategy's order and rigorous know it."""

    class Halved:
        """Half of the first-order bound less half of the margin's slack: a bound that is no better."""

        terms = 1

        def __init__(self, first: Any) -> None:
            self._first, self.pair = first, first.pair

        def lower(self, eps: float) -> float:
            return float(self._first.lower(2 * eps))

    module = ModuleType("mlayer.certificates.bounds.halved")
    module.build = lambda bounds: Halved(bounds["first_order"])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = methods.Method("halved", "halved", 0.1, ("linf", "l2"), False, True, 2)
    layer, x, labels = random_layer("full", 5)
    with pytest.raises(ArgumentError, match="method must be"):
        certify(layer, x, labels, method="halved", fit_steps=0)
    monkeypatch.setattr(methods, "METHODS", (*methods.METHODS[:3], row, *methods.METHODS[3:]))
    assert "halved" in methods.names()
    first = certify(layer, x, labels, method="first_order", fit_steps=0).radius
    found = certify(layer, x, labels, method="halved", fit_steps=0).radius
    torch.testing.assert_close(found, first / 2, rtol=1e-3, atol=0)
    # No better than the others: "best" must not take it.
    best = certify(layer, x, labels, fit_steps=0)
    assert (best.radius >= first).all()
    # Made for one norm only, it is refused for the other.
    row = methods.Method("halved", "halved", 0.1, ("linf",), False, True, 2)
    monkeypatch.setattr(methods, "METHODS", (*methods.METHODS[:3], row, *methods.METHODS[4:]))
    with pytest.raises(ArgumentError, match=r"method must be one of .*; got 'halved'\. For l2"):
        certify(layer, x, labels, method="halved", norm="l2", fit_steps=0)
    assert "halved" not in best.method
    checked = certify(layer, x[:1], labels[:1], method="halved", fit_steps=0, rigorous=True)
    torch.testing.assert_close(checked.radius, found[:1], rtol=1e-2, atol=0)


def test_a_bound_made_for_one_norm_proves_nothing_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a bound is taken from the table, not only where its name is checked."""
    layer, x, labels = random_layer("full", 5)
    model = Certifier(layer, norm="l2", fit_steps=0)._model
    row = Row(model, x[0].numpy(), int(labels[0]))
    bounds = Bounds(row.pair(row.runner_up))
    for use in (lambda: bounds.tangent(bounds.second, 0.1), lambda: bounds.caps, lambda: bounds.deep_caps):
        with pytest.raises(ArgumentError, match="is made for, linf; got 'l2'"):
            use()
    boxed = make_region(layer.in_features, "linf", None, None)
    with pytest.raises(ArgumentError, match="region must be of the norm of the model's constants, 'l2'"):
        Row(model, x[0].numpy(), int(labels[0]), boxed)
    every = tuple(dataclasses.replace(method, norms=("linf",)) for method in methods.METHODS)
    monkeypatch.setattr(methods, "METHODS", every)
    for method in (*(one.name for one in every if one.offered), "best"):
        row = Row(model, x[0].numpy(), int(labels[0]))
        with pytest.raises(ArgumentError, match="is made for, linf; got 'l2'"):
            radius_of(row, method)
        with pytest.raises(ArgumentError, match="is made for, linf; got 'l2'"):
            certified_at(row, method, 0.1)
        for eps in (None, 0.1):
            with pytest.raises(ArgumentError, match=r"is made for, linf|method must be one of"):
                certify(layer, x, labels, norm="l2", method=method, eps=eps, fit_steps=0)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_best_uses_a_new_bound_that_reaches_further(
    monkeypatch: pytest.MonkeyPatch, norm: Literal["linf", "l2"]
) -> None:
    """A bound that knows more than all others (here: it just claims so) settles radii and decisions."""

    class Claims:
        """Positive up to ten times the largest radius of the others: no bound at all, but one that wins."""

        def __init__(self, first: Any, reach: float) -> None:
            self.pair, self._reach = first.pair, reach

        def lower(self, eps: float) -> float:
            return self._reach - eps

    layer, x, labels = random_layer("full", 5)
    before = certify(layer, x, labels, norm=norm, fit_steps=0)
    reach = 10 * float(before.radius.max())
    module = ModuleType("mlayer.certificates.bounds.claims")
    module.build = lambda bounds: Claims(bounds["first_order"], reach)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = methods.Method("claims", "claims", 1000.0, (norm,), False, True, 2)
    monkeypatch.setattr(methods, "METHODS", (*methods.METHODS, row))
    found = certify(layer, x, labels, norm=norm, fit_steps=0)
    right = found.correct
    assert {name for name, good in zip(found.method, right, strict=True) if good} == {"claims"}
    torch.testing.assert_close(
        found.radius[right], torch.full_like(found.radius[right], reach), rtol=1e-3, atol=0
    )
    # Decisions too, at an eps that no other bound reaches and no attack breaks: where a point that breaks the
    # row is found, in float64, nobody looks for a proof.
    broken = attack(layer, x, labels, norm=norm).radius
    gap = torch.where(right, broken - before.radius, 0.0)
    k = int(gap.argmax())
    eps = float(before.radius[k] + gap[k] / 2)
    with monkeypatch.context() as without:
        without.setattr(methods, "METHODS", methods.METHODS[:-1])
        assert not certify(layer, x[k : k + 1], labels[k : k + 1], norm=norm, fit_steps=0, eps=eps).certified
    assert certify(layer, x[k : k + 1], labels[k : k + 1], norm=norm, fit_steps=0, eps=eps).certified

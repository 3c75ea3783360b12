"""Every constant of a bound matters where the bound is exact: weakened by 5 %, a certificate is broken.

The model is 3 - exp(x) against 0: one input, a 1 x 1 matrix, all terms of the series of one sign at the
dangerous end. Its true radius at 0 is log 3, and each bound reaches it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch

from mlayer import MLayer
from mlayer.certificates import Certifier
from mlayer.certificates.bounds import methods, remainder, second_order, third_order
from mlayer.certificates.bounds import quadratic_terms as quadratic
from mlayer.certificates.problem.expansion import Pair
from mlayer.certificates.problem.margins import Margins
from mlayer.certificates.problem.model import Model, ReadoutNorms, growth_of

TRUE = math.log(3)
ORDERS = [row.name for row in methods.taylor_bounds()]


def radius(method: str, norm: str = "linf", change: Callable[[Certifier], None] = lambda _: None) -> float:
    readout = torch.tensor([[[-1.0]], [[0.0]]], dtype=torch.float64)
    layer = MLayer.from_weights(
        torch.ones(1, 1, 1, dtype=torch.float64), readout, output_bias=torch.tensor([3.0, 0.0]).double()
    )
    certifier = Certifier(layer, norm=norm, fit_steps=0)  # type: ignore[arg-type]
    change(certifier)
    found = certifier(torch.zeros(1, 1).double(), torch.tensor([0]), method=method)
    return float(found.radius[0])


def scaled(function: Callable[..., float], factor: float) -> Callable[..., float]:
    return lambda *arguments: factor * function(*arguments)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("method", [*ORDERS, "best"])
def test_exact_where_it_should_be(method: str, norm: str) -> None:
    assert TRUE * (1 - 1e-3) <= radius(method, norm) <= TRUE


@pytest.mark.parametrize("method", ORDERS)
def test_delta_2(method: str) -> None:
    def change(certifier: Certifier) -> None:
        model = certifier._model
        model.constants = dataclasses.replace(
            model.constants, delta_2=0.95 * model.constants.delta_2, delta_F=0.95 * model.constants.delta_F
        )

    assert radius(method, change=change) > TRUE


@pytest.mark.parametrize("method", ORDERS)
def test_growth(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Margins, "growth", property(lambda self: 0.95 * growth_of(self.row.mu)))
    assert radius(method) > TRUE


@pytest.mark.parametrize("method", ORDERS)
def test_nuclear_norm(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compute = Model.readout_norms

    def weakened(self: Model, label: int) -> ReadoutNorms:
        norms = compute(self, label)
        return dataclasses.replace(norms, nuclear=0.95 * norms.nuclear, factor=0.95 * norms.factor)

    monkeypatch.setattr(Model, "readout_norms", weakened)
    assert radius(method) > TRUE


@pytest.mark.parametrize("method", ["second_order", "third_order"])
def test_readout_remainder(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_order, "norm_remainder", lambda *_: math.inf)
    assert TRUE * (1 - 2e-3) <= radius(method) <= TRUE
    call = remainder.ReadoutRemainder.__call__
    monkeypatch.setattr(remainder.ReadoutRemainder, "__call__", scaled(call, 0.95))
    assert radius(method) > TRUE


@pytest.mark.parametrize("method", ORDERS)
def test_linear_and_quadratic_terms(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pair, "linear_term", scaled(Pair.linear_term, 0.95))
    monkeypatch.setattr(quadratic.BoxQuadratic, "lower", scaled(quadratic.BoxQuadratic.lower, 0.95))
    assert radius(method) > TRUE


def test_cubic(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flat_norm", "symmetric_norm"):
        monkeypatch.setattr(third_order, name, scaled(getattr(third_order, name), 0.95))
    assert radius("third_order") > TRUE

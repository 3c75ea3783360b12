"""Certificates that were false once, each with the exact function's true radius beside it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import mlayer
from certificate_truth import changes_class, step_to, stored
from mlayer import MLayer
from mlayer.certificates import Certifier, certify
from mlayer.certificates.bounds import methods
from mlayer.errors import ArgumentError

METHODS: tuple[Any, ...] = methods.names()


def layer_of(U: Any, T: Any, S: Any, V: Any, *, B: Any = None, dtype: torch.dtype = torch.float64) -> MLayer:
    """A layer with these weights; U is (features, inputs), or None."""

    def tensor(values: Any) -> Tensor | None:
        return None if values is None else torch.tensor(np.asarray(values), dtype=torch.float64).to(dtype)

    generators, readout = tensor(T), tensor(S)
    assert generators is not None
    assert readout is not None
    return MLayer.from_weights(
        generators, readout, embedding=tensor(U), matrix_bias=tensor(B), output_bias=tensor(V)
    )


def scalar(
    U: Any, T: list[float], S: list[float], V: list[float], dtype: torch.dtype = torch.float64
) -> MLayer:
    """The same with 1 x 1 matrices."""
    return layer_of(U, [[[t]] for t in T], [[[s]] for s in S], V, dtype=dtype)


def certified(layer: MLayer, label: int, x: list[float] | None = None, **options: Any) -> float:
    """The radius, which must not be beyond a point that changes the class."""
    start = [0.0] * layer.in_features if x is None else x
    options = {"fit_steps": 0, **options}
    rows = torch.tensor([start], dtype=torch.float64)
    found = certify(layer, rows, torch.tensor([label]), **options)
    return float(found.radius[0])


def one_sided_truth(layer: MLayer, label: int, radius: float) -> None:
    """Both corners along the diagonal, at the radius: exact evaluation keeps the class."""
    weights, m = stored(layer), layer.in_features
    size = min(radius, 1e6)
    for sign in (-1.0, 1.0):
        assert not changes_class(weights, step_to([0.0] * m, [sign] * m, size, [1.0] * m), label)


# Layers of 1 x 1 matrices whose features nearly cancel: label 0 is broken at a true radius that is known.
CANCELING = {
    # A_i = 1e9 - 1e9 (1 + 2^-30), three inputs: the Gram matrix of the rows cancels to 0.
    "gram": scalar([[1e9] * 3, [-1e9] * 3], [1.0, 1.0 + 2.0**-30], [1.0, 2.0], [0.0, -1.5]),
    # The same in float32: (1 + 2^-14)(1 - 2^-14) - 1.
    "gram, float32": scalar(
        [[2.0**28 * (1 + 2.0**-14)] * 3, [-(2.0**28)] * 3],
        [1.0 - 2.0**-14, 1.0],
        [1.0, 2.0],
        [0.0, -1.5],
        torch.float32,
    ),
    # One input, two features: U T is formed, and rounds to 0 where 0.24 is true.
    "product": scalar([[2.0**57 * 0.1], [2.0**57 * -0.03]], [0.3, 1.0], [1.0, 2.0], [0.0, -1.5]),
    # Squares vanish: rows of 1e-170 beside a generator of zeros.
    "underflow": scalar([[1.0] * 3, [1e-170] * 3], [0.0, 1.0], [1.0, 2.0], [0.0, -1.5]),
}


@pytest.mark.parametrize("name", CANCELING)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_features_that_cancel(name: str, method: Any, norm: Any) -> None:
    layer = CANCELING[name]
    radius = certified(layer, 0, method=method, norm=norm)
    assert radius < math.inf
    per_input = radius if norm == "linf" else radius / math.sqrt(layer.in_features) * (1 - 1e-15)
    if name != "underflow":
        one_sided_truth(layer, 0, per_input)
    assert radius <= 0.7 / 1e-170


@pytest.mark.parametrize("name", CANCELING)
@pytest.mark.parametrize("method", ["paper", "first_order", "best"])
def test_features_that_cancel_rigorously(name: str, method: Any) -> None:
    layer = CANCELING[name]
    radius = certified(layer, 0, method=method, rigorous=True)
    assert radius < math.inf
    if name != "underflow":
        one_sided_truth(layer, 0, radius)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_units_so_small_that_products_vanish(method: Any, norm: Any) -> None:
    """3 - exp(u t x) against 0, x in units s: u s is 0 or denormal, and t as large as u s is small."""
    for u, s, t in ((1e-170, 1e-170, 1e300), (1e-160, 1e-170, 1e305), (1.45 * 2.0**-537, 2.0**-537, 1e306)):
        layer = scalar([[u], [1.0]], [t, 0.0], [-1.0, 0.0], [3.0, 0.0])
        truth = math.log(math.log(3)) - sum(map(math.log, (u, s, t)))
        radius = certified(layer, 0, method=method, norm=norm, scale=s)
        assert radius == 0 or math.log(radius) < truth


def test_canceled_products_within_wider_embeddings() -> None:
    """More inputs than features: slopes are covered by what the sum would be without cancellation."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        size = 2.0 ** rng.integers(20, 50)
        a, t = rng.uniform(0.5, 1.5, 2)
        U = [[size * a] * 3, [-size * a * t] * 3]
        layer = scalar(U, [t, 1.0], [1.0, 2.0], [0.0, -1.5])
        for method in ("first_order", "second_order", "best"):
            radius = certified(layer, 0, method=method)
            assert radius < math.inf, seed
            one_sided_truth(layer, 0, radius)


def test_a_rival_is_dropped_only_as_far_as_it_was_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A float64 evaluation that wrongly says "broken" must not decide about another rival.

    Margins 0.74 - x + x^2 / 10 over class 1 (broken at 0.805) and 0.75 + x over class 2 (broken at -0.75).
    """
    T = [[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]]  # exp(x T) has x and x^2 / 2 in its first row
    S = np.zeros((3, 3, 3))
    S[1, 0, 1], S[1, 0, 2], S[2, 0, 1] = 1.0, -0.2, -1.0
    layer = layer_of([[1.0]], T, S.tolist(), [0.0, -0.74, -0.75])
    from mlayer.certificates.solve import corner, strategy

    real, called = corner.corner_radius, []

    def wrong(pair: Any, guess: float) -> float:
        called.append(pair.rival)
        return 0.7 if called == [1] else real(pair, guess)

    monkeypatch.setattr(strategy, "corner_radius", wrong)
    assert 0.74 < certified(layer, 0) <= 0.75
    assert called[0] == 1


def test_rows_that_no_step_changes_are_recognized_by_zeros_alone() -> None:
    layer = scalar([[1.0] * 3, [0.0] * 3], [0.0, 1.0], [1.0, 2.0], [0.0, -1.5])
    for rigorous in (False, True):
        assert certified(layer, 0, rigorous=rigorous) == math.inf
    # An embedding that vanishes in float64 only after multiplication is no zero.
    tiny = scalar([[1e-200] * 4, [1.0] * 4, [0.0] * 4], [1e-200, 0.0, 1.0], [1.0, 2.0], [0.0, -1.5])
    assert certified(tiny, 0, method="first_order") < math.inf


@pytest.mark.parametrize("method", METHODS)
def test_saturated_layers(method: Any) -> None:
    """B = -60: the margin is that of the biases until x is large. No overflow, no radius of 0."""
    one = np.eye(2)
    layer = layer_of([[1.0]], [one], [0 * one, one], [1.0, 0.0], B=-60 * one)
    x, label = torch.zeros(1, 1).double(), torch.tensor([0])
    found = certify(layer, x.expand(3, 1), torch.tensor([0, 0, 1]), method=method, fit_steps=0)
    true = 60 + math.log(0.5)  # 2 e^(x - 60) = 1
    assert found.radius[2] == 0
    assert 0 < float(found.radius[0]) <= true
    if not methods.is_closed_form(method):
        assert float(found.radius[0]) > 45
    at = certify(layer, x, label, method=method, eps=45.0, fit_steps=0)
    assert bool(at.certified[0]) or method != "best"
    beyond = certify(layer, x, label, method=method, eps=60.0, fit_steps=0)
    assert not bool(beyond.certified[0])


def test_saturated_the_other_way() -> None:
    """The corner lies where exponentials overflow."""
    one = np.eye(2)
    layer = layer_of([[700.0]], [one], [0 * one, one], [1.0, 0.0], B=-60 * one)
    for method in METHODS:
        assert 0 <= certified(layer, 0, method=method) <= (60 + math.log(0.5)) / 700


def test_lipschitz_radius_is_comparable_to_the_papers() -> None:
    """It used to be smaller by e^delta_in: 1e-98."""
    rng = torch.Generator().manual_seed(0)
    layer = MLayer(40, 3, matrix_size=6, embedding_size=8, dtype=torch.float64, generator=rng)
    with torch.no_grad():
        layer.free_generators.mul_(30)
    x = torch.rand(4, 40, generator=rng, dtype=torch.float64)
    labels = layer(x).argmax(1)
    paper = certify(layer, x, labels, method="paper").radius
    lipschitz = certify(layer, x, labels, method="lipschitz").radius
    assert bool((lipschitz <= paper * (1 + 1e-9)).all())
    assert bool((lipschitz >= paper / 3).all())


@pytest.mark.parametrize("method", METHODS)
def test_radius_zero_is_certified_where_the_margin_is_positive(method: Any) -> None:
    layer = scalar([[1.0] * 3], [1.0], [1.0, 2.0], [0.0, -1.5])
    x = torch.tensor([[0.0] * 3, [5.0] * 3], dtype=torch.float64)
    found = certify(layer, x, torch.tensor([0, 0]), method=method, eps=0.0, fit_steps=0)
    assert found.certified.tolist() == [True, False]
    assert found.certified_accuracy(0.0) == 0.5


def test_a_gauge_of_large_condition_does_not_hide_rounding() -> None:
    """Outputs near 0 computed from large entries: the gauge makes the entries small, not their rounding."""
    big = 2.0**40
    # exp([[0, big], [0, 0]] + x I) has entries e^x and big e^x; margin (1/3 big - fl(1/3 big) ...) tiny.
    third = 1.0 / 3.0
    T = [[[1.0, 0.0], [0.0, 1.0]]]
    B = [[third, big], [0.0, third]]
    S = [[[big * third, -third], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]
    layer = layer_of([[1.0]], T, S, [0.0, 2.0**-30], B=B)
    for sign in (1.0, -1.0):
        with torch.no_grad():
            layer.output_bias.copy_(torch.tensor([sign * 2.0**-30, 0.0]))  # type: ignore[union-attr]
        certifier = Certifier(layer, fit_steps=0)
        P = np.diag([2.0**-20, 2.0**20])
        certifier = _with_gauge(certifier, P, np.diag([2.0**20, 2.0**-20]))
        label = int(sign < 0)
        radius = float(certifier(torch.zeros(1, 1).double(), torch.tensor([label])).radius[0])
        one_sided_truth(layer, label, radius)


def _with_gauge(certifier: Certifier, P: Any, P_inverse: Any) -> Certifier:
    from mlayer.certificates.problem.constants import evaluate
    from mlayer.certificates.problem.fit import Fitted
    from mlayer.certificates.problem.model import Model

    model, constants = certifier._model, certifier.constants
    n = len(P)
    fitted = Fitted(constants.w, np.asarray(P), np.asarray(P_inverse), np.zeros((n * n, n * n)))
    changed, white = evaluate(model.weights, model.region.norm, fitted)
    certifier._model = Model(model.weights, model.region, changed, white)
    return certifier


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_denormal_weights_count_where_torch_takes_them_as_zero(dtype: torch.dtype, flushing: Any) -> None:
    """2 - exp(u t x) against 0: u is denormal in the layer's precision, and t as large."""
    u, t = (1e-40, 1e25) if dtype == torch.float32 else (5e-309, 1e300)
    layer = scalar([[u]], [t], [-1.0, 0.0], [2.0, 0.0], dtype)
    exact, x = stored(layer), torch.zeros(1, 1, dtype=dtype)
    reach = math.log(2) / (exact.U[0][0] * exact.T[0][0][0])
    box = 2 * reach * torch.ones(1, 1).double()
    flushing()
    for rigorous in (False, True):
        found = certify(layer, x, torch.tensor([0]), rigorous=rigorous, fit_steps=0)
        assert 0 < float(found.radius[0]) <= reach * (1 + 1e-12)
    assert float(mlayer.bounds(layer, -box, box).lower[0, 0]) <= 2 - math.exp(2 * math.log(2))
    assert math.ulp(0.0) == 0.0  # as it was before


def test_inputs_that_another_thread_flushes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Tensor.to

    def flushed(tensor: Tensor, *args: Any, **options: Any) -> Tensor:
        copy = real(tensor, *args, **options)
        return torch.where(copy.abs() < 1e-38, 0.0, copy) if tensor.dtype == torch.float32 else copy

    x = torch.tensor([[1e-40], [0.0]])
    from mlayer.certificates import arguments

    assert arguments.as_float64("x", x)[0, 0] > 0
    monkeypatch.setattr(Tensor, "to", flushed)
    with pytest.raises(ArgumentError, match="x must be of numbers that float64 keeps"):
        arguments.as_float64("x", x)


def test_labels_that_a_callback_overwrites_stay_those_of_the_call() -> None:
    """A later chunk would be certified for other classes."""
    layer = scalar([[1.0]], [1.0], [1.0, 0.0], [0.0, 0.5])
    x, labels = torch.zeros(130, 1, dtype=torch.float64), torch.zeros(130, dtype=torch.int64)

    def overwrite(_: int, __: int) -> None:
        labels.fill_(1)

    found = certify(layer, x, labels, eps=0.1, fit_steps=0, progress=overwrite)
    assert bool(found.certified.all())

"""Numbers near the ends of float64: the same answers as at scale 1, or a refusal that names the cause."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlayer.errors import ArgumentError
from mlayer.estimators import MLayerClassifier, MLayerRegressor
from mlayer.estimators.rows import scaled_weights, standard_rows
from mlayer.estimators.scaling import Scale, raw_layer
from mlayer.nn import MLayer

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, (40, 2))
Y = X[:, 0] * X[:, 1] + 0.3 * X[:, 0]
QUICK: dict[str, Any] = {"alpha": 0.01, "max_iter": 15, "random_state": 0}
REGRESSION: dict[str, Any] = {**QUICK, "periodic": False}


@pytest.fixture(scope="module")
def plain() -> NDArray[np.float64]:
    """The predictions of a fit at scale 1."""
    predicted: NDArray[np.float64] = MLayerRegressor(**REGRESSION).fit(X, Y).predict(X)
    return predicted


@pytest.mark.parametrize(
    ("of_x", "of_y"), [(660, 0), (-660, -660), (0, 1020), (1023, 0), (-960, 0), (0, -960)]
)
def test_powers_of_two_change_nothing(of_x: int, of_y: int, plain: NDArray[np.float64]) -> None:
    """They are exact, so that the answers are the same to the bit."""
    model = MLayerRegressor(**REGRESSION).fit(np.ldexp(X, of_x), np.ldexp(Y, of_y))
    assert np.array_equal(np.ldexp(model.predict(np.ldexp(X, of_x)), -of_y), plain)


@pytest.mark.parametrize(("of_x", "of_y"), [(1e200, 1.0), (1e-200, 1e-200), (1.0, 1e307)])
def test_powers_of_ten_change_only_rounding(of_x: float, of_y: float, plain: NDArray[np.float64]) -> None:
    model = MLayerRegressor(**REGRESSION).fit(X * of_x, Y * of_y)
    assert model.predict(X * of_x) / of_y == pytest.approx(plain, abs=1e-7)
    raw = model.to_mlayer()(torch.from_numpy(X * of_x)).detach().numpy()[:, 0]
    assert raw / of_y == pytest.approx(model.predict(X * of_x) / of_y, abs=1e-9)


def test_classifier_with_huge_inputs() -> None:
    labels = Y > 0
    plain = MLayerClassifier(**QUICK).fit(X, labels).predict_proba(X)
    huge = MLayerClassifier(**QUICK).fit(X * 1e200, labels).predict_proba(X * 1e200)
    assert huge == pytest.approx(plain, abs=1e-6)


@given(
    st.lists(
        st.tuples(st.floats(-1, 1).map(lambda v: round(v, 3)), st.integers(1, 5)), min_size=2, max_size=8
    ),
    st.integers(-1000, 1020),
)
def test_scale_against_rational_arithmetic(table: list[tuple[float, int]], exponent: int) -> None:
    values = np.ldexp(np.array([[row[0]] for row in table]), exponent)
    weight = np.array([float(row[1]) for row in table])
    exact, total = [Fraction(v) for v in values[:, 0].tolist()], sum(row[1] for row in table)
    mean = sum((v * row[1] for v, row in zip(exact, table, strict=True)), Fraction(0)) / total
    square = sum(((v - mean) ** 2 * row[1] for v, row in zip(exact, table, strict=True)), Fraction(0)) / total
    unit = Fraction(2) ** exponent
    scale = Scale.of(values, weight, "X")
    assert float(Fraction(scale.mean[0]) / unit) == pytest.approx(float(mean / unit), abs=1e-13)
    if square:
        expected = math.sqrt(square / unit**2)
        assert float(Fraction(scale.deviation[0]) / unit) == pytest.approx(expected, rel=1e-9)
        assert scale.undo(scale.apply(values)) / 2.0**exponent == pytest.approx(
            values / 2.0**exponent, abs=1e-13
        )


def test_the_whole_range_has_a_scale() -> None:
    """The difference of the two would overflow."""
    values = np.finfo(np.float64).max * np.array([[-1.0], [1.0]])
    scale = Scale.of(values, np.ones(2), "X")
    assert scale.apply(values) == pytest.approx(np.array([[-1.0], [1.0]]))
    assert scale.undo(scale.apply(values)) == pytest.approx(values)


def test_a_huge_constant_is_measured_by_its_size() -> None:
    inputs = np.column_stack([X, np.full(40, 1e200)])
    model = MLayerRegressor(**REGRESSION).fit(inputs, Y)
    raw = model.to_mlayer()(torch.from_numpy(inputs)).detach().numpy()[:, 0]
    assert raw == pytest.approx(model.predict(inputs), abs=1e-9)


@pytest.mark.parametrize(("of_x", "of_y", "name"), [(1e-310, 1.0, "X"), (1.0, 1e-320, "y")])
def test_too_small_to_be_precise(of_x: float, of_y: float, name: str) -> None:
    words = rf"column 0 of {name} must be constant or of a standard deviation .*; got \d.*e-3\d\d. Multiply"
    with pytest.raises(ArgumentError, match=words):
        MLayerRegressor(**REGRESSION).fit(X * of_x, Y * of_y)


def test_a_batch_beyond_the_scale_of_the_first() -> None:
    model = MLayerRegressor(**REGRESSION).partial_fit(X * 1e-200, Y)
    before = model.predict(X * 1e-200)
    with pytest.raises(ArgumentError, match=r"column 1 of X must be within 1.8e\+308 standard deviations"):
        model.partial_fit(X * [1e-200, 1e200], Y)
    assert np.array_equal(model.predict(X * 1e-200), before)


def test_predictions_beyond_float64_are_not_called_far_rows() -> None:
    model = MLayerRegressor(**REGRESSION).fit(X, Y * 1.3e308)
    with pytest.warns(
        RuntimeWarning, match=r"predictions are beyond 1.8e\+308, the largest number"
    ) as caught:
        model.predict(1.5 * X)
    assert not any("far from" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("embedding_size", [None, 2])
@pytest.mark.parametrize(("name", "of_x", "of_y"), [("X", 1e-308, 1.0), ("y", 1.0, 1e308)])
def test_a_layer_that_float64_cannot_hold(
    embedding_size: int | None, name: str, of_x: float, of_y: float
) -> None:
    layer = MLayer(1, 1, 2, embedding_size, dtype=torch.float64)
    for weights in layer.parameters():
        torch.nn.init.constant_(weights, 5.0)
    zero = np.zeros(1)
    with pytest.raises(ArgumentError, match=f"the units of {name} must be such that float64 holds"):
        raw_layer(layer, Scale(zero, np.array([of_x])), Scale(zero, np.array([of_y])))


@pytest.mark.parametrize("weight", [2.0**1023, 2.0**-1070])
@pytest.mark.parametrize("kind", [MLayerClassifier, MLayerRegressor])
def test_only_ratios_of_weights_count(kind: Any, weight: float) -> None:
    ones = np.ones(40)
    ones[:20] = 0.5
    settings = QUICK | ({"class_weight": "balanced"} if kind is MLayerClassifier else {"periodic": False})
    y: NDArray[Any] = Y > 0 if kind is MLayerClassifier else Y
    plain = kind(**settings).fit(X, y, sample_weight=ones).predict(X)
    assert np.array_equal(kind(**settings).fit(X, y, sample_weight=ones * weight).predict(X), plain)


def test_class_weights_near_the_largest_number() -> None:
    labels = (Y > 0).astype(int)
    plain = MLayerClassifier(class_weight={0: 1.0, 1: 0.5}, **QUICK).fit(X, labels)
    huge = MLayerClassifier(class_weight={0: 2.0**1023, 1: 2.0**1022}, **QUICK).fit(X, labels)
    assert np.array_equal(huge.predict_proba(X), plain.predict_proba(X))
    with pytest.raises(ArgumentError, match=r"class_weight must be finite, not negative .*from -1 to 1"):
        MLayerClassifier(class_weight={0: -1.0, 1: 1.0}, **QUICK).fit(X, labels)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_one_row_of_overwhelming_weight(solver: str) -> None:
    weight = np.ones(40)
    weight[3] = 1e308
    model = MLayerRegressor(solver=solver, early_stopping=True, **REGRESSION)
    assert model.fit(X, Y, sample_weight=weight).predict(X[3:4]) == pytest.approx(Y[3:4], abs=0.1)


def test_weights_that_cannot_be() -> None:
    for weight in ([0.0, 0.0], [np.inf, 1.0], [-1.0, 1.0], [np.nan, 1.0]):
        with pytest.raises(ArgumentError, match="sample_weight must be finite, not negative and not all 0"):
            scaled_weights(np.array(weight), "sample_weight")
    assert len(standard_rows(X[:2], Y[:2], np.array([1e308, 5e-324]))) == 1

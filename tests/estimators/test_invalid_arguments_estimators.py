"""A call that is refused leaves a fitted estimator as it was, and an unfitted one unfitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from mlayer.estimators import MLayerClassifier, MLayerRegressor

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, (30, 2))
WIDE = np.column_stack([X, X])
Y = (X[:, 0] > 0).astype(int)
QUICK: dict[str, Any] = {"alpha": 0.01, "max_iter": 5, "random_state": 0}
NEGATIVE = np.full(30, -1.0)


def _public(model: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


def _check_unharmed(model: Any, call: Any, words: str, data: Any = X) -> None:
    before, p = _public(model), model.predict(data)
    with pytest.raises(ValueError, match=words):
        call(model)
    after = _public(model)
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert np.array_equal(after[name], value), name
    assert model.predict(data).shape == p.shape
    assert np.array_equal(model.predict(data), p)


def test_partial_fit_with_more_targets() -> None:
    model = MLayerRegressor(**QUICK).fit(X, Y)
    _check_unharmed(model, lambda m: m.partial_fit(X, np.column_stack([Y, Y])), "1 outputs, as in")
    assert model.n_outputs_ == 1


@pytest.mark.parametrize("kind", [MLayerClassifier, MLayerRegressor])
@pytest.mark.parametrize("warm_start", [True, False])
def test_fit(kind: Any, warm_start: bool) -> None:
    model = kind(warm_start=warm_start, **QUICK).fit(X, Y)
    if warm_start:
        _check_unharmed(model, lambda m: m.fit(WIDE, Y), "2 inputs and . outputs, as in")
    _check_unharmed(model, lambda m: m.fit(WIDE, Y, sample_weight=NEGATIVE), "egative")
    _check_unharmed(model, lambda m: m.fit(WIDE, Y[:7]), "inconsistent numbers")
    _check_unharmed(
        model, lambda m: m.set_params(matrix_size=-1).fit(WIDE, Y * 3), "matrix_size|as in the fit before"
    )


@pytest.mark.parametrize("kind", [MLayerClassifier, MLayerRegressor])
def test_feature_names(kind: Any) -> None:
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = kind(**QUICK).fit(frame, Y)
    other = pd.DataFrame(WIDE, columns=["c", "d", "e", "f"])
    _check_unharmed(model, lambda m: m.fit(other, Y, sample_weight=NEGATIVE), "egative", frame)
    assert list(model.feature_names_in_) == ["a", "b"]


def test_classes() -> None:
    model = MLayerClassifier(warm_start=True, **QUICK).fit(X, Y)
    _check_unharmed(model, lambda m: m.fit(X, Y + 5), "as in the fit before")
    _check_unharmed(model, lambda m: m.partial_fit(X, Y, classes=[0, 1, 2]), "the same in every call")
    _check_unharmed(model, lambda m: m.partial_fit(X, Y + 5), "y must be of the classes")
    model.warm_start = False
    _check_unharmed(model, lambda m: m.set_params(alpha=-1.0).fit(X, Y + 5), "alpha must")


@pytest.mark.parametrize("kind", [MLayerClassifier, MLayerRegressor])
def test_an_unfitted_one_stays_unfitted(kind: Any) -> None:
    model = kind(**(QUICK | {"matrix_size": -1}))
    first = {"classes": [0, 1]} if kind is MLayerClassifier else {}
    for call in (lambda: model.fit(X, Y), lambda: model.partial_fit(X, Y, **first)):
        with pytest.raises(ValueError, match="matrix_size"):
            call()
        with pytest.raises(NotFittedError):
            model.predict(X)
        assert not hasattr(model, "n_features_in_")
    model.set_params(matrix_size=3).partial_fit(WIDE, Y, **first)
    assert model.predict(WIDE).shape == (30,)


def test_an_interrupted_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    model = MLayerRegressor(**QUICK).fit(X, Y)
    p = model.predict(X)
    monkeypatch.setattr("mlayer.estimators.base.fit_layer", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(WIDE, np.column_stack([Y, Y]))
    assert np.array_equal(model.predict(X), p)

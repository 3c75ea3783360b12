"""A linear model where it predicts held-out rows no worse than a layer: many columns, few rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.metrics import log_loss

from mlayer.estimators import MLayerClassifier, MLayerRegressor
from mlayer.estimators import linear as module
from mlayer.estimators.fitting import Tensors
from mlayer.estimators.linear import best_linear, best_logistic
from mlayer.numerics.arrays import Array
from mlayer.tables import Plan, fit_table


def wide(rows: int, seed: int = 0) -> tuple[Array, Array]:
    """60 columns, of which four count; noise of deviation 1."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(rows, 60))
    return X, 2 * X[:, 0] - 1.5 * X[:, 3] + X[:, 7] + 0.6 * X[:, 20] + draw.normal(size=rows)


def test_many_columns_and_few_rows() -> None:
    X, y = wide(1300)
    model = MLayerRegressor(random_state=0).fit(X[:300], y[:300])
    assert model.linear_
    error = np.sqrt(np.square(model.predict(X[300:]) - y[300:]).mean())
    lasso = Lasso(0.1).fit(X[:300], y[:300])
    assert error < 1.05 * np.sqrt(np.square(lasso.predict(X[300:]) - y[300:]).mean())
    layer = model.to_mlayer()
    np.testing.assert_allclose(layer(torch.from_numpy(X[:9])).detach()[:, 0], model.predict(X[:9]), rtol=1e-9)


def test_columns_that_nearly_agree_give_no_warning() -> None:
    """Warnings are errors in the tests; the lasso of scikit-learn does not converge here."""
    X, y = wide(90)
    X = np.concatenate([X, X + 1e-4 * np.random.default_rng(1).normal(size=X.shape)], axis=1)
    assert np.isfinite(module._lasso(100 * X, y[:, None], np.ones(90))).all()


def test_a_product_is_not_linear() -> None:
    draw = np.random.default_rng(0)
    X = draw.uniform(-1, 1, (200, 2))
    assert not MLayerRegressor(random_state=0, periodic=False).fit(X, X[:, 0] * X[:, 1]).linear_


def test_a_size_that_was_asked_for_is_kept() -> None:
    X, y = wide(120)
    model = MLayerRegressor(matrix_size=4, random_state=0, max_iter=5).fit(X, y)
    assert not model.linear_
    assert model.to_mlayer().matrix_size == 4


@pytest.mark.parametrize("weighted", [False, True])
def test_the_paths_are_those_of_scikit_learn(weighted: bool) -> None:
    X, y = wide(90)
    weight = np.random.default_rng(1).uniform(0.2, 2, 90) if weighted else np.ones(90)
    weight /= weight.mean()
    ridge = Ridge(module._RIDGES[7] * 90).fit(X, y, sample_weight=weight)
    found = module._ridge(X, y[:, None], weight)[7]
    np.testing.assert_allclose(found[1:, 0], ridge.coef_, rtol=1e-8)
    np.testing.assert_allclose(found[0, 0], ridge.intercept_, rtol=1e-8)
    share = weight / weight.sum()
    strength = np.abs((X - share @ X).T @ (weight * (y - share @ y))).max() / 90
    strength *= np.geomspace(1, module._WEAKEST, module._STEPS)[10]
    lasso = Lasso(strength, tol=1e-10).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(module._lasso(X, y[:, None], weight)[10, 1:, 0], lasso.coef_, atol=2e-3)


def test_held_out_losses_and_errors() -> None:
    X, y = wide(90)
    data = Tensors(torch.from_numpy(X), torch.from_numpy(y[:, None]), torch.ones(90, dtype=torch.float64))
    folds = [torch.arange(90) % 3 == k for k in range(3)]
    found = best_linear(data, folds)
    assert found.errors.shape == (90, 1)
    assert found.loss == pytest.approx(np.square(found.errors).mean())
    assert best_linear(data, folds[:1]).errors[1] != best_linear(data, folds[:1]).errors[1]  # NaN


def test_intervals_of_small_tables_use_errors_of_training_rows_too() -> None:
    X, y = wide(150)
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(60)]).assign(y=y)
    result = fit_table(frame, Plan("y"))
    assert len(result.model.facts["errors"]) == 150
    assert result.model.half_width(0.9) == pytest.approx(1.645, rel=0.35)


def test_classes_with_many_columns_and_few_rows() -> None:
    """The layer alone had a log loss of 2.8 here, worse than no model at all."""
    draw = np.random.default_rng(3)
    X = draw.normal(size=(1120, 40))
    y = (X[:, :3] @ [1.5, -1.0, 1.0] + draw.logistic(size=len(X)) > 0).astype(int)
    model = MLayerClassifier(random_state=0, max_iter=30).fit(X[:120], y[:120])
    assert model.linear_
    best = min(
        log_loss(y[120:], LogisticRegression(C=C).fit(X[:120], y[:120]).predict_proba(X[120:]))
        for C in (0.01, 0.03, 0.1, 0.3, 1.0)
    )
    assert log_loss(y[120:], model.predict_proba(X[120:])) < 1.15 * best
    layer = model.to_mlayer()
    odds = layer(torch.from_numpy(X[:9])).detach().softmax(dim=1)
    np.testing.assert_allclose(odds, model.predict_proba(X[:9]), rtol=1e-9)


def test_logits_are_those_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    X = draw.normal(size=(90, 4))
    labels = draw.integers(0, 3, 90)
    found = module._logistic(X, labels, np.ones(90), 3, "l2")
    place = len(module._STRENGTHS) // 2
    theirs = LogisticRegression(C=1 / (90 * module._STRENGTHS[place]), tol=1e-9).fit(X, labels)
    logits = found[place][0] + X @ found[place][1:]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(odds / odds.sum(axis=1, keepdims=True), theirs.predict_proba(X), atol=2e-2)
    # A class without a row in a part of the table is improbable there, and nothing fails.
    few = module._logistic(X[labels < 2], labels[labels < 2], np.ones(int((labels < 2).sum())), 3, "l2")
    assert (few[:, 0, 2] < few[:, 0, :2].max(axis=1)).all()
    one = module._logistic(X[labels == 1], labels[labels == 1], np.ones(int((labels == 1).sum())), 3, "l2")
    assert (one[:, 0].argmax(axis=1) == 1).all()


def test_classes_that_are_not_linear_stay_with_the_layer() -> None:
    draw = np.random.default_rng(0)
    X = draw.uniform(-1, 1, (200, 2))
    assert not MLayerClassifier(random_state=0).fit(X, X[:, 0] * X[:, 1] > 0).linear_
    data = Tensors(torch.zeros(10, 200_000), torch.zeros(10, dtype=torch.long), torch.ones(10))
    assert best_logistic(data, [], 2) is None


def test_large_tables_have_the_rival_too() -> None:
    """4500 rows of which few are positive: a layer overfits. The product of two columns needs a layer."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(4500, 6))
    y = draw.random(4500) < 1 / (1 + np.exp(5 - X[:, 0] + X[:, 1]))
    model = MLayerClassifier(random_state=0).fit(X, y)
    assert model.linear_
    layer = model.to_mlayer()
    logits = layer(torch.from_numpy(X[:9])).detach().numpy()
    chances = model.predict_proba(X[:9])[:, 1]
    np.testing.assert_allclose(1 / (1 + np.exp(logits[:, 0] - logits[:, 1])), chances, atol=1e-8)
    bent = draw.random(4500) < 1 / (1 + np.exp(-4 * X[:, 0] * X[:, 1]))
    assert not MLayerClassifier(random_state=0).fit(X, bent).linear_
    assert not MLayerClassifier(random_state=0, solver="adam", max_iter=1).fit(X, y).linear_


def test_a_gain_within_its_standard_error_is_chance() -> None:
    draw = np.random.default_rng(0)
    ours, apart = draw.exponential(size=400), draw.normal(size=400)
    apart = (apart - apart.mean()) / apart.std()
    rival = module.LinearFit(np.zeros((2, 2)), float(ours.mean()), np.append(ours, np.nan)[:, None])
    assert rival.is_as_good(ours - apart - 0.9 / np.sqrt(400))
    assert not rival.is_as_good(ours - apart - 1.1 / np.sqrt(400))
    for overflow in (np.inf, np.nan):
        assert rival.is_as_good(np.append(ours[1:] - 10, overflow))

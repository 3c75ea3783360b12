"""Our metrics against scikit-learn's and scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from mlayer.tables.metrics import BETTER_HIGH, classification_metrics, proportion_interval, regression_metrics


@given(st.integers(2, 5), st.integers(2, 60), st.integers(0, 10_000), st.booleans())
def test_classification(classes: int, rows: int, seed: int, ties: bool) -> None:
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, classes, rows)
    raw = draw.integers(1, 4, (rows, classes)).astype(float) if ties else draw.random((rows, classes))
    probabilities = raw / raw.sum(axis=1, keepdims=True)
    guess, labels = probabilities.argmax(axis=1), list(range(classes))
    ours = classification_metrics(truth, probabilities)
    assert ours["accuracy"] == pytest.approx(sk.accuracy_score(truth, guess))
    assert ours["balanced accuracy"] == pytest.approx(
        sk.recall_score(truth, guess, labels=np.unique(truth), average="macro", zero_division=0)
    )
    assert ours["macro F1"] == pytest.approx(
        sk.f1_score(truth, guess, labels=np.unique(truth), average="macro", zero_division=0)
    )
    assert ours["log loss"] == pytest.approx(sk.log_loss(truth, probabilities, labels=labels))
    if classes == 2 and len(np.unique(truth)) == 2:
        assert ours["ROC AUC"] == pytest.approx(sk.roc_auc_score(truth, probabilities[:, 1]))
    else:
        assert "ROC AUC" not in ours
    assert ours.keys() <= BETTER_HIGH.keys()


@given(st.integers(2, 60), st.integers(0, 10_000))
def test_regression(rows: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    truth, values = draw.normal(size=rows), draw.normal(size=rows)
    ours = regression_metrics(truth, values)
    assert ours["RMSE"] == pytest.approx(sk.root_mean_squared_error(truth, values))
    assert ours["MAE"] == pytest.approx(sk.mean_absolute_error(truth, values))
    assert ours["R2"] == pytest.approx(sk.r2_score(truth, values))
    assert regression_metrics(np.ones(3), np.zeros(3))["R2"] == 0.0


@given(st.integers(1, 500), st.data())
def test_interval(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    theirs = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    assert proportion_interval(successes, trials) == pytest.approx((theirs.low, theirs.high), abs=1e-12)

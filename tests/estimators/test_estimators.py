"""The estimators at work: pipelines, searches, weights, streams, failure."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from mlayer.errors import ArgumentError, MLayerError
from mlayer.estimators import MLayerClassifier, MLayerRegressor
from mlayer.estimators.penalty import matrix_penalty, weights_penalty
from mlayer.nn import MLayer
from mlayer.training import optimizers

IRIS = load_iris(return_X_y=True)
QUICK: dict[str, Any] = {"alpha": 0.02, "max_iter": 60, "random_state": 0}


def test_pipeline_search_and_scores() -> None:
    pipeline = make_pipeline(MinMaxScaler(), MLayerClassifier(**QUICK))
    search = GridSearchCV(pipeline, {"mlayerclassifier__alpha": [0.02, 10.0]}, cv=3).fit(*IRIS)
    assert search.best_params_ == {"mlayerclassifier__alpha": 0.02}
    assert search.best_score_ > 0.93
    assert cross_val_score(MLayerClassifier(**QUICK), *IRIS, cv=3).mean() > 0.93


def test_clone_and_pickle() -> None:
    model = MLayerClassifier(**QUICK).fit(*IRIS)
    again = clone(model).fit(*IRIS)
    assert np.array_equal(again.predict_proba(IRIS[0]), model.predict_proba(IRIS[0]))
    loaded = pickle.loads(pickle.dumps(model))
    assert np.array_equal(loaded.predict_proba(IRIS[0]), model.predict_proba(IRIS[0]))


@pytest.mark.parametrize("labels", [np.array(["no", "yes"]), np.array(["a", "b", "c"])])
def test_classifier_is_its_layer(labels: NDArray[np.str_]) -> None:
    """to_mlayer on raw inputs gives logits, one a class; softmax recomputed by torch."""
    X, y = IRIS[0] * [1, 10, 100, 1000] + 5, labels[IRIS[1] % len(labels)]
    model = MLayerClassifier(**QUICK).fit(X, y)
    layer = model.to_mlayer()
    assert type(layer) is MLayer
    logits = layer(torch.from_numpy(X)).detach()
    assert logits.shape == (150, len(labels))
    assert model.predict_proba(X) == pytest.approx(logits.softmax(1).numpy(), abs=1e-8)
    assert np.exp(model.predict_log_proba(X)) == pytest.approx(model.predict_proba(X))
    assert np.array_equal(model.predict(X), labels[logits.argmax(1)])
    decision = model.decision_function(X)
    if len(labels) == 2:
        assert decision == pytest.approx((logits[:, 1] - logits[:, 0]).numpy(), abs=1e-6)
    else:
        assert decision == pytest.approx(logits.numpy(), abs=1e-6)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_regressor_is_its_layer_in_raw_units(solver: str) -> None:
    X, y = load_diabetes(return_X_y=True, scaled=False)
    targets = np.column_stack([y, 1e4 - 50 * y, X[:, 0]])
    model = MLayerRegressor(solver=solver, **QUICK).fit(X, targets)
    assert model.predict(X).shape == (442, 3)
    assert model.n_outputs_ == 3
    layer = model.to_mlayer()
    p = layer(torch.from_numpy(X)).detach().numpy()
    assert (np.abs(p - model.predict(X)) <= 1e-8 * targets.std(0)).all()
    alone = np.vstack([model.predict(row[None]) for row in X[:20]])
    assert (np.abs(alone - model.predict(X)[:20]) <= 1e-8 * targets.std(0)).all(), "each row by itself"
    assert model.score(X, targets) > 0.5


def test_defaults_choose_alpha_on_held_out_rows() -> None:
    """A linear law in noise wants a strong ridge, products without noise a weak one."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (80, 4))
    noisy = MLayerRegressor(random_state=0, max_iter=30).fit(X, X[:, 0] + 2 * generator.standard_normal(80))
    exact = MLayerRegressor(random_state=0, max_iter=30).fit(X, X[:, 0] * X[:, 1])
    assert noisy.alpha_ > exact.alpha_


def test_class_weight_and_sample_weight() -> None:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((200, 2))
    y = (X[:, 0] + generator.standard_normal(200) > 1.3).astype(int)
    plain = MLayerClassifier(**QUICK).fit(X, y)
    balanced = MLayerClassifier(class_weight="balanced", **QUICK).fit(X, y)
    assert balanced.predict(X).sum() > plain.predict(X).sum()
    by_hand = {c: 200 / (2 * (y == c).sum()) for c in (0, 1)}
    same = MLayerClassifier(class_weight=by_hand, **QUICK).fit(X, y)
    weighted = MLayerClassifier(**QUICK).fit(X, y, sample_weight=np.where(y, by_hand[1], by_hand[0]))
    assert same.predict_proba(X) == pytest.approx(balanced.predict_proba(X), abs=1e-6)
    assert weighted.predict_proba(X) == pytest.approx(balanced.predict_proba(X), abs=1e-6)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_weights_are_repetitions_to_the_bit(solver: str) -> None:
    X, y = IRIS[0][::5], IRIS[1][::5]
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    settings: dict[str, Any] = {"solver": solver, "max_iter": 15, "random_state": 0}
    one = MLayerClassifier(**settings).fit(X, y, sample_weight=weight)
    two = MLayerClassifier(**settings).fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    # exact: rows are counted before the fit, so both fits are of the same table
    assert np.array_equal(one.predict_proba(X), two.predict_proba(X))


def test_feature_names() -> None:
    frame, y = load_iris(return_X_y=True, as_frame=True)
    model = MLayerClassifier(**QUICK).fit(frame, y)
    assert list(model.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[frame.columns[::-1]])
    assert isinstance(frame, pd.DataFrame)


@pytest.mark.parametrize("kind", [MLayerClassifier, MLayerRegressor])
def test_sparse_input_is_made_dense(kind: Any) -> None:
    X, y = IRIS[0][::3], IRIS[1][::3]
    named = pd.DataFrame(X, columns=list("abcd"))
    mixed = named.astype({"a": pd.SparseDtype(float, 0.0)})
    settings = {"alpha": 0.01, "max_iter": 5, "random_state": 0}
    wanted = kind(**settings).fit(X, y).predict(X)
    for table in (sparse.csr_matrix(X), sparse.coo_array(X), named.astype(pd.SparseDtype(float, 0.0)), mixed):
        model = kind(**settings).fit(table, y)
        assert model.predict(table) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    assert list(model.feature_names_in_) == list("abcd")
    assert isinstance(mixed["a"].dtype, pd.SparseDtype)  # the argument stays as it was


def test_sparse_input_beyond_the_memory_is_refused() -> None:
    X = sparse.coo_matrix((2**40, 2**10))
    with pytest.raises(ArgumentError, match=r"X must be small enough for a dense array.*TruncatedSVD"):
        MLayerClassifier().fit(X, [0, 1])


def test_partial_fit_learns_from_a_stream() -> None:
    X, y = IRIS
    order = np.random.default_rng(0).permutation(150)
    model = MLayerClassifier(random_state=0, batch_size=16, learning_rate=0.01)
    for part in [*np.array_split(order, 3)] * 15:
        model.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert model.score(X, y) > 0.93
    assert model.n_iter_ == len(model.history_) == 45
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(
        copy.partial_fit(X, y).predict_proba(X), model.partial_fit(X, y).predict_proba(X)
    ), "the optimizer goes with the model"


def test_partial_fit_complaints() -> None:
    X, y = IRIS
    with pytest.raises(ArgumentError, match="classes must be given in the first call"):
        MLayerClassifier().partial_fit(X, y)
    with pytest.raises(ArgumentError, match="class_weight must be None or a dictionary with partial_fit"):
        MLayerClassifier(class_weight="balanced").partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ArgumentError, match=r"y must be of the classes .* got \[.*2.*\]"):
        MLayerClassifier().partial_fit(X, y, classes=[0, 1])
    model = MLayerClassifier().partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ArgumentError, match="classes must be the same in every call"):
        model.partial_fit(X, y, classes=[0, 1, 2, 3])
    regressor = MLayerRegressor().partial_fit(X, y)
    with pytest.raises(ArgumentError, match="4 inputs and 1 outputs, as in the fit before"):
        regressor.partial_fit(X, np.column_stack([y, y]))


def test_warm_start_goes_on() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = MLayerRegressor(alpha=0.01, max_iter=5, warm_start=True, random_state=0).fit(X, y)
    first = model.loss_
    assert model.fit(X, y).fit(X, y).loss_ < first
    with pytest.raises(ArgumentError, match="10 inputs and 1 outputs, as in the fit before"):
        model.fit(X[:, :3], y)
    classifier = MLayerClassifier(warm_start=True, **QUICK).fit(*IRIS)
    with pytest.raises(ArgumentError, match="as in the fit before"):
        classifier.fit(IRIS[0], IRIS[1] % 2)


def test_divergence_warns_and_keeps_finite_weights() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = MLayerRegressor(solver="sgd", learning_rate=1e4, max_iter=30, alpha=0.0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="training stopped"):
        model.fit(X, y)
    assert np.isfinite(model.predict(X)).all()


def test_far_rows_warn() -> None:
    X, y = IRIS
    far = np.vstack([X[:1], 1e9 * np.ones((1, 4))])
    model = MLayerClassifier(**QUICK).fit(X, y)
    with pytest.warns(RuntimeWarning, match="1 of 2 rows lie so far .* the first is row 1"):
        p = model.predict_proba(far)
    assert p[1] == pytest.approx([1 / 3] * 3, abs=0.02)
    regressor = MLayerRegressor(**QUICK).fit(X, y)
    with pytest.warns(RuntimeWarning, match="the exponential overflows"):
        assert not np.isfinite(regressor.predict(far)[1])


def test_early_stopping_on_larger_tables() -> None:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((5000, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    model = MLayerClassifier(random_state=0, max_iter=25).fit(X, y)
    assert "validation_loss" in model.history_[0]
    assert model.to_mlayer().matrix_size == 12
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"matrix_size": 0}, "matrix_size must be a positive integer or 'auto'; got 0"),
        ({"embedding_size": 1.5}, r"embedding_size must be a positive integer, 'auto' or None; got 1\.5"),
        ({"max_iter": -1}, "max_iter must be a positive integer"),
        ({"n_iter_no_change": 0}, "n_iter_no_change must be a positive integer"),
        ({"batch_size": "big"}, "batch_size must be a positive integer"),
        ({"alpha": -1.0}, "alpha must be a number of at least 0"),
        ({"alpha": "large"}, "alpha must be a number of at least 0"),
        ({"activity_penalty": -1}, "activity_penalty must be a number"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0"),
        ({"validation_fraction": 1.0}, "validation_fraction must be a number of at least 0 and below 1"),
        ({"penalty": "l1"}, "penalty must be one of 'weights', 'matrix'; got 'l1'"),
        ({"periodic": "maybe"}, "periodic must be True, False, 'auto' or numbers of inputs"),
        ({"early_stopping": 3}, "early_stopping must be True, False or 'auto'"),
        (
            {"solver": "magic"},
            "solver must be 'auto', 'lbfgs' or the name of an optimizer of torch; got 'magic'",
        ),
        ({"solver": "SparseAdam"}, "solver must be .* the name of an optimizer of torch; got 'SparseAdam'"),
        ({"solver": 3}, "solver must be 'auto', 'lbfgs'"),
        ({"init": "magic"}, "init must be one of"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(MLayerError, match=words):
        MLayerRegressor(**arguments).fit(*IRIS)


def test_an_optimizer_that_takes_matrices_only_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is torch's own Muon, which ours replaces."""
    monkeypatch.setitem(optimizers._CLASSES, "muon", torch.optim.Muon)
    with pytest.raises(MLayerError, match=r"optimizer of torch that trains dense weights .* got 'muon'"):
        MLayerRegressor(solver="muon").fit(*IRIS)


def test_penalties_against_their_formulas() -> None:
    layer = MLayer(3, 2, 4, 5, init="balanced", dtype=torch.float64)
    torch.nn.init.normal_(layer.embedding_bias)  # type: ignore[arg-type]
    own = dict(layer.named_parameters())
    squares = torch.stack([p.square().sum() for name, p in own.items() if name != "output_bias"]).sum()
    assert weights_penalty(layer).item() == pytest.approx(squares.item())
    with torch.no_grad():
        zero, basis = torch.zeros(1, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
        constant = layer.matrix(zero)
        expected = (layer.matrix(basis) - constant).square().sum() + constant.square().sum()
        expected += layer.readout.square().sum()
    assert matrix_penalty(layer).item() == pytest.approx(expected.item())


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_fits_where_gradients_are_off(solver: str) -> None:
    X, y = IRIS[0][:60, :2], IRIS[0][:60, 2]

    def fitted() -> MLayerRegressor:
        quick = {**QUICK, "max_iter": 3, "matrix_size": 3, "solver": solver, "periodic": False}
        return MLayerRegressor(**quick).fit(X, y).partial_fit(X, y)

    expected = fitted().predict(X)
    with torch.inference_mode():
        model = fitted()
        np.testing.assert_allclose(model.predict(X), expected, rtol=1e-12)
        layer = model.to_mlayer()
    layer(torch.from_numpy(X)).sum().backward()  # an ordinary layer, made there or not
    assert layer.readout.grad is not None

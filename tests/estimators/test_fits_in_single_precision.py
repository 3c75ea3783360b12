"""Classifiers with many rows are fitted in float32, others and quantities in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mlayer import MLayer, MLayerClassifier, MLayerRegressor
from mlayer.estimators import fitting
from mlayer.estimators.all_rows import NO_STEP, Objective, fit_all_rows
from mlayer.estimators.penalty import Ridge
from mlayer.training import TrainingResult

SIZES: dict[str, Any] = {"matrix_size": 3, "embedding_size": 2, "max_iter": 20, "random_state": 0}


def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    kind = draw.integers(0, 3, count)
    return draw.normal(size=(count, 2)) + 2 * np.eye(3)[kind, :2], kind


@pytest.fixture
def dtypes(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The precision of each fit to all rows."""
    seen: list[torch.dtype] = []

    def watched(objective: Objective, *arguments: Any) -> TrainingResult:
        seen.append(objective.x.dtype)
        return fit_all_rows(objective, *arguments)

    monkeypatch.setattr(fitting, "fit_all_rows", watched)
    return seen


def test_the_same_ridge_and_score(monkeypatch: pytest.MonkeyPatch, dtypes: list[torch.dtype]) -> None:
    X, y = rows(1500)
    found = {}
    for least, wanted in ((fitting._ROWS_IN_SINGLE, torch.float32), (10**9, torch.float64)):
        monkeypatch.setattr(fitting, "_ROWS_IN_SINGLE", least)
        dtypes.clear()
        model = MLayerClassifier(**SIZES).fit(X, y)
        assert set(dtypes) == {wanted}
        assert model.to_mlayer().generators.dtype == torch.float64
        found[least] = model.alpha_, model.score(X, y), model.predict_proba(X)
    (alpha, score, shares), (wanted_alpha, wanted_score, wanted_shares) = found.values()
    assert alpha == wanted_alpha
    assert score == pytest.approx(wanted_score, abs=0.01)
    assert np.abs(shares - wanted_shares).mean() < 0.01


def test_quantities_and_small_tables_have_all_digits(dtypes: list[torch.dtype]) -> None:
    X, y = rows(1500)
    MLayerRegressor(**SIZES, alpha=0.01, periodic=False).fit(X, X[:, 0] * X[:, 1])
    MLayerClassifier(**SIZES, alpha=0.01).fit(X[:900], y[:900])
    assert dtypes == [torch.float64, torch.float64]


@pytest.mark.parametrize("failure", [{"message": NO_STEP}, {"stopped": "diverged"}])
def test_what_float32_cannot_do_is_continued_in_float64(
    failure: dict[str, Any], monkeypatch: pytest.MonkeyPatch, dtypes: list[torch.dtype]
) -> None:
    X, y = rows(1500)
    watched = vars(fitting)["fit_all_rows"]

    def failing(objective: Objective, *arguments: Any) -> TrainingResult:
        result = watched(objective, *arguments)
        if objective.x.dtype == torch.float32:
            vars(result).update(failure)
        return result

    monkeypatch.setattr(fitting, "fit_all_rows", failing)
    MLayerClassifier(**SIZES, alpha=0.01).fit(X, y)
    assert dtypes == [torch.float32, torch.float64]


@pytest.mark.parametrize(
    ("loss", "outputs", "scale"),
    [("cross_entropy", 3, 0.5), ("cross_entropy", 2, 0.0), ("squared_error", 3, 0.0)],
)
def test_small_gains_of_many_classes_end_a_fit(loss: str, outputs: int, scale: float) -> None:
    layer = MLayer(2, outputs, matrix_size=2, dtype=torch.float64)
    x, weight = torch.zeros(4, 2, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    data = (x, torch.zeros(4, dtype=torch.int64), weight)
    assert Objective(layer, data, Ridge(loss, "weights", 0.1), 0.0).scale == scale

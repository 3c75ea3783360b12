"""Trials of classifiers with many rows are fitted in float32; the fit itself, and small losses, as ever."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlayer import MLayer, MLayerClassifier
from mlayer.estimators import selection
from mlayer.estimators.all_rows import Objective
from mlayer.estimators.fitting import fit_layer
from mlayer.estimators.penalty import Ridge


def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    kind = draw.integers(0, 3, count)
    return draw.normal(size=(count, 2)) + 2 * np.eye(3)[kind, :2], kind


def test_the_same_ridge_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(1500)
    dtypes: set[torch.dtype] = set()

    def watched(layer: MLayer, data: object, *arguments: object, **named: object) -> object:
        dtypes.add(layer.generators.dtype)
        return fit_layer(layer, data, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(selection, "fit_layer", watched)
    found = {}
    for least in (selection._ROWS_IN_SINGLE, 10**9):
        monkeypatch.setattr(selection, "_ROWS_IN_SINGLE", least)
        model = MLayerClassifier(matrix_size=3, embedding_size=2, max_iter=20, random_state=0).fit(X, y)
        assert model.to_mlayer().generators.dtype == torch.float64
        found[least] = model.alpha_, model.score(X, y)
    assert dtypes == {torch.float32, torch.float64}
    (alpha, score), (wanted, wanted_score) = found.values()
    assert alpha == wanted
    assert score == pytest.approx(wanted_score, abs=0.01)


@pytest.mark.parametrize(
    ("loss", "outputs", "scale"),
    [("cross_entropy", 3, 0.5), ("cross_entropy", 2, 0.0), ("squared_error", 3, 0.0)],
)
def test_small_gains_of_many_classes_end_a_fit(loss: str, outputs: int, scale: float) -> None:
    layer = MLayer(2, outputs, matrix_size=2, dtype=torch.float64)
    x, weight = torch.zeros(4, 2, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    data = (x, torch.zeros(4, dtype=torch.int64), weight)
    assert Objective(layer, data, Ridge(loss, "weights", 0.1), 0.0).scale == scale

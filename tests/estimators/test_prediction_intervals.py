"""Prediction intervals of the regressor: the coverage that was asked for, on rows that nothing has seen."""

from __future__ import annotations

import numpy as np
import pytest

from mlayer import MLayerRegressor
from mlayer.errors import ArgumentError

ROWS = {"fit": 200, "calibrate": 400, "test": 4000}


def noisy(kind: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(0)
    parts = {}
    for name, rows in ROWS.items():
        X = draw.uniform(-1, 1, (rows, 2))
        noise = draw.standard_normal(rows) if kind == "normal" else draw.standard_t(2, rows)
        parts[name] = (X, X[:, 0] * X[:, 1] + 0.1 * noise)
    return parts


@pytest.mark.parametrize("coverage", [0.5, 0.9])
@pytest.mark.parametrize("kind", ["normal", "heavy tails"])
def test_the_coverage_is_what_was_asked_for(kind: str, coverage: float) -> None:
    parts = noisy(kind)
    model = MLayerRegressor(alpha=0.01, max_iter=20, periodic=False, random_state=0).fit(*parts["fit"])
    model.calibrate(*parts["calibrate"])
    X, y = parts["test"]
    low, high = model.predict_interval(X, coverage).T
    held = float(((low <= y) & (y <= high)).mean())
    # Given n rows of calibration the coverage has a beta distribution with this deviation about its mean.
    spread = np.sqrt(coverage * (1 - coverage) * (1 / ROWS["calibrate"] + 1 / ROWS["test"]))
    assert abs(held - coverage) < 4 * spread


def test_too_few_rows_give_no_interval_and_none_an_error() -> None:
    parts = noisy("normal")
    model = MLayerRegressor(alpha=0.01, max_iter=5, periodic=False, random_state=0).fit(*parts["fit"])
    with pytest.raises(ArgumentError, match=r"calibrate\(X, y\)"):
        model.predict_interval(parts["test"][0])
    X, y = parts["calibrate"]
    model.calibrate(X[:5], y[:5])
    assert np.isinf(model.predict_interval(X[:3], 0.9)).all()


@pytest.mark.parametrize("again", ["fit", "partial_fit"])
def test_a_calibration_holds_for_its_own_weights_only(again: str) -> None:
    """Another fit changes the errors; the intervals of the old ones would not hold what was asked for."""
    X, y = noisy("normal")["fit"]
    model = MLayerRegressor(alpha=0.01, max_iter=5, periodic=False, random_state=0).fit(X, y).calibrate(X, y)
    getattr(model, again)(X, y)
    with pytest.raises(ArgumentError, match=r"the estimator must be calibrated"):
        model.predict_interval(X)

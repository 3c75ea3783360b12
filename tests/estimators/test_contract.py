"""scikit-learn's own checks of the contract, all of them, none expected to fail."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mlayer.estimators import MLayerClassifier, MLayerRegressor


@parametrize_with_checks([MLayerClassifier(), MLayerRegressor()])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)

"""scikit-learn's own checks of the contract, all of them, none expected to fail."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mlayer.estimators import MLayerClassifier, MLayerRegressor

# A given alpha and few iterations: hundreds of fits in seconds. The defaults are checked by the slow test.
QUICK: dict[str, Any] = {"alpha": 0.01, "max_iter": 30}


@parametrize_with_checks([MLayerClassifier(**QUICK), MLayerRegressor(**QUICK)])  # type: ignore[untyped-decorator]
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([MLayerClassifier(), MLayerRegressor()])  # type: ignore[untyped-decorator]
def test_scikit_learn_checks_with_defaults(estimator: Any, check: Any) -> None:
    check(estimator)


@parametrize_with_checks(
    [MLayerClassifier(solver="adam", max_iter=60), MLayerRegressor(solver="adam", max_iter=60)]
)  # type: ignore[untyped-decorator]
@pytest.mark.slow
def test_scikit_learn_checks_in_batches(estimator: Any, check: Any) -> None:
    check(estimator)

"""The estimator behind `mlayer fit`: ours with settings for tables, or the caller's."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

from mlayer.checks import flag, integer, number
from mlayer.nn import MLayer
from mlayer.tables.remarks import Remark
from mlayer.tables.task import Array, Target

# A trial fit, to learn what an iteration costs, has so many of them.
_TRIAL = 4
# The most fits of 100 iterations that the estimators make to choose their ridge: alphas times folds.
_CHOICES = 7 * 5
_CHOICE_ITERATIONS = 100
_FEWEST = 10
_ALPHA = 0.01  # where there is no time to choose it


@dataclass(frozen=True)
class Training:
    """How large a model, and how long to train it; None is left to the estimator.

    Attributes:
        epochs: at most so many passes over the rows.
        time_limit: seconds. A short trial tells what an epoch costs, and the number of epochs is chosen so
            that the rest fits; a fit of the same seed and that number of epochs gives the same model.
        matrix_size: n, of the matrix that is exponentiated.
        embedding_size: d, the features that the columns are mapped to.
        bar: show a progress bar on stderr, where that is a terminal: epochs (steps of 20 iterations for
            L-BFGS), loss and time.
    """

    epochs: int | None = None
    time_limit: float | None = None
    matrix_size: int | None = None
    embedding_size: int | None = None
    bar: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "matrix_size", "embedding_size"):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), 1)
        if self.time_limit is not None:
            number("time_limit", self.time_limit, above=0)
        flag("bar", self.bar)


@dataclass(frozen=True)
class Trained:
    """A layer on encoded rows, and how it came about."""

    layer: MLayer
    history: list[dict[str, Any]]
    epochs: int
    remarks: list[Remark]


def default_estimator(target: Target, training: Training, seed: int) -> Any:
    """Ours, with the settings of ``training``."""
    from mlayer.estimators import MLayerClassifier, MLayerRegressor

    settings: dict[str, Any] = {"random_state": seed, "verbose": training.bar}
    wishes = {
        "max_iter": training.epochs,
        "matrix_size": training.matrix_size,
        "embedding_size": training.embedding_size,
    }
    settings |= {name: value for name, value in wishes.items() if value is not None}
    return MLayerClassifier(**settings) if target.classifies else MLayerRegressor(**settings)


def run(estimator: Any, x: Array, y: Array) -> Trained:
    """Fit the estimator to encoded rows; what it warns of becomes remarks."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(x, y)
    history = [dict(record) for record in getattr(estimator, "history_", [])]
    said = dict.fromkeys(
        str(warning.message) for warning in caught if warning.category is not DeprecationWarning
    )
    remarks = [Remark("training", "", 0, text) for text in said]
    return Trained(estimator.to_mlayer(), history, int(getattr(estimator, "n_iter_", len(history))), remarks)


def within(estimator: Any, x: Array, y: Array, seconds: float) -> Any:
    """The estimator with so many iterations that it should be done in time, by the cost of a few of them."""
    from sklearn.base import clone

    start = time.monotonic()
    spent = []
    for iterations in (1, 1 + _TRIAL):  # what does not depend on their number drops out of the difference
        trial = clone(estimator).set_params(max_iter=iterations, alpha=_ALPHA, verbose=False)
        before = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial.fit(x, y)
        spent.append(time.monotonic() - before)
    each = max(1e-4, (spent[1] - spent[0]) / _TRIAL)
    left = seconds - (time.monotonic() - start)
    return estimator.set_params(**budget(left, each, estimator.max_iter))


def budget(seconds: float, each: float, most: int) -> dict[str, Any]:
    """Settings for a fit of at most ``most`` iterations of ``each`` seconds.

    The ridge is chosen from the data if that leaves as much time for the fit itself.

    >>> budget(1000.0, 0.01, 500)
    {'max_iter': 500}
    >>> budget(2.0, 0.01, 500)
    {'max_iter': 200, 'alpha': 0.01}
    """
    possible = int(seconds / each)
    if possible >= _CHOICES * min(_CHOICE_ITERATIONS, most) + most:
        return {"max_iter": most}
    return {"max_iter": max(_FEWEST, min(most, possible)), "alpha": _ALPHA}

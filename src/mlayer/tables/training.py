"""The estimator behind `mlayer fit`: ours with settings for tables, or the caller's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlayer.nn import MLayer
from mlayer.tables.task import Array, Target


@dataclass(frozen=True)
class Training:
    """How large a model, and how long to train it; None is left to the estimator.

    Attributes:
        epochs: at most so many passes over the rows.
        time_limit: seconds after which no new epoch begins.
        matrix_size: n, of the matrix that is exponentiated.
        embedding_size: d, the features that the columns are mapped to.
    """

    epochs: int | None = None
    time_limit: float | None = None
    matrix_size: int | None = None
    embedding_size: int | None = None


@dataclass(frozen=True)
class Trained:
    """A layer on encoded rows, and how it came about."""

    layer: MLayer
    history: list[dict[str, Any]]
    stopped: str


def default_estimator(target: Target, training: Training, seed: int, shape: tuple[int, ...]) -> Any:
    raise NotImplementedError


def run(
    estimator: Any,
    x: Array,
    y: Array,
    training: Training,
    on_epoch: Callable[[Mapping[str, Any]], None] | None,
) -> Trained:
    """Fit the estimator to encoded rows."""
    estimator.fit(x, y)
    history = [dict(record) for record in getattr(estimator, "history_", [])]
    return Trained(estimator.to_mlayer(), history, "")

"""From a table to a model that has been tested on rows it has not seen."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.checks import brief, flag, function, integer, is_several, one_of
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.tables.columns import Number
from mlayer.tables.encode import MAX_CATEGORIES, check_frame, learn_schema
from mlayer.tables.importance import column_importance
from mlayer.tables.learn import too_large
from mlayer.tables.metrics import (
    BETTER_HIGH,
    classification_metrics,
    proportion_interval,
    regression_metrics,
)
from mlayer.tables.model import Predictions, TableModel
from mlayer.tables.remarks import Remark, merged, near_columns
from mlayer.tables.split import held_out
from mlayer.tables.stream import refuse
from mlayer.tables.task import AUTO, CLASSIFICATION, REGRESSION, Array, Target, guess_task, learn_target
from mlayer.tables.training import Training, default_estimator, run, within
from mlayer.tables.values import check_size
from mlayer.version import __version__

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Plan:
    """What to fit, and how.

    Attributes:
        target: the column to predict.
        task: "classification", "regression", or "auto" to have it guessed.
        drop: columns to leave out.
        test_share: of the rows, held out for the metrics.
        seed: of the split and of the training.
        max_categories: of a text column; the rest is put together as "other".
        strict: refuse what would otherwise be mended and said.
        training: size of the model, epochs, time.
    """

    target: str
    task: str = AUTO
    drop: tuple[str, ...] = ()
    test_share: float = 0.2
    seed: int = 0
    max_categories: int = MAX_CATEGORIES
    strict: bool = False
    training: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        one_of("task", self.task, (AUTO, CLASSIFICATION, REGRESSION), "Leave it out to have it guessed.")
        integer("seed", self.seed, 0)
        integer("max_categories", self.max_categories, 1)
        flag("strict", self.strict)
        if not is_several(self.drop):
            raise ArgumentTypeError(
                "drop", "several names of columns", brief(self.drop), 'For example ("id",).'
            )
        object.__setattr__(self, "drop", tuple(map(str, self.drop)))
        if not isinstance(self.target, str):
            raise ArgumentTypeError(
                "target", "the name of a column", brief(self.target), "For example 'price'."
            )
        if not isinstance(self.training, Training):
            raise ArgumentTypeError(
                "training", "a Training", brief(self.training), "Write Training(epochs=...)."
            )


@dataclass(frozen=True)
class FitResult:
    """A model and how it did.

    Attributes:
        model: the model, fitted to the training rows alone.
        reason: why this task.
        metrics: on the held-out rows.
        baseline: the same metrics for the best constant answer.
        remarks: what was done with the table.
        history: a record for each epoch.
        truth: targets of the held-out rows, as :meth:`Target.encode` gives them.
        predictions: for the held-out rows.
        importance: by column, worsening by shuffling it: mean and half the spread.
    """

    model: TableModel
    reason: str
    metrics: dict[str, float]
    baseline: dict[str, float]
    remarks: list[Remark]
    history: list[dict[str, Any]]
    truth: Array
    predictions: Predictions
    importance: dict[str, tuple[float, float]]

    @property
    def verdict(self) -> str:
        """How good it is in a sentence, beside the best constant and with the doubt that few rows leave."""
        rows = int(self.predictions.finite.sum())
        if not self.metrics:
            return (
                "The model has no finite prediction for the held-out rows: train it anew, with fewer epochs."
            )
        name, constant = ("accuracy", "the most frequent class")
        if not self.model.target.classifies:
            name, constant = ("RMSE", "the mean")
        model, base = self.metrics[name], self.baseline[name]
        doubt = ""
        if name == "accuracy":
            low, high = proportion_interval(round(model * rows), rows)
            doubt = f" (95 % interval {low:.3f} to {high:.3f})"
        said = (
            f"On {rows} held-out rows the model has {name} {model:.4g}{doubt}; "
            f"always answering {constant} has {base:.4g}."
        )
        if (model <= base) == BETTER_HIGH[name]:
            said += " It is no better than that: more rows, other columns or longer training may help."
        return said

    def summary(self) -> dict[str, Any]:
        """A JSON object: what `mlayer fit --json` prints and the report shows."""
        return {
            "target": self.model.target.as_json(),
            "reason": self.reason,
            "verdict": self.verdict,
            "metrics": self.metrics,
            "baseline": self.baseline,
            "columns": [
                {"name": c.name, "kind": c.kind, "features": len(c.features), "said": c.said}
                for c in self.model.schema.columns
            ],
            "remarks": [remark.as_json() | {"said": str(remark)} for remark in self.remarks],
            "importance": {n: list(pair) for n, pair in self.importance.items() if np.isfinite(pair).all()},
            "history": self.history,
            "facts": dict(self.model.facts),
        }


def fit_table(
    frame: DataFrame,
    plan: Plan,
    *,
    estimator: Any = None,
    said: Sequence[Remark] = (),
    on_stage: Callable[[str], None] | None = None,
) -> FitResult:
    """Hold rows out, learn the columns and the model from the others, and measure on what was held out.

    Args:
        frame: the raw table, with the target.
        plan: what to fit, and how.
        estimator: in place of ours, with ``fit(X, y)`` and ``to_mlayer()``; ``plan.training`` is then unused.
        said: remarks from reading the table, which go before the others.
        on_stage: called with a sentence when a part of the work begins and what has been decided.

    Raises:
        ArgumentError: the table or the target cannot be learned from; the message says what to do.
    """
    check_frame(frame)
    if not isinstance(plan, Plan):
        raise ArgumentTypeError("plan", "a Plan", brief(plan), "Write Plan(target='price').")
    if estimator is not None and not (hasattr(estimator, "fit") and hasattr(estimator, "to_mlayer")):
        raise ArgumentTypeError(
            "estimator", "one with fit and to_mlayer", brief(estimator), "For example MLayerRegressor()."
        )
    if not is_several(said) or not all(isinstance(remark, Remark) for remark in said):
        raise ArgumentTypeError("said", "several Remark", brief(said), "read_with_target gives them.")
    function("on_stage", on_stage, "(sentence)")
    say = on_stage or (lambda _: None)
    names = list(map(str, frame.columns))
    if plan.target not in names:
        raise ArgumentError(
            "target", "a column of the table", repr(plan.target), near_columns(plan.target, names)
        )
    if not len(frame):
        raise ArgumentError(
            "the table", "of rows to learn from", "none: names of columns only", "Check how it was written."
        )
    column = frame[plan.target]
    task, reason = guess_task(column) if plan.task == AUTO else (plan.task, "as told")
    target = learn_target(column, task)
    truth, remarks = target.encode(column)
    remarks = [*said, *remarks]
    known = np.flatnonzero(truth >= 0 if target.classifies else np.isfinite(truth))
    frame, truth = frame.drop(columns=plan.target).iloc[known], truth[known]
    train, test = held_out(truth, plan.test_share, plan.seed, classes=target.classifies)
    say(f"{target.task} of {target.name!r} ({reason}): {len(train)} rows to learn from, {len(test)} held out")
    remarks += _single(target, truth)
    schema, learned = learn_schema(frame.iloc[train], drop=plan.drop, max_categories=plan.max_categories)
    for known_column in schema.columns:  # in the held-out rows too
        if isinstance(known_column, Number):
            values = known_column.parse(frame[known_column.name]).values
            check_size(f"the column {known_column.name!r}", values, too_large(known_column.name))
    remarks = merged(remarks + learned)
    if plan.strict:
        refuse(remarks)
    encoded = schema.encode(frame.iloc[train])
    start = time.monotonic()
    say(f"training on {len(schema.features)} numbers a row, from {len(schema.columns)} columns")
    if estimator is None:
        estimator = default_estimator(target, plan.training, plan.seed)
        if plan.training.time_limit is not None:
            estimator = within(estimator, encoded.numbers, truth[train], plan.training.time_limit)
            say(f"at most {estimator.max_iter} epochs, to be done in time")
    if plan.training.bar and getattr(estimator, "alpha", None) == "auto":
        say("first the strength of the ridge is chosen on held-out rows, without a bar; then it trains")
    trained = run(estimator, encoded.numbers, truth[train])
    seconds = time.monotonic() - start
    say("measuring on the held-out rows")
    model = TableModel(trained.layer, schema, target)
    predictions = model.predict(frame.iloc[test])
    metrics = predictions.metrics(truth[test])
    baseline = _baseline(target, truth[train], truth[test])
    facts = {
        "metrics": metrics,
        "baseline": baseline,
        "rows": {"train": len(train), "test": len(test)},
        "parameters": sum(parameter.numel() for parameter in trained.layer.parameters()),
        "seed": plan.seed,
        "seconds": round(seconds, 2),
        "epochs": trained.epochs,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
    }
    model = TableModel(trained.layer, schema, target, facts)
    return FitResult(
        model=model,
        reason=reason,
        metrics=metrics,
        baseline=baseline,
        remarks=merged(
            [*remarks, *trained.remarks, *(r for r in predictions.remarks if r.kind == "overflow")]
        ),
        history=trained.history,
        truth=truth[test],
        predictions=predictions,
        importance=column_importance(model, frame.iloc[test], truth[test], plan.seed),
    )


def _single(target: Target, truth: Array) -> list[Remark]:
    if not target.classifies:
        return []
    single = [target.classes[k] for k in np.flatnonzero(np.bincount(truth) == 1)]
    if not single:
        return []
    said = "classes have one row only, which is used for training and tests nothing"
    return [Remark("single", target.name, len(single), said, True, str(single[0]))]


def _baseline(target: Target, train: Array, test: Array) -> dict[str, float]:
    """The best constant: the frequencies of the classes, or the mean."""
    if not target.classifies:
        return regression_metrics(test, np.full(len(test), train.mean()))
    shares = np.bincount(train, minlength=len(target.classes)) / len(train)
    return classification_metrics(test, np.tile(shares, (len(test), 1)))


def versions() -> dict[str, str]:
    """Of what a model was made with."""
    import torch

    return {"mlayer": __version__, "torch": torch.__version__, "python": platform.python_version()}

"""From a table to a model that has been tested on rows it has not seen."""

from __future__ import annotations

import platform
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.checks import brief, function
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.nn import MLayer
from mlayer.numerics.arrays import AnyArray
from mlayer.numerics.conformal import pooled
from mlayer.numerics.horizon import HorizonErrors
from mlayer.numerics.persistence import Persistence
from mlayer.numerics.spread import Spread
from mlayer.tables.columns.measured import far_out
from mlayer.tables.fit.codes import with_codes
from mlayer.tables.fit.giveaway import giveaways
from mlayer.tables.fit.labeled import Labeled, label
from mlayer.tables.fit.plan import RANDOM, TIME, Plan, Training
from mlayer.tables.fit.rare import with_rare
from mlayer.tables.fit.result import FitResult, column_importance, kept_errors, series_of
from mlayer.tables.fit.split import TableSplit, split_rows
from mlayer.tables.fit.tails import with_tails
from mlayer.tables.horizon import growth_ends, horizon_facts, shift_remarks
from mlayer.tables.metrics import classification_metrics, readable, regression_metrics
from mlayer.tables.model import TableModel
from mlayer.tables.predict import refuse
from mlayer.tables.remarks import Remark, counted, merged
from mlayer.tables.schema import Schema, check_frame, learn_schema
from mlayer.tables.target import AUTO, Target
from mlayer.version import __version__

if TYPE_CHECKING:
    from pandas import DataFrame

    from mlayer.estimators.watch import Watch


# Of the time limit; the rest is for measuring.
_TRAINING_SHARE = 0.9
# Remarks about the predictions of the held-out rows that concern the model.
_OF_PREDICTIONS = ("overflow", "beyond")
_NAMELESS = re.compile(r"Unnamed: \d+")  # the names of columns without one


def fit_table(
    frame: DataFrame | Labeled,
    plan: Plan,
    *,
    estimator: Any = None,
    on_stage: Callable[[str], None] | None = None,
    on_progress: Callable[[float, str], None] | None = None,
) -> FitResult:
    """Hold rows out, learn the columns and the model from the others, and measure on what was held out.

    Args:
        frame: the raw table, with the target; or what :func:`read_with_target` made of a file.
        plan: what to fit, and how.
        estimator: in place of ours, with ``fit(X, y)`` and ``to_mlayer()``; ``plan.training`` is then unused.
        on_stage: called with a sentence when a part of the work begins and what has been decided.
        on_progress: called with the part of the training that is done, from 0 to 1, and what is being done.

    Raises:
        ArgumentError: the table or the target cannot be learned from; the message says what to do.
    """
    if not isinstance(plan, Plan):
        raise ArgumentTypeError("plan", "a Plan", brief(plan), "Write Plan(target='price').")
    if estimator is not None and not (hasattr(estimator, "fit") and hasattr(estimator, "to_mlayer")):
        raise ArgumentTypeError(
            "estimator", "one with fit and to_mlayer", brief(estimator), "For example MLayerRegressor()."
        )
    function("on_stage", on_stage, "(sentence)")
    function("on_progress", on_progress, "(part, text)", 2)
    begin = time.monotonic()
    say = on_stage or (lambda _: None)
    rows = _labeled(frame, plan).with_positive(plan.positive)
    target, frame, truth = rows.target, rows.frame, rows.truth
    split = split_rows(rows, plan.test_share, plan.seed, plan.split, plan.drop)
    train, test = split.train, split.test
    counts = f"{len(train)} rows to learn from, {len(test)} held out"
    if split.date is not None:
        counts += f", the last ones by {split.date.name!r}"
    say(f"{target.task} of {target.name!r} ({rows.reason}): {counts}")
    schema, learned = _learned(rows, train, plan, split.same)
    for column in schema.columns:  # in the held-out rows too
        column.check(frame[column.name])
    encoded = schema.encode(frame.iloc[train])
    same = None if split.same is None else split.same[train]
    suspicious = giveaways(schema, encoded.numbers, target, truth[train], same)
    remarks = merged([*suspicious, *rows.remarks, *_copies(split), *_about_target(target, truth), *learned])
    if plan.strict:
        refuse(remarks)
    start = time.monotonic()
    numbers, columns = counted(len(schema.features), "number"), counted(len(schema.columns), "column")
    say(f"training on {numbers} per row, from {columns}")
    from mlayer.estimators.watch import Watch

    left = None
    if plan.training.time_limit is not None:
        left = _TRAINING_SHARE * max(0.0, plan.training.time_limit - (time.monotonic() - begin))
    again = split.date is not None and estimator is None
    if estimator is None:
        estimator = default_estimator(target, plan, schema)
        if again:
            left = None if left is None else left / 2  # the second half is for the fit to all rows
        estimator._series = split.date is not None
    estimator._watch = Watch(left, on_progress)
    trained = run(estimator, encoded.numbers, truth[train])
    if not trained.continues:
        schema, held = _held_dates(schema)
        remarks = merged([*remarks, *held])
    seconds = time.monotonic() - start
    say("measuring on the held-out rows")
    ends = {} if target.classifies else {"range": [float(truth[train].min()), float(truth[train].max())]}
    model = TableModel(trained.layer, schema, target, ends, plan.threshold)
    predictions = model.predict(frame.iloc[test])
    metrics = predictions.metrics(truth[test])
    errors = None if target.classifies else np.abs(predictions.outputs - truth[test])[predictions.finite]
    baseline = _baseline(target, truth[train], truth[test])
    nameless = sum(bool(_NAMELESS.fullmatch(str(name))) for name in {*frame.columns, target.name})
    facts: dict[str, Any] = {
        "metrics": metrics,
        "baseline": baseline,
        "rows": {"train": len(train), "test": len(test)},
        "parameters": sum(parameter.numel() for parameter in trained.layer.parameters()),
        "seed": plan.seed,
        "seconds": round(seconds, 2),
        "epochs": trained.epochs,
        "split": RANDOM if split.date is None else TIME,
        **({"nameless": nameless} if nameless > 1 else {}),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        **ends,
    }
    if errors is not None:
        # Few held-out rows leave the quantile to chance: those of the training that were held out join them.
        more = trained.held_out if trained.held_out is not None and split.date is None else np.empty(0)
        facts |= {"errors": kept_errors(pooled(errors, more))}
    scores = None
    if errors is not None and trained.spread is not None and split.date is None:
        sizes = trained.spread.at(schema.encode(frame.iloc[test]).numbers, predictions.outputs)
        scores = errors / sizes[predictions.finite]
        facts |= {"spread": trained.spread.as_json(), "scores": kept_errors(scores)}
    facts |= {"periods": trained.periods} if trained.periods else {}
    half = None
    if split.date is not None and not target.classifies:
        facts |= _horizon(split, rows, split.train, trained, predictions.outputs)
        half = TableModel(trained.layer, schema, target, facts).half_widths(
            frame.iloc[test], 0.9, predictions.outputs
        )
    model = TableModel(trained.layer, schema, target, facts, plan.threshold)
    importance = column_importance(model, frame.iloc[test], truth[test], plan.seed)
    if again:
        say("fitting again to all rows, the last dates included")
        schema, trained = _again(rows, plan, estimator, Watch(left, on_progress), split.same)
        facts = {name: value for name, value in facts.items() if name != "periods"}
        if "range" in facts:
            facts["range"] = [float(truth.min()), float(truth.max())]
        facts |= {"periods": trained.periods} if trained.periods else {}
        facts |= {"shifts": [list(shift) for shift in trained.shifts]} if trained.shifts else {}
        if half is not None:
            facts |= _horizon(split, rows, np.arange(len(truth)), trained, predictions.outputs)
        model = TableModel(trained.layer, schema, target, facts | {"fitted to": "all rows"}, plan.threshold)
        remarks = merged([remark for remark in remarks if remark.kind != "held"])
        if not trained.continues:
            remarks = merged([*remarks, *_held_dates(schema)[1]])
    if trained.continues and split.date is not None:
        said = (
            f"after the last date the forecast is {trained.continues}; of the rules compared, this one "
            "forecast the earlier data best"
        )
        if trained.rate is not None:
            said += f"; the growth slows down from {growth_ends(facts['horizon'])} on"
        shifts = shift_remarks(split.date, trained.shifts)
        remarks = merged([*remarks, *shifts, Remark("forecast", split.date.name, 0, said)])
    return FitResult(
        model=model,
        reason=rows.reason,
        metrics=metrics,
        baseline=baseline,
        remarks=merged(
            [*remarks, *trained.remarks, *(r for r in predictions.remarks if r.kind in _OF_PREDICTIONS)]
        ),
        history=trained.history,
        truth=truth[test],
        predictions=predictions,
        importance=importance,
        series=None
        if split.date is None or half is None
        else series_of(split, rows, predictions.outputs, half),
        half=half,
        scores=scores,
    )


def _learned(
    rows: Labeled, chosen: AnyArray, plan: Plan, same: AnyArray | None
) -> tuple[Schema, list[Remark]]:
    """The columns, from the chosen rows; of rows with the same number, if any, from the first."""
    if same is not None:  # with copies an identifier would not differ in every row
        chosen = np.sort(chosen[np.unique(same[chosen], return_index=True)[1]])
    part = rows.frame.iloc[chosen]
    schema, learned = learn_schema(part, drop=plan.drop, max_categories=plan.max_categories)
    schema, codes = with_codes(schema, part, rows.target, rows.truth[chosen], plan.max_categories)
    schema, followed = with_tails(schema, part, rows.target, rows.truth[chosen])
    schema, small = with_rare(schema, part, rows.target, rows.truth[chosen], plan.max_categories)
    now = {"far": followed, "rare": set(small)}
    learned = [said for said in learned if said.column not in now.get(said.kind, ())]
    return schema, [*learned, *codes, *small.values()]


def _again(
    rows: Labeled, plan: Plan, before: Any, watch: Watch, same: AnyArray | None
) -> tuple[Schema, TrainedTable]:
    """The same kind of model with the same ridge, learned from all rows.

    A forecast starts where the table ends; a model that has not seen the last fifth starts too early.
    """
    schema, _ = _learned(rows, np.arange(len(rows.truth)), plan, same)
    estimator = default_estimator(rows.target, plan, schema)
    way = getattr(before, "way_", None)
    if way is None and hasattr(before, "alpha_"):
        estimator.set_params(alpha=before.alpha_)
    estimator._watch, estimator._way = watch, way or False
    estimator._series = True
    trained = run(estimator, schema.encode(rows.frame).numbers, rows.truth)
    return schema if trained.continues else _held_dates(schema)[0], trained


def _horizon(
    split: TableSplit, rows: Labeled, fitted: AnyArray, trained: TrainedTable, outputs: AnyArray
) -> dict[str, Any]:
    """Errors by horizon of a model of the ``fitted`` rows: of forecasts of the past or of the held-out rows.

    ``outputs`` are the predictions for the held-out rows.
    """
    assert split.date is not None
    days = split.date.parse(rows.frame[split.date.name]).values
    past = trained.rolling
    if past is None:
        horizons = days[split.test] - np.nanmax(days[split.train])
        past = horizons, outputs, np.abs(outputs - rows.truth[split.test])
    known = np.isfinite(past[0]) & np.isfinite(past[2])
    if not known.any():
        return {}
    horizons, forecasts, errors = (each[known] for each in past)
    found = HorizonErrors.of(
        horizons, forecasts, errors, trained.floor, grows=trained.rate is not None, factors=trained.scales
    )
    return {"horizon": horizon_facts(split.date, days[fitted], found, trained.rate)}


def _held_dates(schema: Schema) -> tuple[Schema, list[Remark]]:
    """Dates kept inside the range of the training table, where no waves extrapolate the target."""
    held = [column.held() for column in schema.columns]
    return Schema(tuple(column for column, _ in held)), [remark for _, said in held for remark in said]


def _copies(split: TableSplit) -> list[Remark]:
    said, one = "rows are exact copies of earlier ones", "row is an exact copy of an earlier one"
    if split.together:
        said, one = (f"{text}; copies were held out together" for text in (said, one))
    return [Remark("copies", "", split.copies, said, one=one)] if split.copies else []


def _about_target(target: Target, truth: AnyArray) -> list[Remark]:
    """Classes of a single row; values that are far from the others."""
    if not target.classifies:
        count, least, most = far_out(truth)
        if not count:
            return []
        said = (
            f"rows have a target far from the others, beyond {readable(least)} to {readable(most)}: they "
            "decide the fit and its errors. Correct them, or empty those cells to leave the rows out"
        )
        one = (
            f"row has a target far from the others, beyond {readable(least)} to {readable(most)}: it "
            "decides the fit and its errors. Correct it, or empty that cell to leave the row out"
        )
        example = readable(float(truth[np.abs(truth - np.median(truth)).argmax()]))
        return [Remark("far target", target.name, count, said, True, example, one)]
    single = [target.classes[k] for k in np.flatnonzero(np.bincount(truth) == 1)]
    if not single:
        return []
    rest = " one row only, which is used for training and tests nothing"
    said, one = f"classes have{rest}", f"class has{rest}"
    return [Remark("single", target.name, len(single), said, True, str(single[0]), one)]


def _baseline(target: Target, train: AnyArray, test: AnyArray) -> dict[str, float]:
    """The best constant: the frequencies of the classes, or the mean."""
    if not target.classifies:
        return regression_metrics(test, np.full(len(test), train.mean()))
    shares = np.bincount(train, minlength=len(target.classes)) / len(train)
    return classification_metrics(test, np.tile(shares, (len(test), 1)))


def versions() -> dict[str, str]:
    """Versions of the software that a model was made with."""
    import torch

    return {"mlayer": __version__, "torch": torch.__version__, "python": platform.python_version()}


def _labeled(frame: DataFrame | Labeled, plan: Plan) -> Labeled:
    if not isinstance(frame, Labeled):
        check_frame(frame)
        return label(frame, plan.target, plan.task)
    had = (frame.target.name, frame.target.task)
    if plan.target != had[0] or plan.task not in (AUTO, had[1]):
        raise ArgumentError(
            "plan",
            f"of the target and task of the rows, {had[0]!r} and {had[1]!r}",
            f"{plan.target!r} and {plan.task!r}",
            "Give read_with_target and Plan the same.",
        )
    return frame


@dataclass(frozen=True)
class TrainedTable:
    """A layer on encoded rows, and how it came about."""

    layer: MLayer
    history: list[dict[str, Any]]
    epochs: int
    remarks: list[Remark]
    periods: list[tuple[int, float]]
    continues: str = ""  # how a series continues after its last row; empty if it is held there
    rolling: tuple[AnyArray, AnyArray, AnyArray] | None = None  # horizons, forecasts, errors of the past
    spread: Spread | None = None  # how the size of errors depends on the row
    # how far the level of a series may wander, its step, and whether that is a share of the forecast
    floor: tuple[Persistence, float, bool] | None = None
    held_out: AnyArray | None = None  # absolute errors of training rows, each by a fit to other rows
    scales: bool = False  # whether groups have factors
    rate: float | None = None  # of a series that grows at a constant rate, of its logarithm for each day
    shifts: tuple[tuple[float, float], ...] = ()  # of its level: the last day before each, and the gain


def default_estimator(target: Target, plan: Plan, schema: Schema) -> Any:
    """Ours, with the settings of ``plan``; waves may run along dates."""
    from mlayer.estimators import MLayerClassifier, MLayerRegressor

    settings: dict[str, Any] = {"random_state": plan.seed}
    for field in fields(Training):
        value = getattr(plan.training, field.name)
        if value is not None and field.name != "time_limit":  # a `Watch` keeps the time
            settings["max_iter" if field.name == "epochs" else field.name] = value
    if target.classifies:
        return MLayerClassifier(class_weight="balanced" if plan.balanced else None, **settings)
    return MLayerRegressor(periodic=schema.dates or "auto", **settings)


def run(estimator: Any, x: AnyArray, y: AnyArray) -> TrainedTable:
    """Fit the estimator to encoded rows; what it warns of becomes remarks."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(x, y)
    history = [dict(record) for record in getattr(estimator, "history_", [])]
    said = dict.fromkeys(
        str(warning.message) for warning in caught if warning.category is not DeprecationWarning
    )
    remarks = [Remark("training", "", 0, text) for text in said]
    epochs = int(getattr(estimator, "n_iter_", len(history)))
    periods = list(estimator.periods_) if getattr(estimator, "periodic_", False) else []
    way = getattr(estimator, "way_", None)
    continues = "the waves, continued" if periods and way is None else "" if way is None else way.description
    rolling = getattr(estimator, "rolling_", None)
    spread = getattr(estimator, "_spread", None)
    layer, floor = estimator.to_mlayer(), getattr(estimator, "floor_", None)
    held_out = getattr(estimator, "_held_out", None)
    if held_out is not None:
        held_out = held_out[:, 0] * float(estimator._outputs.deviation[0])
    return TrainedTable(
        layer,
        history,
        epochs,
        remarks,
        periods,
        continues,
        rolling,
        spread,
        floor,
        held_out,
        way is not None and way.scales,
        getattr(estimator, "rate_", None),
        tuple(getattr(estimator, "shifts_", ())),
    )

"""The result of a fit: the model, its metrics on held-out rows, and the importance of its columns.

The importance of a column is how much worse the predictions get when its cells are permuted: Breiman,
"Random forests", Machine Learning 45 (2001), section 10; here on held-out rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlayer.numerics.arrays import AnyArray
from mlayer.numerics.conformal import half_width, measured_coverage
from mlayer.tables.fit.labeled import Labeled
from mlayer.tables.fit.plan import TIME
from mlayer.tables.fit.split import TableSplit
from mlayer.tables.metrics import BETTER_HIGH, proportion_interval, rarer_class, readable
from mlayer.tables.model import Predictions, TableModel
from mlayer.tables.remarks import Remark, counted, listed

if TYPE_CHECKING:
    from pandas import DataFrame

# Of the importance of columns: rows used, and how often each column is shuffled.
_ROWS = 1000
_TIMES = 3
_ERRORS = 500  # that are kept for intervals
_SEEN = 2.0  # times the range of a column: the longest period that is named


@dataclass(frozen=True)
class TimeSeries:
    """The target over time; rows of one moment are averaged.

    Attributes:
        column: the name of the date column.
        before: moments of the training rows, as numpy dates, and their values.
        after: moments of the held-out rows, the true values and the predicted ones.
        half: of the held-out rows' moments, half of the width of the 90% intervals.
    """

    column: str
    before: tuple[AnyArray, AnyArray]
    after: tuple[AnyArray, AnyArray, AnyArray]
    half: AnyArray


def series_of(split: TableSplit, rows: Labeled, predicted: AnyArray, half: AnyArray) -> TimeSeries:
    """The series of a table that was split by time."""
    assert split.date is not None
    days = split.date.parse(rows.frame[split.date.name]).values + split.date.origin

    def means(chosen: AnyArray, *values: AnyArray) -> tuple[AnyArray, ...]:
        there = np.isfinite(days[chosen])
        moments, place = np.unique(days[chosen][there], return_inverse=True)
        dates = (moments * 86400).round().astype("datetime64[s]")
        return (dates, *(np.bincount(place, v[there]) / np.bincount(place) for v in values))

    before = means(split.train, rows.truth[split.train])
    after = means(split.test, rows.truth[split.test], predicted, half)
    return TimeSeries(split.date.name, (before[0], before[1]), (after[0], after[1], after[2]), after[3])


def kept_errors(errors: AnyArray) -> list[float]:
    """Errors for the model file: all, or, of many, quantiles that are never smaller than theirs."""
    ordered = np.sort(errors)
    if len(ordered) > _ERRORS:
        ordered = ordered[np.ceil(np.arange(1, _ERRORS + 1) * len(ordered) / _ERRORS).astype(int) - 1]
    return [float(f"{value:.6g}") for value in ordered]


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
        series: the target over time, where the last dates were held out.
        half: of a series, half of the widths of the held-out rows' 90% intervals, from earlier rows.
        scores: absolute errors on the held-out rows over their size, where that depends on the row.
    """

    model: TableModel
    reason: str
    metrics: dict[str, float]
    baseline: dict[str, float]
    remarks: list[Remark]
    history: list[dict[str, Any]]
    truth: AnyArray
    predictions: Predictions
    importance: dict[str, tuple[float, float]]
    series: TimeSeries | None = None
    half: AnyArray | None = None
    scores: AnyArray | None = None

    @property
    def errors(self) -> AnyArray:
        """Absolute errors on the held-out rows, of a quantity."""
        finite = self.predictions.finite
        return np.abs(self.predictions.outputs - self.truth)[finite]

    @property
    def periods(self) -> list[str]:
        """A description of the periods of the model's waves; empty if it has none."""
        owners = [column for column in self.model.schema.columns for _ in column.features]
        found = [(owners[place], length) for place, length in self.model.facts.get("periods", [])]
        # A wave that is much longer than the data is a bend: its period says nothing.
        said = [column.length(amount) for column, amount in found if amount <= _SEEN * column.extent]
        return list(dict.fromkeys(said))  # waves of nearly the same length follow a season that changes

    @property
    def verdict(self) -> str:
        """The quality in a sentence: compared with the best constant, with the uncertainty of few rows."""
        rows = int(self.predictions.finite.sum())
        if not self.metrics:
            return (
                "The model has no finite prediction for the held-out rows: train it again, with fewer epochs."
            )
        first = next(iter(self.metrics))
        name, constant = ("accuracy", "the most frequent class")
        if not self.model.target.classifies:
            name, constant = ("RMSE", "the mean")
        elif first == "ROC AUC":
            return self._imbalanced(rows)
        model, base = self.metrics[name], self.baseline[name]
        doubt = ""
        if name == "accuracy":
            low, high = proportion_interval(round(model * rows), rows)
            doubt = f" (95% interval {low:.3f} to {high:.3f})"
        where = counted(rows, "held-out row")
        if self.model.facts.get("split") == TIME:
            where = "the row with the last date" if rows == 1 else f"the {rows:,} rows with the last dates"
        said = (
            f"On {where} the model's {name} is {readable(model)}{doubt}; "
            f"that of always predicting {constant} is {readable(base)}."
        )
        if (model <= base) == BETTER_HIGH[name]:
            said += " The model is no better: more rows, other columns or longer training may help."
        if self.periods:
            many = "periods" if len(self.periods) > 1 else "a period"
            said += f" It is made of waves with {many} of {listed(self.periods)}."
        if self.half is not None and np.isfinite(self.half).all():
            covered = np.mean(np.abs(self.predictions.outputs - self.truth) <= self.half)
            ends = [readable(float(end)) for end in (self.half.min(), self.half.max())]
            said += f" The 90% intervals, +- {ends[0]} to +- {ends[1]}, contain {covered:.0%} of these rows."
        elif not self.model.target.classifies:
            said += self._constant_intervals() if self.scores is None else self._intervals(self.scores)
        return said

    def _constant_intervals(self) -> str:
        covered = measured_coverage(self.errors, 0.9)
        if covered is None or not self.model.facts.get("errors"):
            return ""
        half = self.model.half_width(0.9)
        if len(self.model.facts["errors"]) > len(self.errors):  # from more than the held-out rows
            covered = float(np.mean(self.errors <= half))
        return f" A prediction +- {readable(half)} contains {covered:.0%} of these rows (90% requested)."

    def _intervals(self, scores: AnyArray) -> str:
        """Intervals whose width depends on the row, by the sizes that belong to the scores."""
        covered = measured_coverage(scores, 0.9)
        if covered is None:
            return ""
        sizes = np.divide(self.errors, scores, out=np.full(len(scores), np.nan), where=scores > 0)
        halves = half_width(scores, 0.9) * np.nanquantile(sizes, [0.1, 0.9])
        return (
            f" A prediction +- {readable(float(halves[0]))} to +- {readable(float(halves[1]))}, by the row, "
            f"contains {covered:.0%} of these rows (90% requested)."
        )

    def _imbalanced(self, rows: int) -> str:
        rare = rarer_class(self.truth)
        name = self.model.target.classes[rare]
        share = float((self.truth == rare).mean())
        common = self.model.target.classes[1 - rare]
        count = int((self.predictions.choices != rare).sum())
        return (
            f"On {rows:,} held-out rows, of which {share:.1%} are {name!r}, the model has ROC AUC "
            f"{self.metrics['ROC AUC']:.3f} (chance: 0.5) and average precision "
            f"{self.metrics['average precision']:.3f} (chance: {share:.3f}). "
            f"{count:,} of {rows:,} predictions are {common!r}; --balanced and --threshold change how many."
        )

    def summary(self) -> dict[str, Any]:
        """A JSON object: what `mlayer fit --json` prints and the report shows."""
        return {
            "target": self.model.target.as_json(),
            "reason": self.reason,
            "verdict": self.verdict,
            "metrics": self.metrics,
            "baseline": self.baseline,
            "columns": [
                {"name": c.name, "kind": c.kind, "features": len(c.features), "said": c.description}
                for c in self.model.schema.columns
            ],
            "remarks": [remark.as_json() | {"said": str(remark)} for remark in self.remarks],
            "importance": {n: list(pair) for n, pair in self.importance.items() if np.isfinite(pair).all()},
            "history": self.history,
            "facts": dict(self.model.facts),
        }


def importance_metric(model: TableModel) -> str:
    """The metric by which the importance of a column is measured."""
    if not model.target.classifies:
        return "RMSE"
    return "ROC AUC" if next(iter(model.facts.get("metrics", {})), "") == "ROC AUC" else "accuracy"


def column_importance(
    model: TableModel, frame: DataFrame, truth: AnyArray, seed: int
) -> dict[str, tuple[float, float]]:
    """For each column the loss of accuracy, or the gain of RMSE, by shuffling it: mean and largest deviation.

    Args:
        model: the model.
        frame: rows that it was not fitted to.
        truth: their targets, as :meth:`Target.encode` gives them.
        seed: of the shuffling and of the choice of at most 1000 rows.
    """
    draw = np.random.default_rng(seed)
    if len(frame) > _ROWS:
        chosen = draw.choice(len(frame), _ROWS, replace=False)
        frame, truth = frame.iloc[chosen], truth[chosen]
    inputs, _ = model.encode(frame)
    name = importance_metric(model)
    sign = -1.0 if model.target.classifies else 1.0

    def score(outputs: AnyArray) -> float:
        return Predictions(outputs, model.target, []).metrics(truth).get(name, np.nan)

    base, result = score(model.outputs(inputs)), {}
    for column, places in model.schema.placed:
        changed = inputs.repeat(_TIMES, 1)  # one call for all shuffles of a column
        shuffled = np.concatenate([draw.permutation(len(inputs)) for _ in range(_TIMES)])
        changed[:, places] = inputs[shuffled][:, places]
        rises = [sign * (score(each) - base) for each in np.split(model.outputs(changed), _TIMES)]
        result[column.name] = (float(np.mean(rises)), float(np.ptp(rises) / 2))
    return result

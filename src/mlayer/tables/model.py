"""A layer with the way from a raw table to its inputs, in one file. Prediction needs no scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mlayer.checks import brief
from mlayer.errors import ArgumentError, ArgumentTypeError, FileFormatError, check_format
from mlayer.files import load_with_notes, save
from mlayer.nn import MLayer
from mlayer.numerics.arrays import AnyArray
from mlayer.numerics.conformal import half_width
from mlayer.numerics.spread import Spread
from mlayer.numerics.torch_memory import in_torch_memory
from mlayer.tables.horizon import check_horizon, check_shifts, slowed, widths_of_forecasts
from mlayer.tables.metrics import BETTER_HIGH, classification_metrics, readable, regression_metrics
from mlayer.tables.remarks import Remark
from mlayer.tables.schema import Schema
from mlayer.tables.target import Target

if TYPE_CHECKING:
    from pandas import DataFrame

# 2: columns of durations, and of dates as weeks, quarters, numbers or the clock of a place. 3: dates with
# months in words and clocks in any format, amounts in several units of one kind, numbers for missing cells.
# 4: units in singular and plural, of the calendar, of the compass and imperial; numbers next to magnitudes.
TABLE_FORMAT = 4
_BATCH = 4096  # rows predicted at once
SLACK = 0.1  # of the range of the targets, as columns allow it beyond theirs
# x^10 on [0, 1] goes as far beyond it as any prediction may: further than the laws that tables follow.
DEGREE = 10


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model for the rows of a table.

    Attributes:
        outputs: regression: (rows,) values; classification: (rows, classes) probabilities. NaN in the rows
            where the layer overflowed.
        target: what was predicted.
        remarks: notes for the user about the rows.
        threshold: of two classes, the probability of the second from which it is the answer; None for half.
    """

    outputs: AnyArray
    target: Target
    remarks: list[Remark]
    threshold: float | None = None

    @property
    def finite(self) -> AnyArray:
        """Rows with an answer."""
        finite: AnyArray = np.isfinite(self.outputs)
        return np.asarray(finite.all(axis=1)) if finite.ndim == 2 else finite

    @property
    def labels(self) -> list[Any]:
        """The likeliest class, or the value, of each row; None without an answer."""
        if not self.target.classifies:
            return [float(v) if np.isfinite(v) else None for v in self.outputs]
        best = self.choices
        return [self.target.classes[k] if ok else None for k, ok in zip(best, self.finite, strict=True)]

    @property
    def choices(self) -> AnyArray:
        """Numbers of the predicted classes."""
        if self.threshold is not None and self.outputs.shape[1] == 2:
            chosen: AnyArray = (self.outputs[:, 1] >= self.threshold).astype(np.int64)
            return chosen
        return np.asarray(np.where(np.isnan(self.outputs), -1.0, self.outputs).argmax(axis=1))

    def metrics(self, truth: AnyArray) -> dict[str, float]:
        """Against :meth:`Target.encode`'s numbers, over rows that have both a truth and an answer."""
        truth = np.asarray(truth)
        count, most = len(self.outputs), len(self.target.classes)
        if truth.shape != (count,) or truth.dtype.kind not in "iuf":
            raise ArgumentError(
                "truth",
                f"{count} numbers, one per row",
                f"{truth.dtype}, shape {truth.shape}",
                "Use target.encode(column)[0].",
            )
        if self.target.classifies and len(truth) and truth.max() >= most:
            raise ArgumentError(
                "truth", f"class numbers below {most}", f"{truth.max()}", "Use target.encode(column)[0]."
            )
        known = self.finite & ((truth >= 0) if self.target.classifies else np.isfinite(truth))
        if not known.any():
            return {}
        if not self.target.classifies:
            return regression_metrics(truth[known], self.outputs[known])
        return classification_metrics(truth[known], self.outputs[known], self.choices[known])


@dataclass(frozen=True)
class TableModel:
    """A layer, the columns it takes, and the target it predicts.

    Attributes:
        layer: from encoded rows to logits (classification) or the value (regression).
        schema: from raw columns to encoded rows.
        target: name, task and classes.
        facts: metrics of the fit, versions and similar; a JSON object.
        threshold: of two classes, the probability of the second from which it is predicted; None for half.
    """

    layer: MLayer
    schema: Schema
    target: Target
    facts: Mapping[str, Any] = field(default_factory=dict)
    threshold: float | None = None

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that a csv reader must not turn into numbers; the target too, if its labels are text."""
        labels = any(isinstance(label, str) for label in self.target.classes) or self.target.notation
        return (*self.schema.text_columns, *([self.target.name] if labels else []))

    def encode(self, frame: DataFrame) -> tuple[torch.Tensor, list[Remark]]:
        """The layer's inputs for a raw table, (rows, in_features), and remarks about them."""
        encoded = self.schema.encode(frame)
        return in_torch_memory(encoded.numbers).to(self.layer.readout.dtype), encoded.remarks

    def predict(self, frame: DataFrame) -> Predictions:
        """Predictions for a raw table."""
        inputs, remarks = self.encode(frame)
        outputs = self.outputs(inputs)
        if not self.target.classifies:
            outputs = slowed(self.facts.get("horizon", {}), self.schema, frame, outputs)
            outputs = self.limited(outputs, self.schema.beyond(inputs.double().numpy()))
        predictions = Predictions(outputs, self.target, remarks, self.threshold)
        bad = int((~predictions.finite).sum())
        if bad:
            said = "rows have no prediction: their numbers are so large that the exponential overflows"
            one = "row has no prediction: its numbers are so large that the exponential overflows"
            remarks.append(Remark("overflow", "", bad, said, strict=True, one=one))
        remarks += self._beyond(predictions.outputs)
        return predictions

    def limited(self, outputs: AnyArray, beyond: AnyArray | float = 0.0) -> AnyArray:
        """Values of a quantity no further beyond the targets of the fit than a tenth of their range.

        None is negative if no target was: of rows like those of the fit the truth is like theirs, and nearer
        to it by a projection. Rows ``beyond`` the fit, by that part of the range of a column, are
        extrapolated, for which the layer is made: they may go as far as a polynomial of high degree does, so
        that a row at the edge is treated as its neighbors inside are.
        """
        least, most = self.facts.get("range", (0.0, 0.0))
        if not least < most:
            return outputs
        slack = SLACK * (most - least)
        low = least - slack if least < 0 else max(least - slack, 0.0)
        with np.errstate(over="ignore"):
            more = (most - least) * np.expm1(DEGREE * np.log1p(np.asarray(beyond)))
            bounded = np.clip(outputs, low - more, most + slack + more)
        # An overflow beyond the fit has no value.
        return np.where(np.isfinite(outputs) | (more == 0), bounded, outputs)

    def _beyond(self, outputs: AnyArray) -> list[Remark]:
        """A remark about values that no target of the fit comes near: further out than all of them reach."""
        least, most = self.facts.get("range", (0.0, 0.0))
        if self.target.classifies or not least < most:
            return []
        outside = np.maximum(outputs - most, least - outputs) > most - least
        count = int(outside.sum())
        rest = f"far beyond the targets of the fit ({readable(least)} to {readable(most)}): check the inputs"
        said, one = f"predictions lie {rest} of these rows", f"prediction lies {rest} of this row"
        example = readable(float(outputs[outside][0])) if count else ""
        return [Remark("beyond", self.target.name, count, said, example=example, one=one)] if count else []

    def half_width(self, coverage: float) -> float:
        """Half of the width of intervals that hold the truth with probability ``coverage``.

        From the errors on the held-out rows of the fit: see `mlayer.numerics.conformal`.
        """
        errors = self.facts.get("errors")
        if self.target.classifies or not errors:
            came, hint = "one that was fitted without them", "Fit it again."
            if self.target.classifies:
                came = "a classifier"
                hint = "Leave the interval out; --proba, or predict(table).outputs, gives probabilities."
            raise ArgumentError("the model", "one for a quantity, with errors of held-out rows", came, hint)
        return half_width(np.asarray(errors, dtype=np.float64), coverage)

    def half_widths(self, frame: DataFrame, coverage: float, outputs: AnyArray | None = None) -> AnyArray:
        """Half of the width for each row of a raw table; that of a forecast grows with its horizon.

        Otherwise it depends on the row where the errors on the training rows did (`mlayer.numerics.spread`).

        Args:
            frame: the raw table.
            coverage: the probability that an interval is to have.
            outputs: the predictions for it, where they are known.
        """
        entry = self.facts.get("horizon")
        if self.target.classifies or (entry is None and "spread" not in self.facts):
            return np.full(len(frame), self.half_width(coverage))
        predictions = self.predict(frame).outputs if outputs is None else outputs
        if entry is not None:
            return widths_of_forecasts(entry, self.schema, frame, predictions, coverage)
        spread = Spread.from_json(self.facts["spread"], self.layer.in_features)
        quantile = half_width(np.asarray(self.facts["scores"], dtype=np.float64), coverage)
        return quantile * spread.at(self.schema.encode(frame).numbers, predictions)

    @torch.inference_mode()
    def outputs(self, inputs: torch.Tensor) -> AnyArray:
        """Probabilities or values for encoded rows, float64."""
        width = self.layer.in_features
        if not isinstance(inputs, torch.Tensor) or inputs.dim() != 2 or inputs.shape[1] != width:
            came = f"shape {tuple(inputs.shape)}" if isinstance(inputs, torch.Tensor) else brief(inputs)
            raise ArgumentTypeError("inputs", f"a tensor (rows, {width})", came, "Use encode(frame)[0].")
        parts = [self.layer(part) for part in inputs.split(_BATCH)] or [self.layer(inputs)]
        raw = torch.cat(parts).double()
        raw[~raw.isfinite().all(dim=1)] = torch.nan
        result: AnyArray = (raw.softmax(dim=1) if self.target.classifies else raw[:, 0]).numpy()
        return result

    def save(self, path: str | Path) -> None:
        """Write one safetensors file; `mlayer.load` reads its layer."""
        save(self.layer, path, notes={"table": self.as_json()})

    def as_json(self) -> dict[str, Any]:
        """The entry "table" of the file's notes."""
        return {
            "format": TABLE_FORMAT,
            "columns": self.schema.as_json(),
            "target": self.target.as_json(),
            "facts": dict(self.facts),
            **({} if self.threshold is None else {"threshold": self.threshold}),
        }


def load_table_model(path: str | Path) -> TableModel:
    """Read a model that :meth:`TableModel.save` wrote.

    Raises:
        FileFormatError: damaged, too new, or a plain layer without a table.
    """
    layer, notes = load_with_notes(path)
    return table_model(path, layer, notes)


def table_model(path: str | Path, layer: MLayer, notes: Mapping[str, Any] | None) -> TableModel:
    """The model of a file that has been read."""
    entry = (notes or {}).get("table")
    if entry is None:
        raise FileFormatError(
            path,
            "a model of mlayer fit",
            "a layer without a table",
            "Use it from Python: mlayer.load(path); or fit one: mlayer fit TABLE --target COL",
        )
    try:
        check_format(path, entry["format"], TABLE_FORMAT, "table format")
        schema, target = Schema.from_json(entry["columns"]), Target.from_json(entry["target"])
        facts = _checked_facts(entry["facts"])
        if "horizon" in facts:
            check_horizon(facts["horizon"], schema)
        check_shifts(facts, schema)
        if "spread" in facts:
            Spread.from_json(facts["spread"], layer.in_features)
        threshold = entry.get("threshold")
        if not (threshold is None or (isinstance(threshold, float) and 0 < threshold < 1)):
            raise ValueError(f"threshold {threshold!r}")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(
            path, "consistent", f"a damaged table entry ({error!r:.300})", "Get it again."
        ) from None
    wanted = (len(schema.features), len(target.classes) if target.classifies else 1)
    if (layer.in_features, layer.out_features) != wanted:
        raise FileFormatError(
            path,
            "consistent",
            f"a layer from {layer.in_features} to {layer.out_features} numbers for a table of {wanted}",
            "Get it again.",
        )
    return TableModel(layer, schema, target, facts, threshold)


def _checked_facts(facts: Any) -> dict[str, Any]:
    """The facts of a file; ValueError if those that are computed with are not numbers."""
    if not isinstance(facts, dict):
        raise TypeError("facts that are not an object")
    for name in ("metrics", "baseline"):
        if not isinstance(facts.get(name, {}), dict) or not _are_numbers(facts.get(name, {}).values()):
            raise ValueError(f"{name} that are not numbers")
    for name in ("errors", "scores") if "spread" in facts else ("errors",):
        values = facts.get(name, []) if name == "errors" else facts[name]
        if not isinstance(values, list) or not _are_numbers(values):
            raise ValueError(f"{name} that are not numbers")
    ends = facts.get("range", [0.0, 0.0])
    if not isinstance(ends, list) or len(ends) != 2 or not _are_numbers(ends):
        raise ValueError("a range that is not a pair of numbers")
    nameless = facts.get("nameless", 0)
    if type(nameless) is not int or nameless < 0:
        raise ValueError(f"nameless {nameless!r}")
    for name in ("periods", "shifts"):
        pairs = facts.get(name, [])
        if not isinstance(pairs, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and _are_numbers(pair) for pair in pairs
        ):
            raise ValueError(f"{name} that are not pairs of numbers")
    return dict(facts)


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def describe_model(path: str | Path) -> dict[str, Any]:
    """A JSON object: the layer's sizes and, for a model of a table, its target, columns and facts."""
    layer, notes = load_with_notes(path)
    count = sum(parameter.numel() for parameter in layer.parameters())
    sizes = {
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "matrix_size": layer.matrix_size,
        "embedding_size": layer.embedding_size,
        "structure": type(layer.structure).name,
        "dtype": str(layer.readout.dtype).removeprefix("torch."),
        "parameters": count,
    }
    said = (
        f"an M-layer from {layer.in_features} to {layer.out_features} numbers, n = {layer.matrix_size}, "
        f"d = {layer.generator_count}, {count} parameters, {sizes['dtype']}"
    )
    table = None
    if notes is not None and "table" in notes:
        model = table_model(path, layer, notes)
        table = {
            "target": model.target.as_json(),
            "columns": [
                {"name": c.name, "kind": c.kind, "features": list(c.features), "said": c.description}
                for c in model.schema.columns
            ],
            "facts": {name: _ordered(value) for name, value in model.facts.items()},
        }
    return {"file": str(path), "layer": {**sizes, "said": said}, "table": table}


def _ordered(value: Any) -> Any:
    """Metrics in our order: the file keeps none."""
    if isinstance(value, dict) and value.keys() <= BETTER_HIGH.keys():
        return {name: value[name] for name in BETTER_HIGH if name in value}
    return value

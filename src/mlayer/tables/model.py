"""A layer with the way from a raw table to its inputs, in one file. Prediction needs no scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mlayer.checks import brief
from mlayer.errors import ArgumentError, ArgumentTypeError, FileFormatError
from mlayer.files import load_with_notes, save
from mlayer.nn import MLayer
from mlayer.tables.encode import Schema
from mlayer.tables.metrics import classification_metrics, regression_metrics
from mlayer.tables.remarks import Remark
from mlayer.tables.task import Array, Target

if TYPE_CHECKING:
    from pandas import DataFrame

TABLE_FORMAT = 1
_BATCH = 4096


@dataclass(frozen=True)
class Predictions:
    """What a model says about the rows of a table.

    Attributes:
        outputs: regression: (rows,) values; classification: (rows, classes) probabilities. NaN in the rows
            where the layer overflowed.
        target: what was predicted.
        remarks: what should be said about the rows.
    """

    outputs: Array
    target: Target
    remarks: list[Remark]

    @property
    def finite(self) -> Array:
        """Rows with an answer."""
        finite: Array = np.isfinite(self.outputs)
        return np.asarray(finite.all(axis=1)) if finite.ndim == 2 else finite

    @property
    def labels(self) -> list[Any]:
        """The likeliest class, or the value, of each row; None without an answer."""
        if not self.target.classifies:
            return [float(v) if np.isfinite(v) else None for v in self.outputs]
        best = np.where(np.isnan(self.outputs), -1.0, self.outputs).argmax(axis=1)
        return [self.target.classes[k] if ok else None for k, ok in zip(best, self.finite, strict=True)]

    def metrics(self, truth: Array) -> dict[str, float]:
        """Against :meth:`Target.encode`'s numbers, over rows that have both a truth and an answer."""
        truth = np.asarray(truth)
        count, most = len(self.outputs), len(self.target.classes)
        if truth.shape != (count,) or truth.dtype.kind not in "iuf":
            raise ArgumentError(
                "truth",
                f"{count} numbers, one a row",
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
        measure = classification_metrics if self.target.classifies else regression_metrics
        return measure(truth[known], self.outputs[known])


@dataclass(frozen=True)
class TableModel:
    """A layer, the columns it takes, and the target it predicts.

    Attributes:
        layer: from encoded rows to logits (classification) or the value (regression).
        schema: from raw columns to encoded rows.
        target: name, task and classes.
        facts: metrics of the fit, versions and the like; a JSON object.
    """

    layer: MLayer
    schema: Schema
    target: Target
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that a csv reader must not turn into numbers; the target too, if its labels are text."""
        labels = any(isinstance(label, str) for label in self.target.classes)
        return (*self.schema.text_columns, *([self.target.name] if labels else []))

    def encode(self, frame: DataFrame) -> tuple[torch.Tensor, list[Remark]]:
        """The layer's inputs for a raw table, (rows, in_features), and what should be said about them."""
        encoded = self.schema.encode(frame)
        return torch.from_numpy(encoded.numbers).to(self.layer.readout.dtype), encoded.remarks

    def predict(self, frame: DataFrame) -> Predictions:
        """Predictions for a raw table."""
        inputs, remarks = self.encode(frame)
        predictions = Predictions(self.outputs(inputs), self.target, remarks)
        bad = int((~predictions.finite).sum())
        if bad:
            said = "rows have no prediction: their numbers are so large that the exponential overflows"
            remarks.append(Remark("overflow", "", bad, said, strict=True))
        return predictions

    @torch.inference_mode()
    def outputs(self, inputs: torch.Tensor) -> Array:
        """Probabilities or values for encoded rows, float64."""
        width = self.layer.in_features
        if not isinstance(inputs, torch.Tensor) or inputs.dim() != 2 or inputs.shape[1] != width:
            came = f"shape {tuple(inputs.shape)}" if isinstance(inputs, torch.Tensor) else brief(inputs)
            raise ArgumentTypeError("inputs", f"a tensor (rows, {width})", came, "Use encode(frame)[0].")
        parts = [self.layer(part) for part in inputs.split(_BATCH)] or [self.layer(inputs)]
        raw = torch.cat(parts).double()
        raw[~raw.isfinite().all(dim=1)] = torch.nan
        result: Array = (raw.softmax(dim=1) if self.target.classifies else raw[:, 0]).numpy()
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
            "a layer that knows no table",
            "Use it from Python: mlayer.load(path); or fit one: mlayer fit TABLE --target COL",
        )
    try:
        if entry["format"] > TABLE_FORMAT:
            raise FileFormatError(
                path,
                f"of table format {TABLE_FORMAT} or older",
                f"table format {entry['format']}, written by a newer mlayer",
                "Upgrade: pip install --upgrade mlayer",
            )
        schema, target = Schema.from_json(entry["columns"]), Target.from_json(entry["target"])
        facts = dict(entry["facts"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(
            path, "consistent", f"a damaged table entry ({error!r})", "Get it again."
        ) from None
    wanted = (len(schema.features), len(target.classes) if target.classifies else 1)
    if (layer.in_features, layer.out_features) != wanted:
        raise FileFormatError(
            path,
            "consistent",
            f"a layer from {layer.in_features} to {layer.out_features} numbers for a table of {wanted}",
            "Get it again.",
        )
    return TableModel(layer, schema, target, facts)

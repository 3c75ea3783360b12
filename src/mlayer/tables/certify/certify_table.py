"""Certificates for the rows of a table, in units that its owner knows.

A radius of 1 lets every number and date of a row move by its unit at once. By default the unit of
a column is its range in the table of the fit, so that a radius is a fraction of what was seen. Categories,
yes or no, and what says that a cell is missing are held still: half a category means nothing. No radius
reaches the number that stands for a missing cell in its column, such as -999: there the row is another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mlayer.certificates import Certificates, certify
from mlayer.certificates.arguments import as_radius
from mlayer.certificates.torch_state import own_conditions
from mlayer.checks import brief, is_finite
from mlayer.errors import ArgumentError
from mlayer.nn import MLayer
from mlayer.tables.model import TableModel
from mlayer.tables.remarks import Remark, near_columns

if TYPE_CHECKING:
    from pandas import DataFrame

# Names that the table of certificates or intervals has for itself.
COLUMNS = ("row", "prediction", "truth", "radius", "margin", "runner_up", "method", "lower", "upper")

_ROUNDED = 1e-12  # of a radius: more than the rounding of what is done to it here


@dataclass(frozen=True)
class CertifiedRows:
    """Certificates of a table.

    Attributes:
        frame: one row for each of the table: its number, an identifier if there is one, prediction, and where
            it is known the true class, radius, margin, runner_up, method.
        certificates: as from :func:`mlayer.certify`.
        units: what a radius of 1 means, by column.
        remarks: notes for the user.
    """

    frame: DataFrame
    certificates: Certificates
    units: Mapping[str, float]
    remarks: list[Remark]

    def summary(self) -> dict[str, Any]:
        """The figures of the whole table."""
        radius = self.certificates.radius
        right = self.certificates.correct
        finite = radius[right & radius.isfinite()]
        facts: dict[str, Any] = {
            "rows": len(radius),
            "correct": int(right.sum()),
            "median_radius": float(finite.median()) if len(finite) else None,
            "unlimited": int(radius.isinf().sum()),
        }
        if self.certificates.eps is not None:
            facts |= {"eps": self.certificates.eps, "certified": int(self.certificates.certified.sum())}
        return facts


def column_units(
    model: TableModel, given: Mapping[str, float] | None = None, *, needed: bool = True
) -> dict[str, float]:
    """The unit of every column that may move; where they are needed, at least one must.

    >>> import pandas, mlayer
    >>> from mlayer.tables import Target, learn_schema
    >>> schema, _ = learn_schema(pandas.DataFrame({"age": [30, 40, 90], "city": ["Rome", "Oslo", "Rome"]}))
    >>> target = Target("ill", "classification", ("no", "yes"))
    >>> column_units(TableModel(mlayer.MLayer(3, 2), schema, target))
    {'age': 60.0}
    """
    movable = {c.name: c.extent for c in model.schema.columns if c.moves}
    for name, unit in (given or {}).items():
        if name not in movable:
            kinds = {c.name for c in model.schema.columns}
            got = f"{name!r}, which cannot move" if name in kinds else repr(name)
            raise ArgumentError(
                "unit", "of a column of numbers or dates", got, near_columns(name, list(movable))
            )
        if not is_finite(unit) or unit < 0:
            raise ArgumentError(
                "unit", "a number of at least 0", f"{name}={brief(unit)}", "0 holds a column still."
            )
        movable[name] = unit
    if needed and not any(movable.values()):
        raise ArgumentError(
            "the model",
            "one with a column that can move",
            "none",
            "Categories have no neighborhood to certify.",
        )
    return movable


def column_scale(model: TableModel, units: Mapping[str, float]) -> torch.Tensor:
    """The unit of each input of the layer; 0 for those that are held still.  (in_features,)"""
    scale = torch.zeros(len(model.schema.features), dtype=torch.float64)
    for column, places in model.schema.placed:
        scale[places][:1] = units.get(column.name, 0.0)
    return scale


def row_labels(model: TableModel, frame: DataFrame) -> dict[str, Any]:
    """Columns that identify a row: its number, from 1, and the first column of identifiers.

    An identifier is a column that the model does not use and whose cells are all different.

    >>> import pandas, mlayer
    >>> from mlayer.tables import Target, learn_schema
    >>> schema, _ = learn_schema(pandas.DataFrame({"age": [30, 40, 90]}))
    >>> model = TableModel(mlayer.MLayer(1, 2), schema, Target("ill", "classification", ("no", "yes")))
    >>> row_labels(model, pandas.DataFrame({"age": [1, 2], "patient": ["A7", "B9"], "ill": ["no", "no"]}))
    {'row': [1, 2], 'patient': ['A7', 'B9']}
    """
    used = {column.name for column in model.schema.columns} | {model.target.name, *COLUMNS}
    labels: dict[str, Any] = {"row": list(range(1, len(frame) + 1))}
    for name in frame.columns:
        if str(name) not in used and len(frame) > 1 and frame[name].notna().all() and frame[name].is_unique:
            return labels | {str(name): frame[name].tolist()}
    return labels


@dataclass(frozen=True)
class Question:
    """The certified claim about a table: the same for finding certificates and for checking a proof.

    Attributes:
        layer: its largest output is the class that the model answers, by its threshold if it has one.
        x: encoded rows, float64.
        labels: the true class where it is known, else the predicted one.
        scale: what a radius of 1 means for each input of the layer; 0 holds it still.
        rounding: (rows,), the radius that rounding of cells to the layer's inputs may take.
        limit: (rows,), a radius of cells within which none becomes the number for a missing one.
        predicted: classes by number.
        truth: classes by number, -1 where unknown.
        units: what a radius of 1 means, by column.
        remarks: notes for the user.
        precision: of the layer's inputs: the spacing of its numbers at 1.
    """

    layer: MLayer
    x: torch.Tensor
    labels: torch.Tensor
    scale: torch.Tensor
    rounding: torch.Tensor
    limit: torch.Tensor
    predicted: np.ndarray[Any, np.dtype[np.int64]]
    truth: np.ndarray[Any, np.dtype[np.int64]]
    units: Mapping[str, float]
    remarks: list[Remark]
    precision: float

    def of_cells(self, radius: torch.Tensor) -> torch.Tensor:
        """The radius of cells for which the layer's inputs move by at most ``radius``.  (rows,)"""
        found = ((radius - self.rounding) * (1 - 2 * self.precision - _ROUNDED)).clamp_min(0.0)
        return torch.minimum(found, self.limit)

    def of_inputs(self, eps: float) -> float:
        """The radius of the inputs of any row whose cells move by eps."""
        if eps == 0:
            return 0.0
        return (eps * (1 + 4 * self.precision) + float(self.rounding.max())) * (1 + 4 * _ROUNDED)


def cell_rounding(model: TableModel, inputs: torch.Tensor) -> torch.Tensor:
    """A bound of the difference between inputs of a row and the numbers in its cells.  (rows, in_features)"""
    # A date is the difference of two numbers of days.
    origins = [abs(getattr(c, "origin", 0.0)) for c in model.schema.columns for _ in c.features]
    days = torch.tensor(origins, dtype=torch.float64) * 2.0**-50
    kind = torch.finfo(inputs.dtype)
    # Denormal numbers are as far apart as the smallest of them, or all of them are taken as 0.
    return kind.eps * inputs.double().abs() + days + kind.smallest_normal


def reach_of_absent(model: TableModel, frame: DataFrame, units: Mapping[str, float]) -> torch.Tensor:
    """A radius, slightly below the least, at which a cell becomes the number for a missing one.  (rows,)"""
    least = torch.full((len(frame),), torch.inf, dtype=torch.float64)
    for column in model.schema.columns:
        unit, away = units.get(column.name, 0.0), column.to_absent(frame[column.name])
        if away is not None and unit > 0:
            least = torch.minimum(least, torch.from_numpy(away) / unit)
    return least * (1 - _ROUNDED)


def _deciding(model: TableModel) -> MLayer:
    """The layer with the threshold t of two classes in its bias.

    The second class is the answer where its logit is log(t / (1 - t)) or more above the other; the bias with
    that number in it, rounded to float64, is what certificates and proofs are about.
    """
    if model.threshold is None or len(model.target.classes) != 2:
        return model.layer
    layer = deepcopy(model.layer).double().requires_grad_(False)
    bias = torch.zeros(2, dtype=torch.float64) if layer.output_bias is None else layer.output_bias.detach()
    shift = math.log(model.threshold) - math.log1p(-model.threshold)
    moved = bias - torch.tensor([0.0, shift], dtype=torch.float64)
    layer.output_bias = torch.nn.Parameter(moved, requires_grad=False)
    return layer


def _lost(model: TableModel, inputs: torch.Tensor, scale: torch.Tensor, norm: Any) -> torch.Tensor:
    """The radius that rounding may take: a cell that moves by r is a number within r, its own rounding and
    that of the cell it was, from the row's number.  (rows,)
    """
    moving = scale > 0
    steps = 4 * cell_rounding(model, inputs)[:, moving] / scale[moving]
    return (
        steps.norm(dim=1) if norm == "l2" else torch.cat([steps, steps.new_zeros(len(steps), 1)], 1).amax(1)
    )


@own_conditions()
def question(
    model: TableModel, frame: DataFrame, units: Mapping[str, float] | None = None, norm: Any = "linf"
) -> Question:
    """Inputs, labels and units of a raw table.

    Args:
        model: a classifier.
        frame: the raw table.
        units: what a radius of 1 means for some columns, in place of their range in the fit's table.
        norm: "linf" or "l2".
    """
    if not model.target.classifies:
        raise ArgumentError(
            "the model",
            "a classifier",
            "one for regression",
            "Certificates are about classes; `certify --eps` gives the interval of a prediction.",
        )
    if not len(frame):
        raise ArgumentError("the table", "of one row or more", "none", "Check how it was written.")
    moving = column_units(model, units)
    inputs, remarks = model.encode(frame)
    predictions = model.predict(frame)
    if not predictions.finite.all():
        raise ArgumentError(
            "the table",
            "of rows with predictions",
            f"{int((~predictions.finite).sum())} rows whose exponential overflows",
            "Leave those rows out.",
        )
    predicted = predictions.choices.astype(np.int64)
    truth = np.full(len(frame), -1, dtype=np.int64)
    if model.target.name in frame.columns:
        known, said = model.target.encode(frame[model.target.name])
        truth, remarks = known.astype(np.int64), [*remarks, *said]
    scale = column_scale(model, moving)
    return Question(
        layer=_deciding(model),
        x=inputs.double(),
        labels=torch.from_numpy(np.where(truth >= 0, truth, predicted)),
        scale=scale,
        rounding=_lost(model, inputs, scale, norm),
        limit=reach_of_absent(model, frame, moving),
        predicted=predicted,
        truth=truth,
        units=moving,
        remarks=remarks,
        precision=torch.finfo(inputs.dtype).eps,
    )


def certify_table(
    model: TableModel,
    frame: DataFrame,
    *,
    eps: float | None = None,
    norm: Any = "linf",
    method: Any = "best",
    units: Mapping[str, float] | None = None,
    rigorous: bool = False,
    proof: bool = False,
    progress: Callable[[int, int], None] | None = None,
    workers: int = 1,
) -> CertifiedRows:
    """Prove for each row how far its numbers may move before its class changes.

    Args:
        model: a classifier.
        frame: the raw table. With the target column, a radius is that of the true class (0 where the model is
            wrong); without, that of the predicted one.
        eps: ask only whether rows are certified at this radius.
        norm: "linf" (each column by itself) or "l2".
        method: as in :func:`mlayer.certify`.
        units: what a radius of 1 means for some columns, in place of their range in the fit's table.
        rigorous: check each claim in ball arithmetic.
        proof: keep what was checked as ``certificates.proof``; implies ``rigorous``.
        progress: called with (rows done, rows).
        workers: threads.
    """
    import pandas

    if eps is not None:
        as_radius(eps)
    asked = question(model, frame, units, norm)
    found = certify(
        asked.layer,
        asked.x,
        asked.labels,
        norm,
        method,
        eps=None if eps is None else asked.of_inputs(eps),
        scale=asked.scale,
        references=asked.x[:64],
        rigorous=rigorous,
        proof=proof,
        progress=progress,
        workers=workers,
    )
    if eps is None:
        radius = asked.of_cells(found.radius)
        certified = found.certified & (radius > 0)
    else:
        certified = found.certified & (asked.limit > eps)
        radius = certified.double() * eps
    found = replace(found, radius=radius, certified=certified, eps=eps)
    classes = np.asarray(model.target.classes, dtype=object)
    columns: dict[str, Any] = row_labels(model, frame) | {"prediction": classes[asked.predicted]}
    if (asked.truth >= 0).any():
        columns["truth"] = [classes[k] if k >= 0 else None for k in asked.truth]
    columns |= {
        "radius": found.radius.numpy(),
        "margin": found.margin.numpy(),
        "runner_up": classes[found.runner_up.numpy()],
        "method": list(found.method),
    }
    return CertifiedRows(pandas.DataFrame(columns, index=frame.index), found, asked.units, asked.remarks)

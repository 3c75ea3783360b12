"""Certificates for the rows of a table, in units that its owner knows.

A radius of 1 lets every number and date of a row move by its unit at once. Unless told otherwise, the unit of
a column is its range in the table of the fit, so that a radius is a fraction of what was seen. Categories,
yes or no, and what says that a cell is missing are held still: half a category means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mlayer.certificates import Certificates, certify
from mlayer.errors import ArgumentError
from mlayer.tables.columns import Date, Number
from mlayer.tables.model import TableModel
from mlayer.tables.remarks import Remark, near_columns

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class CertifiedRows:
    """Certificates of a table.

    Attributes:
        frame: one row for each of the table: prediction, and where it is known the true class, radius,
            margin, runner_up, method.
        certificates: as from :func:`mlayer.certify`.
        units: what a radius of 1 means, by column.
        remarks: what should be said.
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


def column_units(model: TableModel, given: Mapping[str, float] | None = None) -> dict[str, float]:
    """The unit of every column that may move.

    >>> import pandas, mlayer
    >>> from mlayer.tables import Target, learn_schema
    >>> schema, _ = learn_schema(pandas.DataFrame({"age": [30, 40, 90], "city": ["Rome", "Oslo", "Rome"]}))
    >>> target = Target("ill", "classification", ("no", "yes"))
    >>> column_units(TableModel(mlayer.MLayer(3, 2), schema, target))
    {'age': 60.0}
    """
    movable = {c.name: c.high - c.low for c in model.schema.columns if isinstance(c, Number | Date)}
    for name, unit in (given or {}).items():
        if name not in movable:
            kinds = {c.name for c in model.schema.columns}
            got = f"{name!r}, which holds no numbers" if name in kinds else repr(name)
            raise ArgumentError(
                "unit", "of a column of numbers or dates", got, near_columns(name, list(movable))
            )
        if not math.isfinite(unit) or unit < 0:
            raise ArgumentError("unit", "a number of at least 0", f"{name}={unit}", "0 holds a column still.")
        movable[name] = unit
    if not any(movable.values()):
        raise ArgumentError(
            "the model",
            "one with a column that can move",
            "none",
            "Categories have no neighbourhood to certify.",
        )
    return movable


def certify_table(
    model: TableModel,
    frame: DataFrame,
    *,
    eps: float | None = None,
    norm: Any = "linf",
    method: Any = "best",
    units: Mapping[str, float] | None = None,
    rigorous: bool = False,
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
        progress: called with (rows done, rows).
        workers: threads.
    """
    import pandas

    if not model.target.classifies:
        raise ArgumentError(
            "the model",
            "a classifier",
            "one for regression",
            "Certificates say that a class does not change.",
        )
    moving = column_units(model, units)
    inputs, remarks = model.encode(frame)
    x = inputs.double()
    predictions = model.predict(frame)
    if not predictions.finite.all():
        raise ArgumentError(
            "the table",
            "of rows with predictions",
            f"{int((~predictions.finite).sum())} rows whose exponential overflows",
            "Leave those rows out.",
        )
    predicted = predictions.outputs.argmax(axis=1)
    truth = np.full(len(frame), -1)
    if model.target.name in frame.columns:
        truth, said = model.target.encode(frame[model.target.name])
        remarks = [*remarks, *said]
    labels = torch.from_numpy(np.where(truth >= 0, truth, predicted).astype(np.int64))
    scale = torch.tensor(
        [
            moving.get(column.name, 0.0) if place == 0 else 0.0
            for column in model.schema.columns
            for place in range(len(column.features))
        ],
        dtype=torch.float64,
    )
    found = certify(
        model.layer,
        x,
        labels,
        norm,
        method,
        eps=eps,
        scale=scale,
        references=x[:64],
        rigorous=rigorous,
        progress=progress,
        workers=workers,
    )
    classes = np.asarray(model.target.classes, dtype=object)
    columns: dict[str, Any] = {"prediction": classes[predicted]}
    if (truth >= 0).any():
        columns["truth"] = [classes[k] if k >= 0 else None for k in truth.astype(int)]
    columns |= {
        "radius": found.radius.numpy(),
        "margin": found.margin.numpy(),
        "runner_up": classes[found.runner_up.numpy()],
        "method": list(found.method),
    }
    return CertifiedRows(pandas.DataFrame(columns, index=frame.index), found, moving, remarks)

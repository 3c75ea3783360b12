"""A kind of column is one class: a new one goes through fit, file, predict and certify."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from least_squares import LeastSquares
from mlayer.tables import Plan, Remark, fit_table, load_table_model
from mlayer.tables import columns as kinds
from mlayer.tables.certify.intervals import interval_table
from mlayer.tables.columns import Column, Inferred
from mlayer.tables.columns.cells import Floats, as_text

if TYPE_CHECKING:
    from mlayer.tables.columns.kind import Cells

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True)
class Weekday(Column):
    """A point on a circle for each day of the week."""

    kind: ClassVar[str] = "weekday"
    shift: float = 0.0

    @classmethod
    def infer(cls, cells: Cells) -> Inferred | None:
        return Inferred(cls(cells.name), []) if cells.distinct <= set(DAYS) else None

    @property
    def features(self) -> tuple[str, ...]:
        return f"{self.name} east", f"{self.name} north"

    @property
    def description(self) -> str:
        return "a point on a circle"

    def encode(self, series: Any) -> tuple[Floats, list[Remark]]:
        angles = [2 * np.pi * DAYS.index(day or "mon") / 7 + self.shift for day in as_text(series)]
        return np.stack([np.cos(angles), np.sin(angles)], axis=1), []

    def values(self) -> Floats:
        return self.encode(pd.Series(DAYS))[0]


def test_a_new_kind_is_one_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "KINDS", (Weekday, *kinds.KINDS))
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"day": draw.choice(DAYS, 100), "size": draw.normal(size=100)})
    truth = np.cos(2 * np.pi * frame["day"].map(DAYS.index) / 7)
    result = fit_table(frame.assign(y=truth + frame["size"]), Plan("y"), estimator=LeastSquares())
    assert [type(column).__name__ for column in result.model.schema.columns] == ["Weekday", "Number"]
    assert result.metrics["RMSE"] < 1e-9
    result.model.save(tmp_path / "m.safetensors")
    model = load_table_model(tmp_path / "m.safetensors")
    assert model.schema == result.model.schema
    np.testing.assert_allclose(model.predict(frame).outputs, truth + frame["size"], atol=1e-6)
    # The interval over all days is that of the two ends of the cosine's values.
    found = interval_table(model, frame.head(3), eps=0.0, vary=("day",)).frame
    ends = [np.cos(2 * np.pi * np.arange(7) / 7).min(), 1.0]
    for name, end in zip(("lower", "upper"), ends, strict=True):
        np.testing.assert_allclose(found[name], frame["size"].head(3) + end, atol=1e-5)
    assert result.summary()["columns"][0]["said"] == "a point on a circle"

"""The positive class of two: that for yes, the larger number, else the rarer, or as asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.tables import Plan, fit_table, label
from mlayer.tables.metrics import average_precision


def _frame(labels: tuple[Any, Any], share: float, rows: int = 200) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    x = draw.normal(size=rows)
    second = x + 0.3 * draw.normal(size=rows) > np.quantile(x, 1 - share)
    return pd.DataFrame({"x": x, "y": np.where(second, labels[1], labels[0])})


@pytest.mark.parametrize(
    ("labels", "share", "positive", "rule"),
    [
        (("ok", "fraud"), 0.1, "fraud", True),
        (("fraud", "ok"), 0.1, "ok", True),
        (("good", "bad"), 0.3, "bad", True),
        (("Yes", "No"), 0.1, "Yes", False),
        ((1, 0), 0.1, "1", False),
        ((2, 1), 0.1, "2", False),
        ((True, False), 0.1, "True", False),
    ],
)
def test_rule(labels: tuple[Any, Any], share: float, positive: str, rule: bool) -> None:
    rows = label(_frame(labels, share), "y")
    assert str(rows.target.classes[1]) == positive
    ending = ", the rarer one" if rule else ""
    assert rows.reason.endswith(f"its positive class is {positive!r}{ending}")
    rare = (rows.truth == 1).sum() < (rows.truth == 0).sum()
    assert rare or not rule


def test_equally_frequent_classes_are_in_alphabetical_order() -> None:
    frame = pd.DataFrame({"x": range(20), "y": ["north", "south"] * 10})
    rows = label(frame, "y")
    assert rows.target.classes == ("north", "south")
    assert rows.reason.endswith("its positive class is 'south'")


def test_as_asked() -> None:
    frame = _frame(("ok", "fraud"), 0.1)
    other = label(frame, "y").with_positive("ok")
    assert other.target.classes == ("fraud", "ok")
    assert other.reason.endswith("its positive class is 'ok'")
    assert ((other.truth == 1) == (frame["y"] == "ok").to_numpy()).all()
    assert label(frame, "y").with_positive("fraud").target.classes == ("ok", "fraud")


def test_threshold_refers_to_it() -> None:
    frame = _frame(("ok", "fraud"), 0.1)
    result = fit_table(frame, Plan("y", threshold=0.2))
    p = result.predictions.outputs[:, result.model.target.classes.index("fraud")]
    assert [name == "fraud" for name in result.predictions.labels] == (p >= 0.2).tolist()
    fraud = result.truth == 1
    assert result.metrics["average precision"] == pytest.approx(average_precision(fraud, p))
    asked = fit_table(frame, Plan("y", threshold=0.2, positive="ok"))
    p = asked.predictions.outputs[:, 1]
    assert [name == "ok" for name in asked.predictions.labels] == (p >= 0.2).tolist()


def test_invalid() -> None:
    frame = _frame(("ok", "fraud"), 0.1)
    with pytest.raises(
        ArgumentError, match="positive must be one of the classes 'ok' and 'fraud'; got 'frau'"
    ):
        fit_table(frame, Plan("y", positive="frau"))
    with pytest.raises(ArgumentError, match="positive must be used with two classes; got a quantity"):
        fit_table(frame.assign(z=frame["x"] + 0.5), Plan("z", positive="1"))
    with pytest.raises(ArgumentTypeError, match="positive must be the name of a class"):
        Plan("y", positive=1)  # type: ignore[arg-type]

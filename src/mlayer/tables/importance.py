"""Which columns matter: how much worse the predictions get when a column's cells change places.

Breiman, "Random forests", Machine Learning 45 (2001), section 10; here on rows that the fit has not seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlayer.tables.model import Predictions, TableModel
from mlayer.tables.task import Array

if TYPE_CHECKING:
    from pandas import DataFrame

_ROWS = 1000
_TIMES = 3


def column_importance(
    model: TableModel, frame: DataFrame, truth: Array, seed: int
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
    name, sign = ("accuracy", -1.0) if model.target.classifies else ("RMSE", 1.0)

    def score(shuffled: Array | None, places: slice) -> float:
        changed = inputs.clone()
        if shuffled is not None:
            changed[:, places] = inputs[shuffled][:, places]
        return Predictions(model.outputs(changed), model.target, []).metrics(truth).get(name, np.nan)

    start, base, result = 0, score(None, slice(0)), {}
    for column in model.schema.columns:
        places = slice(start, start + len(column.features))
        start = places.stop
        rises = [sign * (score(draw.permutation(len(inputs)), places) - base) for _ in range(_TIMES)]
        result[column.name] = (float(np.mean(rises)), float(np.ptp(rises) / 2))
    return result

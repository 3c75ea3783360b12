"""Rare categories: on their own where their levels differ, together where they do not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from least_squares import LeastSquares
from mlayer.tables import Plan, fit_table


def table(spread: float, classes: bool = False, seed: int = 0) -> pd.DataFrame:
    """60 shops, of which 40 have four to nine rows."""
    draw = np.random.default_rng(seed)
    rows = np.concatenate([np.full(20, 25), draw.integers(4, 10, 40)])
    shop = np.repeat(np.arange(60), rows)
    y = draw.normal(0, spread, 60)[shop] + draw.normal(0, 1, len(shop))
    frame = pd.DataFrame({"shop": [f"shop {k}" for k in shop], "x": draw.normal(size=len(shop))})
    frame["y"] = np.where(y > 0, "yes", "no") if classes else y + 2 * frame["x"]
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


@pytest.mark.parametrize("classes", [False, True])
def test_small_shops_with_different_levels_stand_alone(classes: bool) -> None:
    """They were one category, whose rows differed by all that tells shops apart."""
    result = fit_table(table(4.0, classes), Plan("y"), estimator=None if classes else LeastSquares())
    (shop,) = (column for column in result.model.schema.columns if column.name == "shop")
    assert len(shop.features) > 45
    kinds = [remark.kind for remark in result.remarks if remark.column == "shop"]
    assert kinds == ["small"]
    if not classes:
        assert result.metrics["RMSE"] < 2  # noise of 1; the levels of the small ones have a deviation of 4


@pytest.mark.parametrize("seed", range(5))
def test_shops_that_are_alike_stay_together(seed: int) -> None:
    result = fit_table(table(0.0, seed=seed), Plan("y"), estimator=LeastSquares())
    (shop,) = (column for column in result.model.schema.columns if column.name == "shop")
    assert len(shop.features) == 21
    assert [remark.kind for remark in result.remarks if remark.column == "shop"] == ["rare"]


def test_the_limit_of_categories_holds() -> None:
    result = fit_table(table(4.0), Plan("y", max_categories=30), estimator=LeastSquares())
    (shop,) = (column for column in result.model.schema.columns if column.name == "shop")
    assert len(shop.features) == 31
    unseen = pd.DataFrame({"shop": ["shop 0", "elsewhere"], "x": [0.0, 0.0]})
    assert result.model.encode(unseen)[0][1].sum() == 1  # "other"

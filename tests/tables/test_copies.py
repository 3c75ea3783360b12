"""Exact copies of rows: counted, reported, and never on both sides of the hold-out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from least_squares import LeastSquares
from mlayer.tables import Plan, fit_table
from mlayer.tables.fit import giveaway
from mlayer.tables.fit.labeled import label
from mlayer.tables.fit.split import copies, split_rows
from mlayer.tables.schema import learn_schema


def table(rows: int = 100, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": draw.normal(size=rows),
            "city": draw.choice(np.array(["Rome", "Oslo", None], dtype=object), rows),
        }
    )
    return frame.assign(y=frame["a"] + draw.normal(size=rows))


@pytest.mark.parametrize("classes", [False, True])
def test_copies_stay_on_one_side(classes: bool) -> None:
    frame = table()
    if classes:
        frame["y"] = np.where(frame["y"] > 0, "yes", "no")
    copied = pd.concat([frame, frame.iloc[:60], frame.iloc[:20]], ignore_index=True)
    split = split_rows(label(copied, "y"), 0.2, 0, "auto")
    assert split.copies == 80
    learned = {tuple(row) for row in copied.iloc[split.train].astype(str).to_numpy()}
    tested = {tuple(row) for row in copied.iloc[split.test].astype(str).to_numpy()}
    assert not learned & tested
    assert len(tested) == 20
    assert len(split.train) + len(split.test) == len(copied)


def test_copies_are_reported_and_do_not_flatter_the_figures() -> None:
    """A model that learns its rows by heart looks good where copies of them are tested."""
    frame = table()
    result = fit_table(pd.concat([frame] * 4, ignore_index=True), Plan("y"), estimator=LeastSquares())
    (said,) = [str(remark) for remark in result.remarks if remark.kind == "copies"]
    assert said == "300 rows are exact copies of earlier ones; copies were held out together"
    assert len(np.unique(result.truth)) == 20


def test_rows_that_agree_by_chance_are_no_copies() -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.choice(list("xyz"), 200), "b": draw.choice([1, 2], 200)})
    frame["y"] = np.where(draw.random(200) < 0.5, "yes", "no")
    split = split_rows(label(frame, "y"), 0.2, 0, "auto")
    assert split.copies == 0
    assert len(split.test) == 40


def test_a_table_without_copies_is_split_as_ever() -> None:
    frame = table()
    split = split_rows(label(frame, "y"), 0.2, 3, "auto")
    order = np.random.default_rng(3).permutation(100)
    np.testing.assert_array_equal(split.test, np.sort(order[:20]))  # exact: row numbers


def test_nearly_all_copies() -> None:
    """Fewer different rows than a split needs: held out as they are, and said."""
    frame = pd.concat([table(5)] * 10, ignore_index=True)
    result = fit_table(frame, Plan("y"), estimator=LeastSquares())
    assert [remark.count for remark in result.remarks if remark.kind == "copies"] == [45]


def test_an_identifier_is_left_out_though_copies_repeat_it() -> None:
    frame = table(80).assign(order_id=[f"A-{k:05d}" for k in range(80)])
    result = fit_table(pd.concat([frame] * 3, ignore_index=True), Plan("y"), estimator=LeastSquares())
    assert [column.name for column in result.model.schema.columns] == ["a", "city"]
    assert any(remark.column == "order_id" and remark.kind == "dropped" for remark in result.remarks)


def test_targets_far_from_the_others_are_reported() -> None:
    frame = table(200)
    frame.loc[:3, "y"] = [9e5, -8e5, 7e5, 6e5]
    result = fit_table(frame, Plan("y"), estimator=LeastSquares())
    (far,) = [remark for remark in result.remarks if remark.kind == "far target"]
    assert far.count == 4
    assert "900,000" in str(far)
    usual = fit_table(table(200), Plan("y"), estimator=LeastSquares())
    assert not [remark for remark in usual.remarks if remark.kind == "far target"]


def test_copies_do_not_make_a_column_suspicious() -> None:
    """A copy of a row that was learned judges nothing: its number alone would give its class."""
    frame = table(400)
    frame["y"] = np.where(np.random.default_rng(1).random(400) < 0.5, "yes", "no")
    result = fit_table(pd.concat([frame] * 20, ignore_index=True), Plan("y"), estimator=LeastSquares())
    assert [remark.kind for remark in result.remarks if remark.kind in ("copies", "giveaway")] == ["copies"]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_search_for_giveaways_looks_at_a_sample_of_a_long_table(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the column that gives the target away, of a rare class too, in some thousand rows."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.normal(size=60_000), "b": draw.normal(size=60_000)})
    rare = frame["b"] > 3
    frame["y"] = np.where(rare, "yes", "no") if task == "classification" else frame["b"] ** 2
    rows = label(frame, "y")
    schema, _ = learn_schema(frame[["a", "b"]])
    judged: list[int] = []
    name = "area_under_roc" if task == "classification" else "_r2"
    score = getattr(giveaway, name)

    def counting(truth: np.ndarray, guess: np.ndarray) -> float:
        judged.append(len(truth))
        return float(score(truth, guess))

    monkeypatch.setattr(giveaway, name, counting)
    found = giveaway.giveaways(schema, schema.encode(frame).numbers, rows.target, rows.truth)
    assert [remark.column for remark in found] == ["b"]
    assert max(judged) <= 10_000


def test_numbers_of_copies_agree_with_sorting_the_rows() -> None:
    """Beside numpy's own sort of whole rows, for rows that agree but for the target too."""
    frame = table(200)
    frame = pd.concat([frame, frame.iloc[:90]], ignore_index=True)
    truth = np.random.default_rng(2).integers(0, 2, len(frame)).astype(float)
    found = copies(frame, truth)
    assert found is not None
    whole = np.column_stack([pd.factorize(frame[n].astype(str))[0] for n in frame] + [truth])
    expected = np.unique(whole, axis=0, return_inverse=True)[1].reshape(-1)
    # exact: row numbers
    np.testing.assert_array_equal(found[:, None] == found, expected[:, None] == expected)

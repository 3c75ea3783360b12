"""Classes or a quantity: guessed, told, and refused where there is nothing to learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlayer.errors import ArgumentError
from mlayer.tables import Target, guess_task
from mlayer.tables.fit.split import held_out
from mlayer.tables.target import learn_target


def poisson(mean: float, rows: int) -> Any:
    return np.random.default_rng(0).poisson(mean, rows)


@pytest.mark.parametrize(
    ("cells", "task"),
    [
        (["cat", "dog"], "classification"),
        ([True, False], "classification"),
        ([0, 1, 1, 0], "classification"),
        ([0.0, 1.0, None], "classification"),
        ([1, 2, 3] * 50, "classification"),
        (list(range(10)) * 19, "regression"),
        (list(range(10)) * 20, "classification"),
        (list(range(21)) * 100, "regression"),
        ([1.5, 2.0, 2.0], "regression"),
        (["1.5", "2.5"] * 20 + ["?"], "regression"),
        (pd.Series(["a", "b"], dtype="category"), "classification"),
        (poisson(0.3, 3000), "regression"),
        (poisson(1.8, 3000), "regression"),
        (1 + poisson(2.5, 800), "regression"),
        (np.append(np.zeros(700), 1 + poisson(5.0, 150)), "regression"),  # demand on a few days
        (np.repeat(range(10), [700, *[17] * 9]), "classification"),
        (np.repeat([1, 2, 3, 5, 6, 7], [70, 76, 17, 13, 9, 29]), "classification"),  # types of glass
        (np.repeat([0, 1, 2, 3], [900, 60, 30, 10]), "classification"),
        (np.repeat([1, 2, 7, 9], [900, 60, 30, 2]), "classification"),
        (np.repeat(range(6), [900, 60, 200, 30, 8, 2]), "classification"),  # 2 is no rarer than 1
    ],
    ids=lambda value: str(value)[:40],
)
def test_guess(cells: Any, task: str) -> None:
    guess, reason = guess_task(pd.Series(cells, name="y"))
    assert guess == task
    assert reason.startswith("the target ")


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        ([2, 1, 2, 1, 10, 10], (1, 2, 10)),
        ([2.0, 1.0, None, 2.0, 1.0], (1, 2)),
        ([0.5, 1.5, 0.5, 1.5], (0.5, 1.5)),
        ([True, False, True], (False, True)),
        (["b", " a", "b ", "a"], ("a", "b")),
    ],
    ids=str,
)
def test_labels_keep_their_type(cells: list[Any], labels: tuple[Any, ...]) -> None:
    series = pd.Series(cells, name="y")
    target = learn_target(series, "classification")
    assert target.classes == labels
    assert [type(label) for label in target.classes] == [type(label) for label in labels]
    numbers, _ = target.encode(series)
    for number, cell in zip(numbers, cells, strict=True):
        if cell is None:
            assert number == -1
        else:
            assert labels[number] == (cell.strip() if isinstance(cell, str) else cell)
    assert Target.from_json(target.as_json()) == target


def test_rows_without_a_target_are_counted() -> None:
    target = learn_target(pd.Series(["a", "b", "a", "b"], name="y"), "classification")
    numbers, remarks = target.encode(pd.Series(["a", None, "c"], name="y"))
    assert numbers.tolist() == [0, -1, -1]
    assert [str(remark) for remark in remarks] == [
        "column 'y': 1 row without a target was left out",
        "column 'y': 1 row with a class that the model does not know was left out, for example 'c'",
    ]
    quantity = learn_target(pd.Series([1.5, 2.5], name="y"), "regression")
    values, remarks = quantity.encode(pd.Series(["1", None, "x"], name="y"))
    assert np.array_equal(values, [1.0, np.nan, np.nan], equal_nan=True)
    assert [remark.count for remark in remarks] == [1, 1]


@pytest.mark.parametrize(
    ("cells", "task", "words"),
    [
        (
            ["a", "a"],
            "classification",
            r"of two or more classes; got the class 'a' in every row.*sorted table",
        ),
        ([2.0, 2.0], "regression", r"of different values; got 2 in every row"),
        ([None, None], "regression", r"known in some rows; got a column without a value"),
        (["a", "b"], "regression", r"numbers, for regression; got mostly text. Use --task classification"),
        (pd.date_range("2020-01-01", periods=3), "classification", r"classes or numbers; got dates"),
        (
            [f"2020-01-{k:02}" for k in range(1, 20)],
            "classification",
            r"got dates, such as '2020-01-01', which",
        ),
        ([f"{k}.12.2020" for k in range(10, 30)], "regression", r"got dates, such as '10.12.2020', which"),
        ([f"n{k}" for k in range(9)], "classification", r"9 different values in 9 rows. It may be a name"),
        (list(np.arange(9) / 2), "classification", r"9 different values in 9 rows. Use --task regression"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_nothing_to_learn(cells: Any, task: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        learn_target(pd.Series(cells, name="y"), task)


# ---- The split. -----------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("classes", [True, False])
def test_split(share: float, classes: bool) -> None:
    truth = np.repeat([0, 1, 2], [200, 40, 4])
    train, test = held_out(truth, share, 1, classes=classes)
    assert sorted([*train, *test]) == list(range(244))
    if classes:
        for label, count in ((0, 200), (1, 40), (2, 4)):
            assert (truth[test] == label).sum() == round(share * count)
    else:
        assert len(test) == round(share * 244)
    again = held_out(truth, share, 1, classes=classes)[1]
    other = held_out(truth, share, 2, classes=classes)[1]
    assert np.array_equal(test, again)
    assert not np.array_equal(test, other)


def test_split_of_small_classes() -> None:
    train, test = held_out(np.array([0] * 9 + [1]), 0.5, 0, classes=True)
    assert 9 in train
    train, test = held_out(np.repeat(np.arange(5), 2), 0.01, 0, classes=True)
    assert len(test) == 1
    assert len(train) == 9
    # A fifth of two rows is rounded to none; a fifth of all rows is held out all the same.
    truth = np.repeat(np.arange(12), 2)
    train, test = held_out(truth, 0.2, 0, classes=True)
    assert len(test) == 5
    assert set(truth[train]) == set(range(12))
    assert len(set(truth[test])) == 5


def test_split_complaints() -> None:
    with pytest.raises(ArgumentError, match="test_share must be between 0 and 1; got 1"):
        held_out(np.zeros(20), 1.0, 0, classes=False)
    with pytest.raises(ArgumentError, match="at least 10 rows with a target; got 9"):
        held_out(np.zeros(9), 0.2, 0, classes=False)

"""Yes and no in other languages, as an input and as a target, whose positive class is the one for yes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mlayer.errors import ArgumentError
from mlayer.tables import Plan, Training, fit_table
from mlayer.tables.columns import Boolean, Category, infer_column
from mlayer.tables.columns.truth_words import PAIRS, TRUE_WORDS
from mlayer.tables.fit.labeled import label
from mlayer.tables.target import learn_target

WRITINGS = [
    ("Ja", "Nein"),
    ("OUI", "NON"),
    ("Sí", "No"),
    ("Y", "N"),
    ("T", "F"),
    ("on", "Off"),
    ("да", "нет"),
]


def test_no_word_is_both() -> None:
    assert not {true for true, _ in PAIRS} & {false for _, false in PAIRS}
    assert all(TRUE_WORDS[true] == 1.0 and TRUE_WORDS[false] == 0.0 for true, false in PAIRS)


@pytest.mark.parametrize(("true", "false"), WRITINGS)
def test_an_input_is_a_truth_value_and_a_target_has_yes_last(true: str, false: str) -> None:
    cells = pd.Series([true, false, f" {true.lower()}", false] * 5, name="sold")
    column = infer_column(cells, 20).column
    assert isinstance(column, Boolean)
    assert column.encode(cells)[0][:4, 0].tolist() == [1.0, 0.0, 1.0, 0.0]
    target = learn_target(pd.Series([true, false] * 5, name="sold"), "classification")
    assert target.classes == (false, true)


def test_words_of_two_languages_are_categories() -> None:
    assert isinstance(infer_column(pd.Series(["ja", "non"] * 10, name="a"), 20).column, Category)
    target = learn_target(pd.Series(["ja", "Ampel"] * 5, name="a"), "classification")
    assert target.classes == ("Ampel", "ja")


def test_the_positive_class_is_said_and_is_what_a_threshold_means() -> None:
    draw = np.random.default_rng(0)
    a = draw.normal(size=200)
    table = pd.DataFrame({"a": a, "kauf": np.where(a + draw.normal(size=200) > 0.5, "Ja", "Nein")})
    assert label(table, "kauf").reason.endswith("its positive class is 'Ja'")
    plans = [Plan("kauf", threshold=t, training=Training(epochs=5)) for t in (0.05, 0.95)]
    many, few = (np.sum(np.array(fit_table(table, plan).predictions.labels) == "Ja") for plan in plans)
    assert many > few


def test_a_mark_or_nothing() -> None:
    """An input has two values; of a target the empty cells may be unknown, and the error says what to do."""
    cells = pd.Series(["x", None, None, "x"] * 5, name="paid")
    column = infer_column(cells, 20).column
    assert column is not None
    assert len(np.unique(column.encode(cells)[0], axis=0)) == 2
    with pytest.raises(ArgumentError, match="If the 10 empty cells mean the opposite of it"):
        learn_target(cells, "classification")

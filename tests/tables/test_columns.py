"""The encoding of each kind of column, the columns that are left out, and the remarks about both."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlayer.errors import ArgumentError
from mlayer.tables import Remark, Schema, learn_schema
from mlayer.tables.columns import Boolean, Category, Date, Number, infer_column
from mlayer.tables.columns.date_notations import as_days
from mlayer.tables.remarks import merged


def learn(cells: Any, name: str = "c", most: int = 20, **options: Any) -> Any:
    found = infer_column(pd.Series(cells, name=name, **options), most)
    return found.column, found.remarks


def encode(column: Any, cells: Any) -> tuple[list[list[float]], list[Remark]]:
    numbers, remarks = column.encode(pd.Series(cells, name=column.name))
    return numbers.tolist(), remarks


# ---- Numbers. -------------------------------------------------------------------------------------


def test_numbers() -> None:
    column, remarks = learn([1.0, 2.0, 4.0])
    assert column == Number("c", fill=2.0, flag=False, low=1.0, high=4.0)
    assert remarks == []
    assert encode(column, [1, 3]) == ([[1.0], [3.0]], [])


def test_missing_numbers_are_the_median_and_marked() -> None:
    column, remarks = learn([1.0, None, 2.0, 4.0, None])
    assert column.features == ("c", "c is missing")
    assert [str(remark) for remark in remarks] == [
        "column 'c': 2 missing cells: filled with the median, 2, and marked by a second number"
    ]
    assert encode(column, [3.0, None, np.inf]) == ([[3.0, 0.0], [2.0, 1.0], [2.0, 1.0]], [])


def test_missing_at_predict_time_only() -> None:
    column, _ = learn([1.0, 2.0, 4.0])
    numbers, (remark,) = encode(column, [1.0, None])
    assert numbers == [[1.0], [2.0]]
    assert remark.strict
    assert "1 missing cell, of which the training table had none, was filled with the median, 2" in str(
        remark
    )


def test_infinite_numbers_are_missing_and_said() -> None:
    column, remarks = learn([1.0, 2.0, np.inf, -np.inf])
    assert (column.low, column.high, column.fill, column.flag) == (1.0, 2.0, 1.5, True)
    assert any(
        "infinite numbers were taken as missing" in remark.text and remark.strict for remark in remarks
    )


def test_numbers_with_a_few_words_among_them() -> None:
    column, remarks = learn([str(k) for k in range(30)] + ["?"])
    assert isinstance(column, Number)
    assert "1 cell that is not a number was taken as missing, for example '?'" in str(remarks[0])
    assert remarks[0].strict
    assert encode(column, ["7", "8.5", "?"])[0] == [[7.0, 0.0], [8.5, 0.0], [14.5, 1.0]]


def test_extrapolation_is_said() -> None:
    column, _ = learn([0.0, 10.0, 5.0])
    assert encode(column, [-1.0, 11.0])[1] == []
    _, (remark,) = encode(column, [-1.5, 5.0, 100.0])
    assert (remark.kind, remark.count, remark.strict) == ("outside", 2, False)
    assert "outside the range of the training table (0 to 10)" in remark.text


def test_another_column_altogether() -> None:
    column, _ = learn([0.0, 10.0, 5.0])
    with pytest.raises(
        ArgumentError,
        match=r"the column 'c' must be of numbers, as in the table of the fit; got cells such as 'a'",
    ):
        encode(column, ["a", "b"])


# ---- Truth values. --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cells",
    [
        [True, False, True],
        ["yes", "no", "yes"],
        ["True", "FALSE", "true"],
        ["Y", "N", "Y"],
        ["t", "f", "t"],
        [True, False, None, True],
        ["yes", None, "no", "yes"],
    ],
    ids=str,
)
def test_truth_values(cells: list[Any]) -> None:
    column, _ = learn(cells)
    assert isinstance(column, Boolean)
    assert column.flag == (None in cells)
    for true, false in ((True, False), ("yes", "No"), ("TRUE", "false"), (1, 0), ("1", "0")):
        numbers, remarks = encode(column, [true, false])
        assert [row[0] for row in numbers] == [1.0, 0.0]
        assert remarks == []
    if column.flag:
        assert encode(column, ["yes", None])[0][1] == [1.0, 1.0], "the more frequent"


def test_two_words_that_are_no_pair() -> None:
    assert isinstance(learn(["yes", "maybe", "yes", "maybe"])[0], Category)
    assert isinstance(learn(["yes", "false", "yes", "false"])[0], Category)


# ---- Dates. ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "format"),
    [
        ("%Y-%m-%d", "ISO8601"),
        ("%Y/%m/%d", "ISO8601"),
        ("%d.%m.%Y", "%d.%m.%Y"),
        ("%m/%d/%Y", "%m/%d/%Y"),
        ("%d-%m-%Y", "%d-%m-%Y"),
    ],
)
def test_dates_are_days_since_the_first(write: str, format: str) -> None:
    first = datetime.date(2023, 12, 25)
    days = [first + datetime.timedelta(k) for k in (3, 0, 40, 9)]
    column, remarks = learn([day.strftime(write) for day in days])
    assert isinstance(column, Date)
    assert column.format == format
    assert encode(column, [day.strftime(write) for day in days])[0] == [[3.0], [0.0], [40.0], [9.0]]
    assert "days since 2023-12-25" in column.description
    assert [remark.kind for remark in remarks] == (["date"] if write == "%m/%d/%Y" else [])


def test_day_first_where_month_first_cannot_be() -> None:
    column, _ = learn(["25/12/2023", "01/02/2024"])
    assert column.format == "%d/%m/%Y"
    assert encode(column, ["01/02/2024"])[0] == [[38.0]]


def test_times_and_zones() -> None:
    column, _ = learn(["2024-01-01T12:00:00+02:00", "2024-01-02T00:00:00+00:00"])
    assert encode(column, ["2024-01-01T12:00:00+00:00"])[0] == [[0.5]]
    stamps = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-03"]), name="c")
    for zone in (stamps, stamps.dt.tz_localize("UTC")):
        column = infer_column(zone, 20).column
        assert column is not None
        assert column.encode(zone)[0].tolist() == [[0.0], [2.0]]


def test_missing_and_unreadable_dates() -> None:
    column, _ = learn(["2024-01-01", None, "2024-01-11", "2024-01-21"])
    numbers, (remark,) = encode(column, [None, "2024-01-02", "soon"])
    assert numbers == [[10.0, 1.0], [1.0, 0.0], [10.0, 1.0]]
    assert (remark.kind, remark.example) == ("unreadable", "soon")


# ---- Categories. ----------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["red", "green", "blue", None]), min_size=6, max_size=40))
def test_categories_against_pandas(cells: list[str | None]) -> None:
    column, _ = learn([*cells, "red", "red", "green", "green", "blue", "blue"], dtype=object)
    numbers, _ = column.encode(pd.Series(cells, name="c", dtype=object))
    theirs = pd.get_dummies(pd.Series(cells, dtype=object)).reindex(
        columns=list(column.categories), fill_value=0
    )
    assert numbers[:, : len(column.categories)].tolist() == theirs.to_numpy(dtype=float).tolist()
    if column.missing:
        assert numbers[:, -1].tolist() == [float(cell is None) for cell in cells]


def test_rare_categories_are_other_and_new_ones_too() -> None:
    cells = ["a"] * 5 + ["b"] * 3 + ["c", "d"]
    column, (remark,) = learn(cells)
    assert column.features == ("c = a", "c = b", "c = other")
    assert "2 rows hold one of 2 rare categories, which are put together as 'other'" in str(remark)
    numbers, (said,) = encode(column, ["b", "c", "zebra"])
    assert numbers == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    assert (said.kind, said.count, said.example, said.strict) == ("unseen", 1, "zebra", True)


def test_unseen_without_other_is_all_zeros() -> None:
    column, _ = learn(["a"] * 5 + ["b"] * 5)
    numbers, (said,) = encode(column, ["a", "zebra"])
    assert numbers == [[1, 0], [0, 0]]
    assert (
        "1 cell holds a category that the training table did not have (none is 1), for example 'zebra'"
        in str(said)
    )


def test_the_cap() -> None:
    cells = [f"city {k % 50}" for k in range(500)]
    column, _ = learn(cells, most=7)
    assert len(column.categories) == 7
    assert column.lumped == 43
    assert column.features[-1] == "c = other"


def test_too_many_rare_names_to_remember() -> None:
    cells = [f"name {k // 2}" for k in range(4000)]
    column, _ = learn(cells)
    assert column.rare == frozenset()
    _, (said,) = encode(column, ["zebra"])
    assert (said.kind, said.strict) == ("other", False)
    assert "rare in the training table, or not in it" in said.text


def test_missing_text() -> None:
    column, _ = learn(["a", "a", "b", "b", None, "  "])
    assert column.features == ("c = a", "c = b", "c = missing")
    assert encode(column, [None, " a "])[0] == [[0, 0, 1], [1, 0, 0]]
    column, _ = learn(["a", "a", "b", "b"])
    numbers, (said,) = encode(column, [None, "a"])
    assert numbers == [[0, 0], [1, 0]]
    assert said.kind == "missing"


def test_codes_as_numbers_and_as_text() -> None:
    column, _ = learn(["a", "7", "a", "7"])
    assert encode(column, [7, 7.0])[0] == [[1, 0], [1, 0]]


def test_pandas_own_categories() -> None:
    column = infer_column(pd.Series(["x", "y", "x", "y"], name="c", dtype="category"), 20).column
    assert isinstance(column, Category)
    column = infer_column(pd.Series([1.5, 2.5, 1.5], name="c", dtype="category"), 20).column
    assert isinstance(column, Number)


# ---- What is left out. ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "name", "words"),
    [
        ([3, 3, 3], "c", "left out: constant: every cell is 3"),
        (["x", "x", "x"], "c", "left out: constant: every cell is 'x'"),
        ([True, True], "c", "left out: constant"),
        (["2020-01-01"] * 3, "c", "left out: constant"),
        ([None, None], "c", "left out: all cells are missing"),
        ([np.nan, np.inf], "c", "left out: all cells are missing"),
        (["", " "], "c", "left out: all cells are missing"),
        ([f"user {k}" for k in range(50)], "c", "50 different texts in 50 rows: names or identifiers"),
        (
            list(range(50)),
            "customer_id",
            "a different whole number in each row, and the name of an identifier",
        ),
        (list(range(50)), "Unnamed: 0", "the name of an identifier"),
        ([[1, 2], [3]], "c", "cells that hold lists are not supported"),
        (pd.interval_range(0, 2), "c", "cells of type interval.* are not supported"),
    ],
    ids=str,
)
def test_left_out(cells: Any, name: str, words: str) -> None:
    column, (remark,) = learn(cells, name)
    assert column is None
    assert remark.kind == "dropped"
    assert remark.strict
    assert pd.Series([str(remark)]).str.contains(words).all()


def test_kept_though_all_different() -> None:
    assert isinstance(learn(list(range(50)), "year")[0], Number), "only names of identifiers are suspicious"
    assert isinstance(learn(["a", "b", "c"])[0], Category), "three rows say nothing"


# ---- The schema. ----------------------------------------------------------------------------------

TABLE = pd.DataFrame(
    {
        "n": [1.0, None, 3.0, 4.0] * 5,
        "b": ["yes", "no"] * 10,
        "d": pd.date_range("2020-01-01", periods=20).astype(str),
        "t": ["x", "x", "y", "y"] * 5,
        "gone": [None] * 20,
    }
)


def test_round_trip_through_json() -> None:
    schema, _ = learn_schema(TABLE)
    same = Schema.from_json(json.loads(json.dumps(schema.as_json())))
    assert same == schema
    assert np.array_equal(same.encode(TABLE).numbers, schema.encode(TABLE).numbers)


@cache
def learned() -> tuple[Schema, Any]:
    schema, _ = learn_schema(TABLE)
    return schema, schema.encode(TABLE).numbers


@settings(max_examples=20)
@given(st.permutations(range(20)), st.permutations(["n", "b", "d", "t", "gone"]))
def test_order_of_rows_and_columns(rows: list[int], columns: list[str]) -> None:
    schema, numbers = learned()
    shuffled = schema.encode(TABLE.iloc[rows][columns]).numbers
    assert np.array_equal(shuffled, numbers[rows])  # exact: each cell by itself


def test_features_are_as_many_as_numbers_and_finite() -> None:
    schema, _ = learn_schema(TABLE)
    numbers = schema.encode(TABLE.iloc[::-1]).numbers
    assert numbers.shape == (20, len(schema.features))
    assert np.isfinite(numbers).all()
    assert schema.text_columns == ("b", "d", "t")


def test_a_missing_column() -> None:
    schema, _ = learn_schema(TABLE)
    with pytest.raises(
        ArgumentError,
        match=r"it needs 'n' too; got the columns 'b', 'd', 't', 'gone', 'N '. Did you mean 'N '\?",
    ):
        schema.encode(TABLE.drop(columns="n").assign(**{"N ": 1}))


def test_wrong_wishes() -> None:
    with pytest.raises(
        ArgumentError, match=r"drop must be columns of the table; got 'gon'. Did you mean 'gone'\?"
    ):
        learn_schema(TABLE, drop=["gon"])
    with pytest.raises(ArgumentError, match="max_categories must be an integer of at least 1; got 0"):
        learn_schema(TABLE, max_categories=0)
    with pytest.raises(ArgumentError, match=r"a column to learn from; got none \(column 'gone': left out"):
        learn_schema(TABLE[["gone"]])
    with pytest.raises(ArgumentError, match=r"no others than the target"):
        learn_schema(TABLE[[]])


def test_remarks_of_pieces_are_added() -> None:
    one, two = Remark("unseen", "c", 2, "cells", True, "x"), Remark("unseen", "c", 3, "cells", True, "y")
    assert merged([one, two, Remark("other", "c", 1, "cells")]) == [
        Remark("unseen", "c", 5, "cells", True, "x"),
        Remark("other", "c", 1, "cells"),
    ]


@pytest.mark.parametrize("written", [True, False], ids=["text", "dates"])
def test_the_year_9999_is_a_date(written: bool) -> None:
    """A year that nanoseconds since 1970 do not reach; Python's own calendar counts the days."""
    days = ["2020-01-01", "9999-12-31", "0001-01-01", "1969-12-31"]
    cells = pd.Series(days) if written else pd.Series(np.array(days, dtype="datetime64[s]"))
    expected = [(datetime.date.fromisoformat(day) - datetime.date(1970, 1, 1)).days for day in days]
    assert as_days(cells, "ISO8601").values.tolist() == expected
    hours = pd.Series(np.array(["9999-12-31T18:00", "1969-12-31T06:00"], dtype="datetime64[ms]"))
    assert as_days(hours, "ISO8601").values.tolist() == [expected[1] + 0.75, -0.75]


def test_files_of_earlier_versions_are_read() -> None:
    """Entries as version 0.1 wrote them, literally: a kind may gain fields only with a default for these."""
    old: list[Mapping[str, Any]] = [
        {"kind": "number", "name": "a", "fill": 1.5, "flag": True, "low": 0, "high": 3.0},
        {"kind": "truth value", "name": "b", "fill": 1.0, "flag": False, "low": 0.0, "high": 1.0},
        {
            "kind": "date",
            "name": "c",
            "fill": 4.0,
            "flag": False,
            "low": 0.0,
            "high": 9.0,
            "format": "%d.%m.%Y",
            "origin": 19000.0,
        },
        {
            "kind": "category",
            "name": "d",
            "categories": ["x", "y"],
            "other": True,
            "missing": False,
            "lumped": 1,
            "rare": ["z"],
        },
    ]
    schema = Schema.from_json(old)
    assert [type(column) for column in schema.columns] == [Number, Boolean, Date, Category]
    table = pd.DataFrame({"a": [None], "b": ["yes"], "c": ["08.01.2022"], "d": ["z"]})
    assert schema.encode(table).numbers.tolist() == [[1.5, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0]]

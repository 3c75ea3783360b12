"""Title lines, names in two lines, units, totals: against pandas, told where the rows start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlayer.tables import open_table
from mlayer.tables.fit.labeled import read_with_target
from mlayer.tables.reader.heading import heading
from mlayer.tables.remarks import counted

BODY = "week,store,units\n" + "".join(f"{k},{'AB'[k % 2]},{50 + k}.5\n" for k in range(30))


def written(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("title", "lines"),
    [
        ("Sales report\n", 1),
        ("Sales report\n\n", 1),
        ("Sales, by week\n\nCreated 2026-03-01\n\n", 2),
        ("Sales report,,\nunits sold,,\n,,\n", 3),
        ('"A title, in\ntwo lines",,\n', 1),
        ("\n\nSales report\n", 1),
    ],
)
def test_titles_are_left_out(tmp_path: Path, title: str, lines: int) -> None:
    source = open_table(written(tmp_path, title + BODY))
    wanted = pd.read_csv(written(tmp_path, BODY))
    source = open_table(written(tmp_path, title + BODY))
    assert source.columns == ("week", "store", "units")
    assert f"{counted(lines, 'title line').removeprefix('1 ')} left out" in source.description
    pd.testing.assert_frame_equal(source.read(), wanted)
    pd.testing.assert_frame_equal(source.read(5), wanted.head(5))
    pd.testing.assert_frame_equal(pd.concat(list(source.pieces(size=7))), wanted)


def test_another_delimiter_below_a_title(tmp_path: Path) -> None:
    text = "Export, complete\n" + BODY.replace(",", ";").replace(".", ",")
    source = open_table(written(tmp_path, text))
    assert source.read()["units"].tolist() == [50.5 + k for k in range(30)]
    assert "semicolon" in open_table(written(tmp_path, "Export\n" + BODY.replace(",", ";"))).description


@pytest.mark.parametrize("name", [None, "row"])
def test_columns_of_two_levels(tmp_path: Path, name: str | None) -> None:
    draw = np.random.default_rng(0)
    names = pd.MultiIndex.from_product([["temp", "load"], ["mean", "max"]])
    frame = pd.DataFrame(draw.normal(size=(20, 4)), columns=names)
    frame.index.name = name
    frame.to_csv(tmp_path / "two.csv")
    source = open_table(tmp_path / "two.csv")
    assert source.columns == (name or "Unnamed: 0", "temp_mean", "temp_max", "load_mean", "load_max")
    assert "names from two lines" in source.description
    np.testing.assert_allclose(source.read().iloc[:, 1:], frame.to_numpy())


def test_merged_cells_name_several_columns(tmp_path: Path) -> None:
    rows = "".join(f"r{k},{k},{k + 1},{k + 2},{k + 3}\n" for k in range(12))
    source = open_table(written(tmp_path, ",2024,,2025,\nregion,Q1,Q2,Q1,Q2\n" + rows))
    assert source.columns == ("region", "2024_Q1", "2024_Q2", "2025_Q1", "2025_Q2")
    assert len(source.read()) == 12


def test_units_below_the_names(tmp_path: Path) -> None:
    rows = "".join(f"{k}.5,A,{1900 + k},{k * 100}\n" for k in range(12))
    source = open_table(written(tmp_path, "area,kind,built,price\nm2,,year,EUR\n" + rows))
    assert source.columns == ("area", "kind", "built", "price")
    assert "a line of units left out" in source.description
    assert source.read()["price"].tolist() == [k * 100 for k in range(12)]


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        ",week,units\n" + "".join(f"{k},{k},{2 * k}\n" for k in range(9)),
        "name,city\nanna,rome\nbert,oslo\ncleo,bonn\n",
        "a,b\n?,n/a\n1,2\n3,4\n5,6\n7,8\n",
        "a,b,c\nhigh,2,3\n1,2,3\n4,5,6\n7,8,9\n1,1,1\n",
        "1,2,3\n4,5,6\n7,8,9\n",
        "id\n1\n2\n3\n",
        "x,y\n",
        "a,,\n1,2,3\n4,5,6\n",
    ],
)
def test_other_heads_stay(tmp_path: Path, text: str) -> None:
    source = open_table(written(tmp_path, text))
    pd.testing.assert_frame_equal(source.read(), pd.read_csv(tmp_path / "table.csv"), check_names=False)
    assert "left out" not in source.description
    assert "two lines" not in source.description


def test_names_that_would_be_double_stay_an_error() -> None:
    rows = [("a", "a"), ("x", "x"), *[("1", "2")] * 5]
    assert heading(rows).names == ("a", "a")


def test_lines_of_totals_are_left_out(tmp_path: Path) -> None:
    labeled = read_with_target(open_table(written(tmp_path, BODY + ",Total:,1935\n,Mean,64.5\n")), "units")
    assert len(labeled.truth) == 30
    assert labeled.truth.max() == 79.5
    (remark,) = [each for each in labeled.remarks if each.kind == "totals"]
    assert str(remark) == "2 lines of totals at the end of the table were left out, for example 'Total:'"
    # A category of that name is none.
    body = BODY.replace(",A,", ",total,") + "30,total,80\n"
    labeled = read_with_target(open_table(written(tmp_path, body)), "units")
    assert len(labeled.truth) == 31


def test_one_column_is_singular(tmp_path: Path) -> None:
    assert open_table(written(tmp_path, "id\n1\n")).description.endswith("1 column")
    assert open_table(written(tmp_path, BODY)).description.endswith("3 columns")

"""Amounts as people write them, against numbers written by Python; variants of a category; giveaways."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mlayer.cli.group import mlayer
from mlayer.tables import Plan, Target, Training, fit_table, learn_schema, load_table_model
from mlayer.tables.columns import Category, Number, infer_column
from mlayer.tables.columns.amounts import Notation, learn_notation
from mlayer.tables.columns.category import folded

QUICK = Training(epochs=5, effort="quick")

amounts = st.lists(
    st.decimals(-9_999_999, 9_999_999, places=2, allow_nan=False), min_size=3, max_size=12, unique=True
).filter(lambda values: any(v % 1 != 0 for v in values))


def swapped(text: str) -> str:
    return text.translate(str.maketrans(".,", ",."))


@given(amounts)
@pytest.mark.parametrize(
    ("write", "unit", "decimal"),
    [
        (lambda v: f"{v:,.2f}", "", "."),
        (lambda v: f"£{v:,.2f}", "GBP", "."),
        (lambda v: f"-${-v:,.2f}" if v < 0 else f"${v:,.2f}", "USD", "."),
        (lambda v: f"({-v:,.2f})" if v < 0 else f"{v:,.2f}", "", "."),
        (lambda v: swapped(f"{v:,.2f}") + " EUR", "EUR", ","),
        (lambda v: swapped(f"{v:,.2f}") + "€", "EUR", ","),
        (lambda v: f"{v:,.2f}".replace(",", " ").replace(".", ","), "", ","),
        (lambda v: f"{v:.2f} kg", "kg", "."),
        (lambda v: f"{v:.2f}%", "%", "."),
    ],
)
def test_what_was_written_is_read(write, unit, decimal, values) -> None:  # type: ignore[no-untyped-def]
    cells = pd.Series([write(v) for v in values], dtype=object)
    learned = learn_notation(cells)
    assert learned is not None
    assert learned[0] == Notation(decimal, unit)
    assert learned[0].read(cells).values.tolist() == [float(v) for v in values]


@pytest.mark.parametrize(
    "cells",
    [
        ["C-00042", "C-00043"],
        ["12.05.2020", "13.05.2020"],
        ["1st", "2nd", "3rd"],
        ["+44 20 7946 0958", "+44 20 7946 0959"],
        ["$5", "£6"],  # two currencies are no quantity
        ["5 kg", "700 ml"],
        ["<=50K", ">50K"],  # limits alone are names of classes
        ["01.03.", "02.03."],
        ["1-", "2+", "2"],
        ["A1", "B2"],
        ["1.2.3", "1.2.4"],
        ["(5", "6)"],
    ],
)
def test_what_is_no_amount(cells: list[str]) -> None:
    assert learn_notation(pd.Series(cells)) is None


@pytest.mark.parametrize(
    ("cells", "value", "doubt"),
    [
        (["1,234", "5,678"], 1234, "the comma separates thousands"),
        (["1.234 €", "950 €"], 1234, "the point separates thousands"),
        (["1.234 km", "950 km"], 1.234, ""),
        (["1,234", "5,67"], 1.234, ""),  # the second cell tells
        (["0,125 kg", "1,250 kg"], 0.125, ""),
    ],
)
def test_an_ambiguous_sign_is_settled_by_the_column_and_said(
    cells: list[str], value: float, doubt: str
) -> None:
    found = infer_column(pd.Series(cells, name="c"), 20)
    assert isinstance(found.column, Number)
    assert found.column.parse(pd.Series(cells)).values[0] == value
    said = " ".join(map(str, found.remarks))
    assert doubt in said
    assert ("separates" in said) == bool(doubt)


def test_later_tables_are_read_as_the_first_one_was() -> None:
    column = infer_column(pd.Series(["1.234,50 EUR", "950,00 EUR", "7 EUR"], name="c"), 20).column
    assert isinstance(column, Number)
    again = Number.from_json(column.as_json())
    numbers, remarks = again.encode(pd.Series(["1.234 EUR", "2", "3 GBP"]))
    assert numbers[:2, 0].tolist() == [1234, 2]
    assert [remark.kind for remark in remarks] == ["unreadable"]  # another currency is no number of this one
    assert again.raw_text  # else a csv reader would make 1.234 of it


def test_variants_of_a_category_are_one_and_it_is_said() -> None:
    cells = [
        "Rome",
        " rome",
        "ROME",
        "Rome",
        "New  York",
        "new york",
        "New  York",
        "Oslo",
        "Oslo",
        "oslo",
    ] * 3
    found = infer_column(pd.Series(cells, name="city"), 20)
    assert isinstance(found.column, Category)
    assert found.column.categories == ("Rome", "New  York", "Oslo")
    assert "differ from a category in case or spaces only" in str(found.remarks[0])
    numbers, remarks = found.column.encode(pd.Series(["rOmE", "new   york", "Bern"]))
    assert numbers.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert [remark.kind for remark in remarks] == ["unseen"]


@given(st.text(max_size=20))
def test_folding_is_idempotent(text: str) -> None:
    assert folded(folded(text)) == folded(text)


def test_classes_that_differ_in_case_are_one() -> None:
    frame = pd.DataFrame({"x": range(40), "y": ["Yes", "no", "YES", "No "] * 10})
    result = fit_table(frame, Plan(target="y", training=QUICK))
    assert len(result.model.target.classes) == 2
    assert "merged" in [remark.kind for remark in result.remarks]


def test_a_table_of_amounts_is_fitted_predicted_and_kept(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    area = draw.uniform(20, 200, 120).round(1)
    price = (area * 3210.5 + draw.normal(0, 900, 120)).round(2)
    frame = pd.DataFrame(
        {
            "area": [f"{v} m²" for v in area],
            "share": [f"{v:.1f}%" for v in draw.uniform(0, 100, 120)],
            "city": draw.choice(["Rome", "ROME ", "Oslo"], 120),
            "price": [f"£{v:,.2f}" for v in price],
        }
    )
    frame.to_csv(tmp_path / "homes.csv", index=False)
    run = CliRunner().invoke
    model, table = str(tmp_path / "m.safetensors"), str(tmp_path / "homes.csv")
    fitted = run(mlayer, ["fit", table, "-t", "price", "-o", model, "--no-report", "--epochs", "30"])
    assert fitted.exit_code == 0, fitted.output
    assert "in GBP" in fitted.output
    assert load_table_model(model).target.notation == Notation(".", "GBP")
    out = tmp_path / "p.csv"
    done = run(mlayer, ["predict", model, table, "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "R2" in done.output  # the target was read again
    predicted = pd.read_csv(out)["prediction"]
    assert np.corrcoef(predicted, price)[0, 1] > 0.95


def test_a_damaged_notation_is_refused() -> None:
    entry = Target("y", "regression", notation=Notation(",", "EUR")).as_json()
    assert Target.from_json(entry).notation == Notation(",", "EUR")
    with pytest.raises(ValueError, match="decimal"):
        Target.from_json(entry | {"notation": {"decimal": ";", "unit": ""}})


def leaky(rows: int = 200) -> pd.DataFrame:
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({"a": draw.normal(size=rows), "b": draw.normal(size=rows)})
    frame["price"] = 100 + 10 * frame["a"] * frame["b"] + draw.normal(0, 1, rows)
    return frame


def kinds(frame: pd.DataFrame, target: str) -> dict[str, list[str]]:
    result = fit_table(frame, Plan(target=target, training=QUICK))
    found: dict[str, list[str]] = {}
    for remark in result.remarks:
        found.setdefault(remark.kind, []).append(remark.column)
    return found


def test_a_column_that_gives_the_target_away_gets_a_warning() -> None:
    frame = leaky()
    assert "giveaway" not in kinds(frame, "price")
    frame["with_tax"] = (1.19 * frame["price"]).round(2)
    frame["log_price"] = np.log(frame["price"])
    assert kinds(frame, "price")["giveaway"] == ["with_tax", "log_price"]


def test_what_is_known_only_after_the_fact_gets_a_warning() -> None:
    frame = leaky()
    left = frame["price"] > 100
    frame["left"] = np.where(left, "yes", "no")
    # Filled in only for those who left: that it is missing tells all.
    frame["reason"] = pd.Series(np.where(frame["a"] > 0, "price", "service"), dtype=object).where(left, None)
    assert kinds(frame.drop(columns="price"), "left")["giveaway"] == ["reason"]


@pytest.mark.parametrize("name", ["id", "PassengerId", "customerID", "order_no", "invoice number"])
def test_identifiers_are_left_out_and_said(name: str) -> None:
    frame = leaky()
    frame[name] = np.random.default_rng(2).permutation(len(frame)) + 1000
    schema, remarks = learn_schema(frame.drop(columns="price"))
    assert name not in [column.name for column in schema.columns]
    assert [remark.column for remark in remarks if remark.kind == "dropped"] == [name]


def test_certified_rows_carry_their_number_and_identifier() -> None:
    from mlayer.tables.certify.certify_table import certify_table

    frame = leaky(60).assign(code=[f"P-{k}" for k in range(60)])
    frame["left"] = np.where(frame.pop("price") > 100, "yes", "no")
    model = fit_table(frame, Plan(target="left", training=QUICK)).model
    asked = frame.iloc[[7, 3, 11]]
    rows = certify_table(model, asked, eps=0.001).frame
    assert rows["row"].tolist() == [1, 2, 3]
    assert rows["code"].tolist() == ["P-7", "P-3", "P-11"]

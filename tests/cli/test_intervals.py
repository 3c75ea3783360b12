"""`mlayer certify` on a regression model: the interval in which each prediction stays."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlayer.cli import main
from mlayer.errors import ArgumentError
from mlayer.symbolic import from_polynomial
from mlayer.tables import TableModel, Target, learn_schema
from mlayer.tables.certify.intervals import interval_table
from mlayer.tables.horizon import slowed_range

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def houses(rows: int = 12) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "length": draw.uniform(1, 7, rows).round(3),
            "width": draw.uniform(0, 2, rows).round(3),
            "roof": draw.choice(["flat", "steep", "green"], rows),
            "new": draw.choice([True, False], rows),
        }
    )


def model(dtype: str = "double") -> TableModel:
    """length width + 2 [green] - 3 [new]: intervals can be told by hand."""
    schema, _ = learn_schema(houses())
    names = list(schema.features)
    x = {name: f"x{k}" for k, name in enumerate(names)}
    formula = f"{x['length']} * {x['width']} + 2 * {x['roof = green']} - 3 * {x['new']}"
    layer = getattr(from_polynomial([formula], " ".join(x.values())), dtype)()
    return TableModel(layer, schema, Target("price", "regression", ()))


def exact(frame: pd.DataFrame, steps: dict[str, float], roofs: bool, ages: bool) -> np.ndarray:
    """The range of the formula over each row's box, from its corners: it is linear in each number."""
    ends = []
    for row in frame.itertuples():
        values = [
            (row.length + a) * (row.width + b) + 2 * (roof == "green") - 3 * new
            for a, b in product((-steps["length"], steps["length"]), (-steps["width"], steps["width"]))
            for roof in (("flat", "steep", "green") if roofs else (row.roof,))
            for new in ((True, False) if ages else (row.new,))
        ]
        ends.append((min(values), max(values)))
    return np.array(ends)


@pytest.mark.parametrize(
    ("roofs", "ages", "dtype"), [(False, False, "double"), (True, False, "float"), (True, True, "double")]
)
def test_intervals_are_those_that_can_be_told_by_hand(
    roofs: bool, ages: bool, dtype: str, capsys: Captured
) -> None:
    model(dtype).save("m.safetensors")
    frame = houses()
    frame.to_csv("t.csv", index=False)
    vary = ["--vary", "roof"] * roofs + ["--vary", "new"] * ages
    command = ["certify", "m.safetensors", "t.csv", "--eps", "0.1", "--unit", "length=2", *vary]
    assert main([*command, "-o", "i.csv", "--json", "-q"]) == 0
    facts = json.loads(capsys.readouterr().out)
    steps = {"length": 0.2, "width": 0.1 * float(np.ptp(frame["width"]))}
    truth, found = exact(frame, steps, roofs, ages), pd.read_csv("i.csv")
    assert (found["lower"] <= truth[:, 0] + 1e-12).all()
    assert (found["upper"] >= truth[:, 1] - 1e-12).all()
    np.testing.assert_allclose(found[["lower", "upper"]], truth, atol=1e-2)
    assert (found["lower"] <= found["prediction"]).all()
    assert (found["prediction"] <= found["upper"]).all()
    assert facts["rows"] == 12
    assert facts["unbounded"] == 0
    assert facts["median_width"] == pytest.approx(float(np.median(np.ptp(truth, axis=1))), rel=1e-2)


def test_categories_alone_may_vary() -> None:
    found = interval_table(model(), houses(), eps=0.0, vary=["roof"]).frame
    np.testing.assert_allclose(found["upper"] - found["lower"], 2.0, atol=1e-9)


def test_said_in_words(capsys: Captured) -> None:
    model().save("m.safetensors")
    houses().to_csv("t.csv", index=False)
    assert main(["certify", "m.safetensors", "t.csv", "--eps", "0.01", "--vary", "new"]) == 0
    shown = capsys.readouterr()
    assert "median width of the intervals" in shown.out
    assert "length moves by up to" in shown.err
    assert "new takes all its values" in shown.err
    assert main(["certify", "m.safetensors", "t.csv", "--eps", "1e90", "-q"]) == 0
    assert "no bound: a smaller --eps may give one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--eps must be given for a regression model"),
        (["--eps", "0.1", "--norm", "l2"], "--norm is for classifiers"),
        (["--eps", "0.1", "--method", "paper"], "--method is for classifiers"),
        (["--eps", "0.1", "--rigorous"], "--rigorous is for classifiers"),
        (["--eps", "0.1", "--proof", "p.safetensors"], "--proof is for classifiers"),
        (["--eps", "0.1", "--vary", "rof"], "Did you mean 'roof'"),
        (["--eps", "0.1", "--vary", "length"], "whose cells are neither"),
        (["--eps", "0.1", "--unit", "lenght=1"], "Did you mean 'length'"),
        (["--eps", "1e308", "--unit", "length=9"], "eps must be small enough that eps times each unit is"),
    ],
)
def test_mistakes(arguments: list[str], words: str, capsys: Captured) -> None:
    model().save("m.safetensors")
    houses().to_csv("t.csv", index=False)
    assert main(["certify", "m.safetensors", "t.csv", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_classifier_does_not_vary(capsys: Captured) -> None:
    schema, _ = learn_schema(houses())
    names = " ".join(f"x{k}" for k in range(len(schema.features)))
    layer = from_polynomial(["x0 - 4", "0"], names).double()
    TableModel(layer, schema, Target("kind", "classification", ("a", "b"))).save("m.safetensors")
    houses().to_csv("t.csv", index=False)
    assert main(["certify", "m.safetensors", "t.csv", "--vary", "roof"]) == 2
    assert "--vary is for regression models" in capsys.readouterr().err


def test_too_many_combinations() -> None:
    frame = pd.DataFrame({f"c{k}": [f"x{j % 6}" for j in range(60)] for k in range(6)} | {"a": range(60)})
    schema, _ = learn_schema(frame.assign(a=np.linspace(0, 1, 60)))
    names = [f"x{k}" for k in range(len(schema.features))]
    layer = from_polynomial([f"{names[-1]}"], " ".join(names)).double()
    found = TableModel(layer, schema, Target("y", "regression", ()))
    with pytest.raises(ArgumentError, match="at most 1,000 combinations"):
        interval_table(found, frame, eps=0.1, vary=[f"c{k}" for k in range(6)])


def test_units_beyond_the_range_of_floats_are_refused() -> None:
    with pytest.raises(ArgumentError, match="unit must be a number of at least 0; got length=1000"):
        interval_table(model(), houses(), eps=0.1, units={"length": 10**400})


@pytest.mark.parametrize("rate", [0.03, -0.02])
def test_intervals_hold_growth_that_slows_down(rate: float) -> None:
    """Predictions for dates after the last one are less than the layer's value, or more."""
    days = pd.date_range("2024-01-01", periods=40).astype(str)
    schema, _ = learn_schema(pd.DataFrame({"day": days, "b": np.linspace(0, 1, 40)}))
    layer = from_polynomial(["50 + 3 * x0 - 60 * x1"], "x0 x1").double()
    horizon = {"column": "day", "last": "2024-02-09T00:00:00", "slows": {"rate": rate, "after": 5.0}}
    growing = TableModel(layer, schema, Target("y", "regression", ()), {"horizon": horizon})
    frame = pd.DataFrame({"day": ["2024-01-20", "2024-02-12", "2024-03-01", None], "b": [0.1, 0.9, 0.5, 0.5]})
    found = interval_table(growing, frame, eps=0.25, units={"day": 60.0, "b": 1.0}).frame
    for share in np.linspace(-1, 1, 21):
        steps = pd.to_timedelta(share * 15 * 86400 * (1 - 1e-9), "s")
        for b in (-0.25, 0.0, 0.25):
            moved = frame.assign(day=(pd.to_datetime(frame["day"]) + steps).astype(str), b=frame["b"] + b)
            values = growing.predict(moved.replace("NaT", None)).outputs
            assert (found["lower"] <= values).all()
            assert (values <= found["upper"]).all()


@pytest.mark.parametrize("rate", [0.01, -30.0])
def test_one_end_without_bound_leaves_the_other(rate: float) -> None:
    frame = pd.DataFrame({"day": ["2024-01-20", "2024-05-19"]})
    schema, _ = learn_schema(pd.DataFrame({"day": pd.date_range("2024-01-01", periods=40).astype(str)}))
    entry = {"column": "day", "last": "2024-02-09T00:00:00", "slows": {"rate": rate, "after": 30.0}}
    ends = np.array([-np.inf, -np.inf]), np.array([5.0, 5.0])
    low, high = slowed_range(entry, schema, frame, 1.0, ends)
    assert (low == -np.inf).all()
    assert high[0] == pytest.approx(5.0)  # before the last date nothing slows down
    late = 5 * np.exp(-0.01 * (69 + 30 * np.expm1(-2.3)))  # 100 days after it, less one
    assert high[1] == (pytest.approx(late) if rate > 0 else np.inf)


def test_a_missing_cell_stays_while_another_column_varies() -> None:
    """The category is missing, which is none of its values; the other one takes both of its own."""
    frame = pd.DataFrame({"roof": ["flat", "steep", None, None] * 5, "new": ["yes", "no"] * 10})
    schema, _ = learn_schema(frame)
    x = dict(zip(schema.features, (f"x{k}" for k in range(len(schema.features))), strict=True))
    formula = f"5 * {x['roof = missing']} * {x['new']} + {x['roof = flat']}"
    layer = from_polynomial([formula], " ".join(x.values())).double()
    row = pd.DataFrame({"roof": [None], "new": ["no"]})
    both = TableModel(layer, schema, Target("y", "regression", ()))
    found = interval_table(both, row, eps=0.0, vary=["roof", "new"]).frame
    np.testing.assert_allclose(found[["lower", "upper"]], [[0.0, 5.0]], atol=1e-9)


def test_rows_on_the_screen_have_their_identifiers_in_full(capsys: Captured) -> None:
    """One array of all columns would make 10047 beside fractions a 1.005e+04."""
    model().save("m.safetensors")
    frame = houses().assign(number=range(10047, 10059), weight=12345.678)
    frame["weight"] += np.arange(12) / 1000
    frame.to_csv("t.csv", index=False)
    assert main(["certify", "m.safetensors", "t.csv", "--eps", "0.01", "-q"]) == 0
    shown = capsys.readouterr().out
    assert "10047" in shown
    assert "e+0" not in shown
    frame.drop(columns="number").assign(length=12345.0).to_csv("t.csv", index=False)
    assert main(["certify", "m.safetensors", "t.csv", "--eps", "0.01", "-q"]) == 0
    shown = capsys.readouterr().out
    assert "12345.678" in shown
    assert "e+0" not in shown

"""`mlayer certify` against `mlayer predict`: what is certified holds for the cells that a user changes."""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from mlayer import MLayer
from mlayer.cli import main
from mlayer.symbolic import from_polynomial
from mlayer.tables import TableModel, Target, learn_schema
from mlayer.tables.certify.certify_table import certify_table
from mlayer.tables.certify.check_proof import check_table, read_proof_file
from mlayer.tables.certify.intervals import interval_table


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(rows: int = 20) -> pd.DataFrame:
    return pd.DataFrame({"a": np.linspace(-1.0, 1.0, rows), "b": np.linspace(2.0, 0.0, rows) ** 2})


def by_threshold(threshold: float | None) -> TableModel:
    """The logits differ by 2 a: yes where 2 a >= log(t / (1 - t))."""
    schema, _ = learn_schema(lines())
    layer = from_polynomial(["0", "2 * x0"], "x0 x1").double()
    return TableModel(layer, schema, Target("ill", "classification", ("no", "yes")), threshold=threshold)


@pytest.mark.parametrize("threshold", [0.2, 0.9, None])
def test_radii_end_where_the_threshold_changes_the_answer(threshold: float | None) -> None:
    model, frame = by_threshold(threshold), lines()
    found = certify_table(model, frame, method="second_order", units={"a": 1.0, "b": 0.0})
    assert found.frame["prediction"].tolist() == model.predict(frame).labels
    edge = 0.0 if threshold is None else np.log(threshold / (1 - threshold)) / 2
    np.testing.assert_allclose(found.frame["radius"], np.abs(frame["a"] - edge), rtol=1e-3, atol=1e-9)
    for share, same in ((1 - 1e-9, True), (1.01, False)):
        step = np.sign(edge - frame["a"]) * found.frame["radius"] * share
        labels = model.predict(frame.assign(a=frame["a"] + step)).labels
        assert (labels == found.frame["prediction"]).all() == same


def test_a_proof_is_about_the_threshold_too(capsys: pytest.CaptureFixture[str]) -> None:
    by_threshold(0.9).save("m.safetensors")
    lines(6).to_csv("t.csv", index=False)
    unit = ["--unit", "a=1", "-q"]
    assert main(["certify", "m.safetensors", "t.csv", "--proof", "p.safetensors", "-o", "c.csv", *unit]) == 0
    assert main(["check-proof", "m.safetensors", "t.csv", "p.safetensors", *unit]) == 0
    proof = read_proof_file(Path("p.safetensors"))
    checked = check_table(by_threshold(0.9), pd.read_csv("t.csv"), proof, units={"a": 1.0})
    certified = pd.read_csv("c.csv")
    assert [row.answer for row in checked.rows] == ["accepted"] * 6
    np.testing.assert_allclose([row.radius for row in checked.rows], certified["radius"], rtol=1e-9)
    other = check_table(by_threshold(None), pd.read_csv("t.csv"), proof, units={"a": 1.0})
    assert not any(row.answer == "accepted" for row in other.rows)
    capsys.readouterr()


def far_out(rows: int = 12) -> pd.DataFrame:
    """Numbers whose neighbors in float32 are 8 apart."""
    return pd.DataFrame(
        {"serial": 1e8 + np.arange(0.0, 10.0 * rows, 10.0) + 3.0, "b": np.arange(rows) % 5 * 1.0}
    )


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_cells_are_rounded_on_their_way_to_the_layer(norm: str) -> None:
    """The answer changes at 1e8 + 48; the layer, in float32, sees cells to within 4."""
    frame = far_out()
    schema, _ = learn_schema(frame)
    corner = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])  # exp(f T) has f in its corner
    layer = MLayer.from_weights(
        corner,
        torch.cat([corner, 0 * corner]),
        embedding=torch.tensor([[2.0**-10, 0.0]]),
        embedding_bias=torch.tensor([-(1e8 + 48) * 2.0**-10]),
    )
    model = TableModel(layer, schema, Target("late", "classification", ("yes", "no")))
    found = certify_table(
        model, frame, norm=norm, method="second_order", units={"serial": 1.0, "b": 0.0}
    ).frame
    exact = TableModel(deepcopy(layer).double(), schema, model.target)
    reach = found["radius"].to_numpy()
    for sign, share in product((-1.0, 1.0), (1.0, 0.5)):
        moved = frame.assign(serial=frame["serial"] + sign * share * reach)
        rounded = moved.assign(serial=moved["serial"].astype(np.float32).astype(np.float64))
        for cells in (moved, rounded):
            assert exact.predict(cells).labels == found["prediction"].tolist()
    for eps in (1.0, 20.0):
        at = certify_table(
            model, frame, norm=norm, method="second_order", eps=eps, units={"serial": 1.0, "b": 0.0}
        ).certificates
        assert at.eps == eps
        assert bool((at.certified == (at.radius == eps)).all())
        broken = np.abs(frame["serial"].to_numpy() - 1e8 - 48) < eps
        assert not (at.certified.numpy() & broken).any()


def test_intervals_hold_what_is_predicted_for_changed_cells() -> None:
    """Dates, missing cells, cells beyond the limits, merged and rare categories: by brute force."""
    draw = np.random.default_rng(3)
    rows = 30
    frame = pd.DataFrame(
        {
            "day": pd.date_range("2024-01-31 06:00", periods=rows, freq="37h").astype(str),
            "far": np.where(np.arange(rows) == 7, 1e6, draw.normal(0, 1, rows)),
            "gap": np.where(np.arange(rows) % 9 == 0, np.nan, draw.normal(5, 1, rows)),
            "kind": draw.choice(["red", "red", "Red ", "blue", "green"], rows),
            "new": draw.choice(["yes", "no"], rows),
        }
    )
    frame.loc[3, "kind"] = "once"
    schema, _ = learn_schema(frame)
    names = [f"x{k}" for k in range(len(schema.features))]
    x = dict(zip(schema.features, names, strict=True))
    formula = (
        f"{x['far']} * {x['gap']} + {x['day']} * {x['far']} / 100 + 3 * {x['kind = red']} * {x['far']}"
        f" - {x['kind = other']} + 2 * {x['new']} * {x['gap']} + {x['gap is missing']}"
    )
    layer = from_polynomial([formula], " ".join(names)).double()
    model = TableModel(layer, schema, Target("y", "regression", ()))
    found = interval_table(model, frame, eps=0.05, units={"gap": 10.0}, vary=["kind", "new"])
    low, high = found.frame["lower"].to_numpy(), found.frame["upper"].to_numpy()
    reach = {name: 0.05 * unit for name, unit in found.units.items()}
    for trial in range(18):
        steps = draw.choice([-1.0, 1.0], (3, rows)) * (1.0 if trial % 2 else draw.uniform(0, 1, (3, rows)))
        days = pd.to_datetime(frame["day"]) + pd.to_timedelta(
            steps[0] * reach["day"] * 86400 * (1 - 1e-9), "s"
        )
        changed = frame.assign(
            day=days.astype(str),
            far=frame["far"] + steps[1] * reach["far"],
            gap=frame["gap"] + steps[2] * reach["gap"],
        )
        if trial % 3:
            kinds = ["RED", "blue", " green", "once", "never seen"]
            changed["kind"] = draw.choice(kinds, rows)
            changed["new"] = draw.choice(["yes", "no"], rows)
        values = model.predict(changed).outputs
        slack = 1e-9 * np.abs(values).max()
        assert (low <= values + slack).all()
        assert (values - slack <= high).all()
    assert np.isfinite(high - low).all()


def test_cells_that_are_denormal_in_the_layers_precision() -> None:
    """Float32 has multiples of 1.4e-45 there; the answer changes at 2.24e-45, which lies between two."""
    schema, _ = learn_schema(pd.DataFrame({"a": np.arange(20) * 1e-44}))
    layer = MLayer.from_weights(
        torch.full((1, 1, 1), 1e8),
        torch.tensor([[[0.0]], [[1.0]]]),
        embedding=torch.full((1, 1), 1e37),
        output_bias=torch.tensor([0.0, -9.4]),
    )
    model = TableModel(layer, schema, Target("ill", "classification", ("no", "yes")))
    radius = float(certify_table(model, pd.DataFrame({"a": [0.0]}), units={"a": 1e-44}).frame["radius"][0])
    cells = pd.DataFrame({"a": np.linspace(-1.0, 1.0, 41) * radius * 1e-44})
    exact = deepcopy(layer).double()(model.encode(cells)[0].double())
    assert (exact.argmax(1) == 0).all()


@pytest.mark.parametrize("eps", [0.001, 0.1, 1e-50, 5e-324])
def test_a_radius_that_was_asked_for_is_not_rounded(eps: float) -> None:
    """The float32 of 0.1 is 1.5e-9 more than 0.1, and that of 1e-50 is 0."""
    found = certify_table(by_threshold(None), lines(), eps=eps)
    certified = found.certificates.certified.numpy()
    assert certified.any()
    assert set(found.frame["radius"][certified]) == {eps}


def test_a_radius_beyond_float32() -> None:
    found = certify_table(by_threshold(None), lines(), eps=1e300)
    assert not found.frame["radius"].any()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_no_radius_reaches_the_number_for_a_missing_cell(norm: str) -> None:
    """-999 counts as missing: a cell that moves there is another row, whatever the layer says of numbers."""
    frame = pd.DataFrame({"a": [*np.linspace(1, 10, 29), 300.0, -999.0, -999.0], "b": np.linspace(0, 1, 32)})
    schema, _ = learn_schema(frame)
    assert schema.features == ("a", "a is missing", "b")
    frame.loc[4, "a"] = -700.0  # counts as about -90, as outliers do; its own distance matters
    layer = from_polynomial(["0", "2 - 5 * x1"], "x0 x1 x2").double()
    model, rows = TableModel(layer, schema, Target("ill", "classification", ("no", "yes"))), frame.iloc[3:6]
    units = {"a": 10.0, "b": 1.0}
    found = certify_table(model, rows, norm=norm, units=units, proof=True)
    reach = (rows["a"].to_numpy() + 999) / 10
    np.testing.assert_allclose(found.frame["radius"], reach, rtol=1e-9)
    for radius, same in ((found.frame["radius"], True), (reach, False)):
        moved = model.predict(rows.assign(a=rows["a"] - 10 * np.asarray(radius))).labels
        assert (moved == found.frame["prediction"]).all() == same
    at = certify_table(model, rows, norm=norm, units=units, eps=50.0)
    assert at.frame["radius"].tolist() == [50.0, 0.0, 50.0]
    assert found.certificates.proof is not None
    checked = check_table(model, rows, found.certificates.proof.as_lists(), norm=norm, units=units)
    np.testing.assert_allclose([row.radius for row in checked.rows], reach, rtol=1e-9)
    quantity = TableModel(
        from_polynomial(["x0 - 5000 * x1"], "x0 x1 x2").double(), schema, Target("y", "regression", ())
    )
    ends = interval_table(quantity, rows, eps=50.0, units=units).frame
    np.testing.assert_allclose(ends["upper"] - ends["lower"], [1000.0, np.inf, 1000.0], rtol=1e-9)


@pytest.mark.parametrize("cell", ["-998.9999", "-998.99999999", "-999.0000003", "-998.9999999999999"])
def test_cells_near_the_number_for_a_missing_one(cell: str) -> None:
    """Cells are rounded to numbers: no radius is above the distance of what is written."""
    numbers = [*np.linspace(1, 10, 30), -999.0, -999.0]
    schema, _ = learn_schema(pd.DataFrame({"a": numbers, "b": np.linspace(0, 1, 32)}))
    layer = from_polynomial(["0", "2 - 5 * x1"], "x0 x1 x2").double()
    model = TableModel(layer, schema, Target("ill", "classification", ("no", "yes")))
    rows = pd.DataFrame({"a": [float(cell)], "b": [0.5]})
    found = certify_table(model, rows, units={"a": 1.0, "b": 0.0})
    distance = abs(Fraction(cell) + 999)
    assert Fraction(float(found.frame["radius"].iloc[0])) < distance
    np.testing.assert_allclose(found.frame["radius"], float(distance), rtol=1e-2, atol=4e-12)

"""The model file: all that prediction needs in one safetensors file, and nothing of scikit-learn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import mlayer
from least_squares import LeastSquares, linear_layer
from mlayer.errors import FileFormatError
from mlayer.files import load_with_notes
from mlayer.tables import Plan, TableModel, Target, fit_table, learn_schema, load_table_model
from mlayer.tables.certify.intervals import interval_table
from mlayer.tables.model import TABLE_FORMAT


def table(rows: int = 120) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": draw.integers(18, 80, rows).astype(float),
            "city": draw.choice(["Rome", "Oslo", "Bern"], rows),
            "since": pd.date_range("2020-01-01", periods=rows).astype(str),
            "member": draw.choice(["yes", "no"], rows),
        }
    )
    frame.loc[::9, "age"] = np.nan
    frame["price"] = frame["age"].fillna(40) * 2 + (frame["city"] == "Rome") * 10 + draw.normal(size=rows)
    frame["kind"] = np.where(frame["price"] > frame["price"].median(), "dear", "cheap")
    return frame


def fitted(target: str) -> TableModel:
    other = {"price": "kind", "kind": "price"}[target]
    return fit_table(table(), Plan(target, drop=(other,)), estimator=LeastSquares()).model


@pytest.fixture(scope="module", params=["price", "kind"])
def model(request: pytest.FixtureRequest) -> TableModel:
    return fitted(request.param)


def test_round_trip(model: TableModel, tmp_path: Path) -> None:
    model.save(tmp_path / "m.safetensors")
    same = load_table_model(tmp_path / "m.safetensors")
    assert (same.schema, same.target) == (model.schema, model.target)
    assert same.facts == json.loads(json.dumps(model.facts))
    before, after = model.predict(table(50)), same.predict(table(50))
    assert np.array_equal(before.outputs, after.outputs)
    assert before.labels == after.labels
    layer = mlayer.load(tmp_path / "m.safetensors")
    assert torch.equal(layer.readout, model.layer.readout), "mlayer.load gives the layer"


def test_predictions_are_encode_layer_softmax(model: TableModel) -> None:
    """Recomputed by hand from the schema's numbers."""
    frame = table(30)
    raw = model.layer(torch.from_numpy(model.schema.encode(frame).numbers)).detach().numpy()
    predictions = model.predict(frame)
    if model.target.classifies:
        powers = np.exp(raw)
        np.testing.assert_allclose(
            predictions.outputs, powers / powers.sum(axis=1, keepdims=True), rtol=1e-12
        )
        assert predictions.labels == [model.target.classes[k] for k in raw.argmax(axis=1)]
    else:
        np.testing.assert_allclose(predictions.outputs, raw[:, 0], rtol=1e-12)
        assert predictions.labels == pytest.approx(raw[:, 0].tolist())


def test_batches_do_not_matter(model: TableModel, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlayer.tables import model as room

    whole = model.predict(table()).outputs
    monkeypatch.setattr(room, "_BATCH", 7)
    np.testing.assert_allclose(model.predict(table()).outputs, whole, rtol=1e-12)


def test_no_rows(model: TableModel) -> None:
    assert len(model.predict(table().iloc[:0]).outputs) == 0


def test_prediction_needs_no_scikit_learn(tmp_path: Path) -> None:
    for target in ("price", "kind"):
        fitted(target).save(tmp_path / f"{target}.safetensors")
    table(20).to_csv(tmp_path / "t.csv", index=False)
    script = (
        "import sys\n"
        "for name in ('sklearn', 'click', 'rich', 'matplotlib'): sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from mlayer.tables import load_table_model, open_table, predict_table\n"
        "for name in ('price', 'kind'):\n"
        "    model, source = load_table_model(f'{name}.safetensors'), open_table('t.csv')\n"
        "    print(predict_table(model, source, Path(f'{name}.csv')).rows)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "20\n20\n", done.stderr


def test_overflow_is_said_and_gives_no_answer() -> None:
    schema, _ = learn_schema(pd.DataFrame({"x": [0.0, 1.0]}))
    big = mlayer.MLayer.from_weights(
        torch.ones(1, 1, 1, dtype=torch.float64), torch.tensor([[[1.0]], [[-1.0]]], dtype=torch.float64)
    )
    for target, layer in (
        (Target("y", "classification", ("a", "b")), big),
        (Target("y", "regression"), mlayer.MLayer.from_weights(big.generators, big.readout[:1])),
    ):
        predictions = TableModel(layer, schema, target).predict(pd.DataFrame({"x": [0.5, 1e4]}))
        assert predictions.labels[0] is not None
        assert predictions.labels[1] is None
        assert np.isnan(predictions.outputs[1]).all()
        assert [r.count for r in predictions.remarks if r.kind == "overflow"] == [1]
        truth, _ = target.encode(pd.Series(["a", "a"] if target.classifies else [1.0, 1.0], name="y"))
        assert np.isfinite(list(predictions.metrics(truth).values())).all(), "over the rows with an answer"
        assert predictions.metrics(np.full(2, -1 if target.classifies else np.nan)) == {}


# ---- Files that are something else. ---------------------------------------------------------------


def test_a_plain_layer(tmp_path: Path) -> None:
    mlayer.save(mlayer.MLayer(2, 1, matrix_size=2), tmp_path / "m")
    with pytest.raises(FileFormatError, match=r"a model of mlayer fit; got a layer without a table"):
        load_table_model(tmp_path / "m")


def damaged(entry: dict[str, Any], change: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(entry))
    change(copy)
    return copy


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda e: e.update(format=99),
            rf"of table format {TABLE_FORMAT} or older; got table format 99, written by a newer mlayer",
        ),
        (lambda e: e.pop("columns"), r"a damaged table entry \(KeyError\('columns'\)\)"),
        (lambda e: e.update(columns=3), r"a damaged table entry"),
        (lambda e: e["columns"][0].update(kind="os.system"), r"a damaged table entry"),
        (lambda e: e["columns"][0].pop("fill"), r"a damaged table entry"),
        (lambda e: e["columns"][0].update(fill="x"), r"a damaged table entry"),
        (lambda e: e["columns"][0].update(flag=7), r"a damaged table entry"),
        (lambda e: e["columns"][0].update(name=None), r"a damaged table entry"),
        (lambda e: e["target"].update(task="x"), r"a damaged table entry"),
        (lambda e: e["columns"].pop(), r"a layer from \d+ to \d numbers for a table of"),
        (lambda e: e.update(facts=None), r"a damaged table entry"),
    ],
)
def test_damaged_entries(change: Any, words: str, model: TableModel, tmp_path: Path) -> None:
    """The forger can compute the digest."""
    mlayer.save(model.layer, tmp_path / "m", notes={"table": damaged(model.as_json(), change)})
    with pytest.raises(FileFormatError, match=words):
        load_table_model(tmp_path / "m")
    mlayer.save(model.layer, tmp_path / "m", notes={"table": 3})
    with pytest.raises(FileFormatError, match="a damaged table entry"):
        load_table_model(tmp_path / "m")


def test_the_entry_is_plain_json(model: TableModel, tmp_path: Path) -> None:
    """The entry that other programs read: names, kinds, categories, fill values, the target."""
    model.save(tmp_path / "m")
    _, notes = load_with_notes(tmp_path / "m")
    assert notes is not None
    entry = notes["table"]
    assert [column["kind"] for column in entry["columns"]] == ["number", "category", "date", "truth value"]
    assert entry["target"]["name"] == model.target.name
    assert set(entry["facts"]) >= {"metrics", "baseline", "rows", "seed", "versions"}


def test_least_squares_itself() -> None:
    """The estimator of these tests is the linear function it claims to be."""
    weights, bias = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0, 6.0])
    x = np.array([[0.5, -1.0], [2.0, 3.0]])
    np.testing.assert_allclose(linear_layer(weights, bias)(torch.from_numpy(x)).detach(), x @ weights + bias)


def test_predictions_far_beyond_the_targets_are_said(tmp_path: Path) -> None:
    table = pd.DataFrame({"x": np.arange(40.0), "y": 2.0 * np.arange(40.0)})
    model = fit_table(table, Plan("y"), estimator=LeastSquares()).model
    least, most = model.facts["range"]
    assert (least, most) == (table["y"].iloc[[0, -1]].min(), most)
    model.save(tmp_path / "m.safetensors")
    model = load_table_model(tmp_path / "m.safetensors")
    near, far = (most + part * (most - least) for part in (0.9, 1.1))
    predictions = model.predict(pd.DataFrame({"x": [1.0, near / 2, far / 2, -far / 2]}))
    (remark,) = [each for each in predictions.remarks if each.kind == "beyond"]
    assert remark.count == 2
    assert "2 predictions lie far beyond the targets of the fit" in str(remark)
    inside = model.predict(pd.DataFrame({"x": [1.0, near / 2]}))
    assert not [each for each in inside.remarks if each.kind == "beyond"]


def test_rows_like_those_of_the_fit_have_predictions_like_its_targets() -> None:
    """A layer may leave the range of the targets between the rows of a fit; beyond them it extrapolates."""
    draw = np.random.default_rng(0)
    table = pd.DataFrame({"a": draw.uniform(0, 1, 60), "b": draw.uniform(0, 1, 60)})
    table["y"] = 50 * (table["a"] - table["b"]).clip(0)  # nothing is negative, a linear model is
    model = fit_table(table, Plan("y"), estimator=LeastSquares()).model
    least, most = model.facts["range"]
    corner = pd.DataFrame({"a": [table["a"].min(), -1.0, 0.5], "b": [table["b"].max(), 2.0, 0.5]})
    raw = model.outputs(model.encode(corner)[0])
    assert raw[0] < 0
    assert model.predict(corner).outputs.tolist() == [0.0, raw[1], raw[2]]  # exact: the same rows again
    assert model.limited(np.array([-1.0, 0.0, 9 * most])).tolist() == [0.0, 0.0, most + 0.1 * (most - least)]
    found = interval_table(model, corner, eps=0.2)
    reach = 0.2 * np.array([found.units[name] for name in corner.columns])
    for k, row in enumerate(found.frame.itertuples()):
        moved = corner.iloc[[k] * 50] + draw.uniform(-1, 1, (50, 2)) * reach
        values = model.predict(moved).outputs
        assert row.lower <= values.min()
        assert values.max() <= row.upper


def test_the_limit_beyond_the_fit_begins_at_the_one_inside() -> None:
    """A row that is outside by a hair has no other prediction than one at the edge; a law may go on."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.uniform(0, 1, 60), "one": [1.0, np.nan] * 30})
    frame["y"] = 1 + frame["a"]
    model = fit_table(frame, Plan("y"), estimator=LeastSquares()).model
    least, most = model.facts["range"]
    low, high = frame["a"].min(), frame["a"].max()
    rows = pd.DataFrame({"a": [high, high + 1e-6, 3 * high - 2 * low, high], "one": [1.0, 1.0, 1.0, 2.0]})
    beyond = model.schema.beyond(model.encode(rows)[0].double().numpy())
    np.testing.assert_allclose(beyond[:3], [0.0, 1e-6 / (high - low), 2.0], atol=1e-6)
    assert beyond[3] > 1e9
    far = 1e9 * (most - least)
    edge, hair, law, none = model.limited(np.full(4, far), beyond)
    assert hair == pytest.approx(edge, rel=1e-4)
    assert law == pytest.approx(edge + (3.0**10 - 1) * (most - least), rel=1e-4)
    assert none == far
    assert np.isinf(model.limited(np.array([np.inf]), np.array([0.1]))).all()

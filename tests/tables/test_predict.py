"""Predictions of whole tables: piece by piece, all or nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_table_model import table

from least_squares import LeastSquares
from mlayer.errors import ArgumentError
from mlayer.tables import Plan, TableModel, fit_table, open_table, predict_table
from mlayer.tables.reader import source as reading


@pytest.fixture(scope="module")
def classifier() -> TableModel:
    return fit_table(table(), Plan("kind", drop=("price",)), estimator=LeastSquares()).model


@pytest.fixture(scope="module")
def regressor() -> TableModel:
    return fit_table(table(), Plan("price", drop=("kind",)), estimator=LeastSquares()).model


def write(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_both_endings(ending: str, classifier: TableModel, tmp_path: Path) -> None:
    source = open_table(write(table(40), tmp_path))
    out = tmp_path / f"p.{ending}"
    done = predict_table(classifier, source, out, proba=True)
    frame = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    expected = classifier.predict(table(40))
    assert list(frame.columns) == ["prediction", "p(cheap)", "p(dear)"]
    assert frame["prediction"].tolist() == expected.labels
    np.testing.assert_allclose(frame[["p(cheap)", "p(dear)"]], expected.outputs, rtol=1e-9)
    assert done.rows == 40
    assert done.metrics["accuracy"] == pytest.approx((table(40)["kind"] == frame["prediction"]).mean())
    assert sorted(path.name for path in tmp_path.iterdir()) == [out.name, "t.csv"]


def test_in_pieces_as_at_once(regressor: TableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(table(97).drop(columns="kind"), tmp_path)
    results = []
    for name, size in (("one", 50_000), ("many", 10)):
        monkeypatch.setattr(reading.Source.pieces, "__defaults__", ((), size))
        for ending in ("csv", "parquet"):
            done = predict_table(regressor, open_table(path), tmp_path / f"{name}.{ending}", keep=True)
            results.append((done.rows, done.measured_rows, done.metrics["RMSE"]))
    assert results[1:] == [pytest.approx(results[0])] * 3
    # A product of matrices may round differently for another number of rows.
    for read, ending in ((pd.read_csv, "csv"), (pd.read_parquet, "parquet")):
        one, many = (read(tmp_path / f"{name}.{ending}") for name in ("one", "many"))
        pd.testing.assert_frame_equal(one, many, rtol=1e-12)


def test_without_the_target(regressor: TableModel, tmp_path: Path) -> None:
    stream = io.StringIO()
    done = predict_table(
        regressor, open_table(write(table(20)[["since", "member", "city", "age"]], tmp_path)), stream
    )
    assert done.metrics == {}
    assert len(stream.getvalue().splitlines()) == 21


def test_keep_does_not_hide_columns(regressor: TableModel, tmp_path: Path) -> None:
    path = write(table(12).assign(prediction="mine"), tmp_path)
    predict_table(regressor, open_table(path), tmp_path / "p.csv", keep=True)
    frame = pd.read_csv(tmp_path / "p.csv")
    assert set(frame["prediction"]) == {"mine"}
    assert np.isfinite(frame["prediction (mlayer)"]).all()


def test_unseen_categories_are_counted(classifier: TableModel, tmp_path: Path) -> None:
    frame = table(30)
    frame.loc[[3, 4, 5], "city"] = "Atlantis"
    source = open_table(write(frame, tmp_path))
    (remark,) = predict_table(classifier, source, tmp_path / "p.csv").remarks
    assert (remark.kind, remark.column, remark.count, remark.example) == ("unseen", "city", 3, "Atlantis")
    with pytest.raises(
        ArgumentError, match=r"without what --strict refuses; got column 'city': 3 cells hold a category"
    ):
        predict_table(classifier, source, tmp_path / "strict.csv", strict=True)
    assert not (tmp_path / "strict.csv").exists()


def test_codes_keep_their_zeros(tmp_path: Path) -> None:
    """A category 007 is no number, in no table."""
    frame = pd.DataFrame({"code": ["007", "A1"] * 20, "y": [1.0, 2.5] * 20})
    model = fit_table(open_table(write(frame, tmp_path)).read(), Plan("y"), estimator=LeastSquares()).model
    stream = io.StringIO()
    done = predict_table(model, open_table(write(pd.DataFrame({"code": ["007"]}), tmp_path)), stream)
    assert done.remarks == []
    assert float(stream.getvalue().split()[1]) == pytest.approx(1.0)


def test_failure_leaves_nothing(
    classifier: TableModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = table(30).astype({"age": object})
    frame.loc[20:, "age"] = "old"
    path = write(frame, tmp_path)
    monkeypatch.setattr(reading.Source.pieces, "__defaults__", ((), 10))
    for out in (tmp_path / "p.csv", tmp_path / "p.parquet"):
        with pytest.raises(ArgumentError, match=r"the column 'age' must be of numbers"):
            predict_table(classifier, open_table(path), out)
    stream = io.StringIO()
    with pytest.raises(ArgumentError, match=r"the column 'age' must be of numbers"):
        predict_table(classifier, open_table(path), stream)
    assert stream.getvalue() == "", "two good pieces came before the bad one"
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]


def test_an_old_file_survives(classifier: TableModel, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("old")
    path = write(table(30).drop(columns="city"), tmp_path)
    with pytest.raises(ArgumentError, match=r"it needs 'city' too"):
        predict_table(classifier, open_table(path), tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == "old"


def test_invalid_arguments(classifier: TableModel, regressor: TableModel, tmp_path: Path) -> None:
    source = open_table(write(table(30), tmp_path))
    with pytest.raises(ArgumentError, match=r"proba must be used with a classifier; got a regression model"):
        predict_table(regressor, source, tmp_path / "p.csv", proba=True)
    with pytest.raises(ArgumentError, match=r"a file ending in .csv or .parquet; got p.xlsx"):
        predict_table(regressor, source, tmp_path / "p.xlsx")
    empty = open_table(write(table(30).iloc[:0], tmp_path))
    with pytest.raises(ArgumentError, match=r"of one row or more; got none"):
        predict_table(regressor, empty, tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()


def test_rows_are_counted_aloud(regressor: TableModel, tmp_path: Path) -> None:
    seen: list[int] = []
    predict_table(regressor, open_table(write(table(30), tmp_path)), tmp_path / "p.csv", on_rows=seen.append)
    assert seen == [30]


def test_onnx(classifier: TableModel, tmp_path: Path) -> None:
    """onnxruntime on the encoded rows says what the model says, and the file tells how to encode."""
    import onnx
    import onnxruntime

    from mlayer.tables import export_table_onnx

    export_table_onnx(classifier, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    inputs, _ = classifier.encode(table(25))
    (raw,) = session.run(None, {"x": inputs.numpy()})
    expected = classifier.predict(table(25)).outputs
    raw = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(raw, expected, rtol=1e-9)
    entries = {entry.key: json.loads(entry.value) for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert entries["mlayer.features"] == list(classifier.schema.features)
    assert entries["mlayer.table"]["columns"] == json.loads(json.dumps(classifier.schema.as_json()))
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]

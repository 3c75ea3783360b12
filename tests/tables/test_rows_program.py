"""The Python file beside an ONNX file: what it makes of raw cells is what `mlayer predict` makes of them."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from least_squares import LeastSquares
from mlayer import MLayer
from mlayer.cli import main
from mlayer.tables import Plan, TableModel, Target, fit_table, learn_schema, load_table_model, open_table
from mlayer.tables.columns import KINDS
from mlayer.tables.export.encode_rows import encode_rows
from mlayer.tables.export.onnx_table import rows_program
from mlayer.tables.fit import fit_table as fitting


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    size = draw.gamma(5, 20, 300)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(0, 300, 300), unit="D")
    frame = pd.DataFrame(
        {
            "size [m²]": [f"{value:,.1f} m²" for value in size * 20],
            'odd "name"\\': draw.normal(size=300).round(3),
            "city": draw.choice(["Köln", "köln ", "Oslo", "O'Hare"], 300),
            "store": draw.choice([7, 3, 9], 300),
            "pool": draw.choice(["yes", "no"], 300),
            "sold": [each.strftime("%d.%m.%Y") for each in day],
        }
    )
    frame["price"] = 3 * size + 50 * (frame["store"] == 7) + draw.normal(0, 1, 300)
    frame.loc[::11, 'odd "name"\\'] = np.nan
    frame.loc[::13, "city"] = None
    frame.loc[4, 'odd "name"\\'] = 1e7
    frame.to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "-t", "price", "--epochs", "3", "-q", "--no-report"]) == 0
    return tmp_path


def test_the_same_numbers_as_predict(folder: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    assert main(["export", "t.safetensors", "--onnx", "t.onnx", "-q"]) == 0
    place: dict[str, Any] = {}
    exec(Path("t_rows.py").read_text(encoding="utf-8"), place)
    with Path("t.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rows += [{**rows[0], "city": "Paris", "store": "07", "pool": "?", "sold": "31.12.2030"}, {}]
    found = np.array(place["numbers"](rows))
    model = load_table_model("t.safetensors")
    pd.DataFrame(rows).to_csv("n.csv", index=False)
    wanted, _ = model.encode(open_table("n.csv").read(text=model.schema.text_columns))
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-12, atol=1e-9)
    outputs = runtime.InferenceSession("t.onnx").run(["p"], {"x": found})[0][:, 0]
    np.testing.assert_allclose(outputs, model.outputs(wanted).ravel(), rtol=1e-6)
    Path("t_rows.py").rename("other_rows.py")
    assert main(["export", "t.safetensors", "--onnx", "other.onnx", "-q"]) == 2  # other_rows.py is there


def test_a_column_that_no_row_has_is_an_error() -> None:
    """Its values were filled without a word: a byte order mark, or a space after a comma, was enough."""
    frame = pd.DataFrame({"size": [1.0, 2.0, 3.0], "city": ["a", "b", "a"]})
    schema, _ = learn_schema(frame)
    columns, wanted = schema.as_json(), schema.encode(frame).numbers
    for names in (["\ufeffsize", " city"], ['\ufeff"size"', "city "]):
        rows = [dict(zip(names, row, strict=True)) for row in frame.to_numpy().tolist()]
        np.testing.assert_array_equal(encode_rows(columns, rows), wanted)
    with pytest.raises(KeyError, match="no row has the column 'city'; there are: 'size', 'town'"):
        encode_rows(columns, [{"size": 1.0, "town": "a"}])
    assert len(encode_rows(columns, [{"size": 1.0, "city": "a"}, {"size": 2.0}])) == 2
    assert encode_rows(columns, []) == []


@pytest.mark.parametrize("nameless", ["", " ", "\t", '" "'])
def test_a_column_without_a_name(nameless: str, tmp_path: Path) -> None:
    """It is "Unnamed: 1" in the model, and as it is in rows of `csv`: that was an error."""
    lines = [f"a,{nameless},b", *(f"{k},{k * k % 7},{k % 3}" for k in range(9))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    frame = open_table(tmp_path / "t.csv").read()
    schema, _ = learn_schema(frame)
    assert [column.name for column in schema.columns] == ["a", "Unnamed: 1", "b"]
    wanted = schema.encode(frame).numbers
    np.testing.assert_array_equal(encode_rows(schema.as_json(), csv.DictReader(lines)), wanted)
    with pytest.raises(KeyError, match="no row has the column 'Unnamed: 1'"):
        encode_rows(schema.as_json(), [{"": 1, "a": 2, "b": 3}])  # the first one is another column


def test_the_exported_program_knows_every_kind() -> None:
    """`mlayer export` writes a program that encodes rows without pandas: a new kind belongs there too."""
    cells = {
        "number": [1.5, 2.5],
        "truth value": [True, False],
        "date": ["2024-01-01", "2024-02-01"],
        "category": ["a", "b"],
    }
    assert set(cells) == {kind.kind for kind in KINDS}
    frame = pd.DataFrame(cells)
    schema, _ = learn_schema(frame)
    assert {column.name: column.kind for column in schema.columns} == dict(zip(cells, cells, strict=True))
    rows = frame.to_dict("records")
    program: dict[str, Any] = {}
    exec(rows_program(TableModel(MLayer(5, 1), schema, Target("y", "regression"))), program)
    expected = schema.encode(frame).numbers
    np.testing.assert_array_equal(encode_rows(schema.as_json(), rows), expected)
    np.testing.assert_array_equal(program["numbers"](rows), expected)


def test_the_exported_program_is_loaded_by_its_file(tmp_path: Path) -> None:
    """The documentation of `importlib` makes no entry in `sys.modules`, and dataclasses need one."""
    schema, _ = learn_schema(pd.DataFrame({"size": ["$1.50", "$2.50", "$4.00"] * 4}))
    program = rows_program(TableModel(MLayer(1, 1), schema, Target("y", "regression")))
    (tmp_path / "rows.py").write_text(program, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("rows", tmp_path / "rows.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.numbers([{"size": "$1.50"}]) == [[1.5]]


@pytest.mark.parametrize("listed", [False, True])
def test_columns_of_one_name_are_an_error_and_no_guess(
    listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`csv.DictReader` keeps the last of them, whose values were taken for those of the first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fitting, "default_estimator", lambda *_: LeastSquares())
    lines = ["a,,b,,y", *(f"{k},{k * k % 7},{k % 3},5,{k % 11 + 0.5}" for k in range(40))]
    Path("t.csv").write_text("\n".join(lines))
    frame = open_table("t.csv").read()
    model = fit_table(frame, Plan("y")).model
    assert [column.name for column in model.schema.columns] == ["a", "Unnamed: 1", "b"]
    model.save("m.safetensors")
    program: dict[str, Any] = {}
    exec(rows_program(load_table_model("m.safetensors")), program)
    reader = csv.DictReader(lines)
    with pytest.raises(KeyError, match=r"several columns are named ''.* give it fieldnames"):
        program["numbers"](list(reader) if listed else reader)
    names = [name or f"Unnamed: {place}" for place, name in enumerate(lines[0].split(","))]
    found = program["numbers"](csv.DictReader(lines[1:], fieldnames=names))
    np.testing.assert_array_equal(found, model.schema.encode(frame).numbers)  # exact: whole numbers as stored
    with pytest.raises(KeyError, match="several columns are named 'b'"):
        encode_rows(model.schema.as_json(), csv.DictReader(["a,Unnamed: 1,b,b", "1,2,3,4"]))


ODD_CELLS = ["NA", "None", "null", "n/a", "#N/A", "nan", "<NA>", "1_000", "7_0", "\u0663", "\uff13"]
ODD_CELLS += ["\u0663.5", "2020-W02", "1967", "-", "1e3", " 1.5 ", "inf", "x", ""]


@pytest.mark.parametrize("name", ["number", "text", "gaps", "codes", "day", "money", "flag", "clock"])
def test_odd_cells_are_read_as_predict_reads_them(name: str, tmp_path: Path) -> None:
    """Words for missing cells were categories, and 1_000 a number."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "number": draw.normal(size=60).round(3),
            "text": draw.choice(["u", "v"], 60),
            "gaps": draw.choice(["u", "v", ""], 60),
            "codes": draw.choice(["01067", "04103"], 60),
            "day": pd.date_range("2020-01-01", periods=60).strftime("%Y-%m-%d"),
            "money": [f"$ {value:.2f}" for value in draw.uniform(1, 99, 60)],
            "flag": draw.choice(["yes", "no"], 60),
            "clock": [f"{k % 20:02}:{k % 60:02}:00" for k in range(60)],
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    schema, _ = learn_schema(open_table(tmp_path / "t.csv").read())
    # One table for each cell: among others pandas might read the column in another way.
    for cell in ODD_CELLS:
        rows = frame.head(3).astype(str)
        rows.loc[0, name] = cell
        rows.to_csv(tmp_path / "n.csv", index=False, quoting=csv.QUOTE_ALL)
        wanted = schema.encode(open_table(tmp_path / "n.csv").read(text=schema.text_columns)).numbers
        with (tmp_path / "n.csv").open(encoding="utf-8", newline="") as file:
            found = encode_rows(schema.as_json(), csv.DictReader(file))
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-9, err_msg=ascii(cell))


def far_rows(case: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to learn from, and rows far beyond them."""
    draw = np.random.default_rng(5)
    if case == "growth":
        months = pd.date_range("2012-01-01", periods=108, freq="MS")
        season = 0.2 * np.sin(2 * np.pi * np.arange(108) / 12)
        guests = np.exp(5 + 0.02 * np.arange(108) + season + draw.normal(0, 0.02, 108))
        later = pd.date_range("2021-01-01", periods=300, freq="MS")
        return pd.DataFrame({"month": months, "guests": guests}), pd.DataFrame({"month": later})
    frame = pd.DataFrame({"a": draw.uniform(1, 3, 200), "city": draw.choice(["x", "y"], 200)})
    frame["b"] = draw.uniform(-1, 1, 200)
    frame["guests"] = np.maximum(frame["a"] ** 2 * np.exp(frame["b"]) * (1 + (frame["city"] == "x")) - 4, 0)
    later = pd.DataFrame({"a": np.linspace(0.5, 4, 50), "city": ["x", "y"] * 25})
    return frame, later.assign(b=np.linspace(1.1, -1.1, 50))


@pytest.mark.parametrize("case", ["growth", "not negative"])
def test_the_limits_of_predict_are_in_the_program(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ONNX file alone goes without them: 300 months of growth, or below 0 where no target did."""
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    table, later = far_rows(case)
    table.to_csv("t.csv", index=False)
    later.to_csv("n.csv", index=False)
    assert main(["fit", "t.csv", "-t", "guests", "--epochs", "20", "-q", "--no-report"]) == 0
    assert main(["export", "t.safetensors", "--onnx", "t.onnx", "-q"]) == 0
    assert main(["predict", "t.safetensors", "n.csv", "-o", "p.csv", "-q"]) == 0
    wanted = pd.read_csv("p.csv")["prediction"].to_numpy()
    place: dict[str, Any] = {}
    exec(Path("t_rows.py").read_text(encoding="utf-8"), place)
    with Path("n.csv").open(encoding="utf-8", newline="") as file:
        x = np.array(place["numbers"](csv.DictReader(file)))
    raw = runtime.InferenceSession("t.onnx").run(["p"], {"x": x})[0]
    assert not np.allclose(raw[:, 0], wanted, rtol=0.1)
    np.testing.assert_allclose(place["predictions"](x, raw), wanted, rtol=1e-6)

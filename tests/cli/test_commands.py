"""The commands from end to end, on small tables: what is written, printed and returned."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mlayer
from least_squares import LeastSquares
from mlayer import memory
from mlayer.cli import main, show
from mlayer.tables import load_table_model
from mlayer.tables.fit import fit_table as fit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Least squares in place of our estimators: these tests are about all the rest."""
    monkeypatch.setattr(fit, "default_estimator", lambda *_: LeastSquares())


def houses(rows: int = 60) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": draw.uniform(30, 200, rows),
            "city": draw.choice(["Rome", "Oslo"], rows),
            "name": range(rows),
        }
    )
    frame["name"] = "house " + frame["name"].astype(str)
    frame["price"] = 3 * frame["size"] + 50 * (frame["city"] == "Rome") + draw.normal(size=rows)
    frame["dear"] = np.where(frame["price"] > 400, "yes it is", "no")
    return frame


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- The two commands. ----------------------------------------------------------------------------


def test_from_a_table_to_predictions_with_our_estimator(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two commands, nothing replaced."""
    houses().to_csv("data.csv", index=False, sep=";", decimal=",")
    assert main(["fit", "data.csv", "--target", "price", "--drop", "dear", "--epochs", "30"]) == 0
    out, err = capsys.readouterr()
    assert "csv, delimiter semicolon, decimal comma" in err
    assert "regression of 'price' (the target has fractions): 48 rows to learn from, 12 held out" in err
    assert "column 'name': left out" in err
    assert "RMSE" in out
    assert "data.safetensors" in out
    assert names(folder) == ["data.csv", "data.html", "data.safetensors"]

    houses().drop(columns=["price", "dear"]).to_parquet("new.parquet")
    assert main(["predict", "data.safetensors", "new.parquet", "-o", "out.csv"]) == 0
    predicted = pd.read_csv("out.csv")["prediction"]
    truth = houses()["price"]
    assert np.sqrt(((predicted - truth) ** 2).mean()) < 0.3 * truth.std()

    layer = mlayer.load("data.safetensors")
    assert layer.in_features == 3, "a plain layer, ready for certificates and formulas"


@pytest.mark.usefixtures("quick")
def test_fit_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    houses().to_csv("data.csv", index=False)
    assert (
        main(["fit", "data.csv", "-t", "dear", "--drop", "price", "--json", "-q", "-o", "m.safetensors"]) == 0
    )
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert err == ""
    assert result["target"] == {"name": "dear", "task": "classification", "classes": ["no", "yes it is"]}
    assert result["metrics"]["accuracy"] > result["baseline"]["accuracy"]
    assert (result["model"], result["report"]) == ("m.safetensors", "m.html")
    assert load_table_model("m.safetensors").facts["metrics"] == result["metrics"]
    assert names(folder) == ["data.csv", "m.html", "m.safetensors"]


@pytest.mark.usefixtures("quick")
def test_predict_ways_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    houses().to_csv("data.csv", index=False)
    assert main(["fit", "data.csv", "-t", "dear", "--drop", "price", "-q", "--no-report"]) == 0
    assert names(folder) == ["data.csv", "data.safetensors"]
    capsys.readouterr()

    assert main(["predict", "data.safetensors", "data.csv", "--proba"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "prediction,p(no),p(yes it is)"
    assert len(lines) == 61
    assert "accuracy" in err, (
        "the target is in the table, so the metrics are printed; not among the predictions"
    )

    assert main(["predict", "data.safetensors", "data.csv", "-o", "p.parquet", "--keep", "--json"]) == 0
    out, _ = capsys.readouterr()
    assert json.loads(out)["rows"] == 60
    assert list(pd.read_parquet("p.parquet").columns) == [*houses().columns, "prediction"]

    assert main(["predict", "data.safetensors", "data.csv", "-o", "p.csv"]) == 0
    out, _ = capsys.readouterr()
    assert "60 predictions  p.csv" in out
    assert "accuracy" in out


@pytest.mark.usefixtures("quick")
def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    houses().rename(columns={"size": "size [m2]"}).to_csv("data.csv", index=False)
    assert main(["fit", "data.csv", "-t", "dear", "-q", "--no-report"]) == 0
    capsys.readouterr()
    assert main(["info", "data.safetensors"]) == 0
    out = capsys.readouterr().out
    for words in ("classification of 'dear'", "size [m2]", "one number for each of 2 categories", "accuracy"):
        assert words in out
    assert main(["info", "data.safetensors", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["table"]["target"]["classes"] == ["no", "yes it is"]
    assert facts["layer"]["in_features"] == 4
    mlayer.save(mlayer.MLayer(4, 2, matrix_size=3), "plain.safetensors")
    assert main(["info", "plain.safetensors"]) == 0
    out, err = capsys.readouterr()
    assert "an M-layer from 4 to 2 numbers, n = 3" in out
    assert "without a table" in err


@pytest.mark.usefixtures("quick")
def test_export(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Parity with onnxruntime is tested beside the exporter."""
    houses().to_csv("data.csv", index=False)
    assert main(["fit", "data.csv", "-t", "price", "--drop", "dear", "-q", "--no-report"]) == 0
    capsys.readouterr()
    assert main(["export", "data.safetensors", "--onnx", "m.onnx", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["features"][0] == "size"
    assert "m.onnx" in names(folder)
    assert main(["export", "data.safetensors", "--onnx", "m.onnx"]) == 2
    assert "m.onnx exists; use --force" in capsys.readouterr().err


def test_bench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from mlayer import speed

    monkeypatch.setattr(speed, "SIZES", ((3, 4),))
    assert main(["bench", "--turns", "2", "--no-others", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {row["other"] for row in result["rows"]} >= {"torch"}
    assert all(row["low"] <= row["ratio"] <= row["high"] and row["ratio"] > 0 for row in result["rows"])
    assert main(["bench", "--turns", "2", "--no-others"]) == 0
    assert "times as long" in capsys.readouterr().out.replace("\n", " ")


# ---- Bad tables: a clear message, exit code 2, no traceback, nothing written. ----------------------

ROWS = "".join(f"{k % 5},{k},{'ab'[k % 2]}\n" for k in range(30))
GOOD = "u,v,y\n" + ROWS


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (GOOD, ["--target", "yy"], "got 'yy'. Did you mean 'y'?"),
        (GOOD, ["--target", "y", "--delimiter", ";"], "Pass --delimiter comma"),
        (GOOD, ["--target", "y", "--drop", "w"], "drop must be columns of the table; got 'w'"),
        (GOOD, ["--target", "y", "--task", "regression"], "Use --task classification"),
        (GOOD, ["--target", "y", "--test-share", "2"], "test_share must be between 0 and 1"),
        (
            "u,y\n" + "1,a\n2,a\n" * 20,
            ["--target", "y"],
            "of two or more classes; got the class 'a' in every row",
        ),
        ("u,y\n" + "1,7\n2,7\n" * 20, ["--target", "y", "--task", "regression"], "There is nothing to learn"),
        ("u,y\n" + "5,a\n5,b\n" * 20, ["--target", "y"], "constant: every cell is 5"),
        ("u,y\n" + ",a\n,b\n" * 20, ["--target", "y"], "all cells are missing"),
        ("u,y\n" + "1,\n2,\n" * 20, ["--target", "y"], "a column without a value"),
        ("u,c,y\n" + "1,5,a\n2,5,b\n" * 20, ["--target", "y", "--strict"], "without what --strict refuses"),
        ("u,y\n1,a\n2,b\n", ["--target", "y"], "at least 10 rows"),
        ("u,y\n", ["--target", "y"], "the table must be of rows to learn from; got none"),
        ("", ["--target", "y"], "an empty file"),
        ("u,v,y\n1,2,a\n1,2,a,b\n", ["--target", "y"], "as many fields in each line"),
        ("y\na\nb\n", ["--target", "y"], "The table has one column"),
        ("1,2,3\n4,5,6\n", ["--target", "y"], "The first line looks like data"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_tables(text: str, options: list[str], words: str, folder: Path, capsys: Any) -> None:
    Path("t.csv").write_text(text)
    assert main(["fit", "t.csv", *options]) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert "Traceback" not in err
    assert out == ""
    assert names(folder) == ["t.csv"]


@pytest.mark.usefixtures("quick")
def test_ten_gigabytes(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 4_000_000_000)
    Path("huge.csv").write_text("u,v,y\n" + ROWS * 1000)
    os.truncate("huge.csv", 10_000_000_000)
    assert main(["fit", "huge.csv", "--target", "y"]) == 2
    err = capsys.readouterr().err
    assert "smaller than the memory" in err
    assert "--rows 100000" in err
    assert names(folder) == ["huge.csv"]
    assert main(["fit", "huge.csv", "--target", "y", "--rows", "500"]) == 0
    assert "the first 500 rows" in capsys.readouterr().err
    assert "huge.safetensors" in names(folder)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table and what `mlayer fit` wrote for it."""
    made = tmp_path_factory.mktemp("fitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.setattr(fit, "default_estimator", lambda *_: LeastSquares())
        houses().to_csv("data.csv", index=False)
        assert main(["fit", "data.csv", "-t", "price", "--drop", "dear", "-q"]) == 0
    return made


@pytest.fixture
def fitted(quick: None, folder: Path, model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(model_folder, folder, dirs_exist_ok=True)
    capsys.readouterr()


@pytest.mark.usefixtures("fitted")
def test_unseen_category(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    houses().assign(city="Atlantis").to_csv("new.csv", index=False)
    assert main(["predict", "data.safetensors", "new.csv", "-o", "p.csv"]) == 0
    assert (
        "column 'city': 60 cells hold a category that the training table did not have"
        in capsys.readouterr().err
    )
    assert main(["predict", "data.safetensors", "new.csv", "-o", "q.csv", "--strict"]) == 2
    assert "--strict refuses" in capsys.readouterr().err
    assert "q.csv" not in names(folder)


@pytest.mark.usefixtures("fitted")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "nothing.safetensors", "data.csv"], "no file nothing.safetensors"),
        (["predict", "data.csv", "data.csv"], "a safetensors file written by mlayer.save"),
        (["predict", "data.safetensors", "nothing.csv"], "There are: data.csv"),
        (["predict", "data.safetensors", "data.csv", "--json"], "--json needs -o"),
        (["predict", "data.safetensors", "data.csv", "-o", "data.csv", "--force"], "is the table itself"),
        (["predict", "data.safetensors", "data.csv", "-o", "data.html"], "data.html exists; use --force"),
        (["predict", "data.safetensors", "data.csv", "-o", "x.xlsx"], "a file ending in .csv or .parquet"),
        (["predict", "data.safetensors", "data.csv", "-o", "no/x.csv"], "there is no folder no"),
        (["predict", "data.safetensors", "data.csv", "--proba"], "proba must be used with a classifier"),
        (["fit", "data.csv", "-t", "price"], "data.safetensors exists; use --force to replace it"),
        (["fit", "data.csv", "-t", "price", "-o", "data.csv", "--force"], "data.csv is the table itself"),
        (
            ["fit", "data.csv", "-t", "price", "-o", "n.safetensors", "--report", "data.html"],
            "data.html exists",
        ),
        (["fit", ".", "-t", "price", "-o", "n.safetensors"], "got the folder ."),
        (["info", "data.html"], "a safetensors file written by mlayer.save"),
        (["export", "data.safetensors", "--onnx", "data.safetensors", "--force"], "is the model itself"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_other_mistakes(arguments: list[str], words: str, folder: Path, capsys: Any) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert out == ""
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.usefixtures("fitted")
def test_force_replaces() -> None:
    before = Path("data.safetensors").read_bytes()
    assert main(["fit", "data.csv", "-t", "price", "--drop", "dear", "--seed", "5", "--force", "-q"]) == 0
    assert Path("data.safetensors").read_bytes() != before


@pytest.mark.usefixtures("quick")
def test_a_full_disk_leaves_nothing(folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    houses().to_csv("data.csv", index=False)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "data.safetensors")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["fit", "data.csv", "-t", "price"]) == 2
    said = capsys.readouterr().err
    assert "the file data.safetensors must be in a place that can be written" in said
    assert "No space left on device" in said
    assert names(folder) == ["data.csv"]


# ---- Errors of other kinds. -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "stopped; no file was left half-written"),
        (MemoryError(), 2, "out of memory. Use fewer rows"),
        (ZeroDivisionError("oops"), 1, "a bug in mlayer: ZeroDivisionError: oops"),
        (PermissionError(13, "Permission denied", "t.csv"), 2, "Permission denied: t.csv"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_goes_wrong(
    error: BaseException, code: int, words: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlayer.tables.reader import source

    def fail(*_: object, **__: object) -> None:
        raise error

    Path("t.csv").write_text(GOOD)
    monkeypatch.setattr(source, "sniff", fail)
    for debug in ([], ["--debug"]):
        assert main(["fit", "t.csv", "-t", "y", *debug]) == code
        err = capsys.readouterr().err
        assert words in err
        assert ("Traceback" in err) == bool(debug)
    assert main(["--debug", "fit", "t.csv", "-t", "y"]) == code
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.usefixtures("fitted")
def test_a_closed_pipe_is_no_event() -> None:
    """The case of `mlayer predict ... | head -1`."""
    pd.concat([houses()] * 500).to_csv("long.csv", index=False)
    process = subprocess.Popen(
        [sys.executable, "-m", "mlayer", "predict", "data.safetensors", "long.csv", "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"prediction\n"
    process.stdout.close()
    assert process.wait() == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_ctrl_c(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A real signal while it trains, which the line about its progress tells."""
    houses().drop(columns="name").to_csv("data.csv", index=False)
    say = show.say
    sent: list[str] = []

    def interrupted(text: str, quiet: bool = False) -> None:
        say(text, quiet)
        if "training on all rows" in text and not sent:
            sent.append(text)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(show, "say", interrupted)
    monkeypatch.setattr(show, "SECONDS_BETWEEN_LINES", 0.0)
    # A shell that runs the tests in the background has them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["fit", "data.csv", "-t", "price"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert sent
    said = capsys.readouterr().err
    assert "stopped; no file was left half-written" in said
    assert "Traceback" not in said
    assert names(folder) == ["data.csv"]

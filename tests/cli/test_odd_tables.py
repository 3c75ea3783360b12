"""Tables and options that used to be taken for a bug, or taken without a word."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from least_squares import LeastSquares
from mlayer.cli import main
from mlayer.tables.fit import fit_table as fit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; training by least squares."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fit, "default_estimator", lambda *_: LeastSquares())
    return tmp_path


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_date_that_stands_for_ever(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    days = [f"2020-01-{k % 28 + 1:02}" for k in range(40)]
    days[::7] = ["9999-12-31"] * len(days[::7])
    frame = pd.DataFrame({"until": days, "u": range(40), "y": np.arange(40) % 7 + 0.5})
    if name.endswith("csv"):
        frame.to_csv(name, index=False)
    else:
        frame.assign(until=[pd.Timestamp(day).date() for day in days]).to_parquet(name)
    assert main(["fit", name, "-t", "y", "-o", "m.safetensors", "--no-report", "--json", "-q"]) == 0
    columns = json.loads(capsys.readouterr().out)["columns"]
    assert columns[0]["kind"] == "date"
    assert main(["predict", "m.safetensors", name, "-o", "p.csv"]) == 0
    assert len(pd.read_csv("p.csv")) == 40


def table(rows: int = 60) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"u": draw.normal(size=rows), "v": draw.normal(size=rows)})
    return frame.assign(y=frame["u"] + 2 * frame["v"])


@pytest.mark.parametrize("seed", ["-1", str(2**32)])
def test_seeds_that_are_none(seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    table().to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "-t", "y", "--seed", seed]) == 2
    assert "is not in the range 0<=x<=4294967295" in capsys.readouterr().err


def test_a_model_larger_than_the_memory(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocator's own error: more bytes than there are addresses."""

    class Large(LeastSquares):
        def fit(self, x: object, y: object) -> LeastSquares:
            torch.empty(2**60, dtype=torch.uint8)
            raise AssertionError

    monkeypatch.setattr(fit, "default_estimator", lambda *_: Large())
    table().to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "-t", "y"]) == 2
    err = capsys.readouterr().err
    assert "out of memory. Use fewer rows" in err
    assert "--matrix-size" in err
    assert [path.name for path in folder.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("row", range(0, 60, 7))
@pytest.mark.parametrize("column", ["u", "y"])
def test_numbers_beyond_measure(
    column: str,
    row: int,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such numbers may be in any row, learned from or held out."""
    monkeypatch.setattr(fit, "default_estimator", lambda *_: pytest.fail("it trained"))
    frame = table()
    frame.loc[[row, row + 1], column] = [-1e300, 1e300]
    frame.to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "-t", "y"]) == 2
    err = capsys.readouterr().err
    assert f"{column!r} must be of numbers up to 1e+100 in size; got 1e+300 as the largest of" in err
    assert "Warning" not in err
    assert [path.name for path in folder.iterdir()] == ["t.csv"]


def test_large_numbers_are_learned_from() -> None:
    """Nothing overflows near the limit."""
    frame = table()
    frame.assign(u=frame["u"] * 1e98, y=frame["y"] * 1e98).to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "-t", "y", "-q", "--no-report"]) == 0


def classes(labels: list[str], *options: str, capsys: pytest.CaptureFixture[str]) -> tuple[list[object], str]:
    """The classes that `fit` finds in ``labels``, and its remarks; the model separates them by u."""
    places = [k % len(labels) for k in range(60)]
    lines = [f"{place},{k},{labels[place]}" for k, place in enumerate(places)]
    Path("t.csv").write_text("\n".join(["u,v,y", *lines]) + "\n")
    assert (
        main(["fit", "t.csv", "-t", "y", "-o", "m.safetensors", "--no-report", "--force", "--json", *options])
        == 0
    )
    out, err = capsys.readouterr()
    return json.loads(out)["target"]["classes"], err


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["007", "7", "8"], ["007", "7", "8"]),
        (["001", "01", "1"], ["001", "01", "1"]),
        (["007", "008"], ["007", "008"]),
        (["1", "1.0"], ["1", "1.0"]),
        (["+1", "-1"], ["+1", "-1"]),
        (["10", "8", "9"], [8, 9, 10]),
        (["1.5", "0.5"], [0.5, 1.5]),
        (["9007199254740993", "9007199254740992"], [9007199254740992, 9007199254740993]),
        (["True", "False"], [False, True]),
        (["TRUE", "FALSE"], ["FALSE", "TRUE"]),
        (["none", "some"], ["none", "some"]),
    ],
    ids=lambda value: ",".join(map(str, value)),
)
def test_classes_are_as_written(
    labels: list[str], expected: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    found, err = classes(labels, "--task", "classification", capsys=capsys)
    assert found == expected
    assert [type(label) for label in found] == [type(label) for label in expected]
    assert ("written in several ways" in err) == (labels[-2:] in (["7", "8"], ["01", "1"], ["1", "1.0"]))
    # Predictions are the labels of the table, and measured against them, target or not.
    assert main(["predict", "m.safetensors", "t.csv", "-o", "p.csv", "--force", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["measured_rows"] == 60
    assert {line.strip() for line in Path("p.csv").read_text().splitlines()[1:]} <= set(labels)
    pd.read_csv("t.csv", dtype=str).drop(columns="y").to_csv("new.csv", index=False)
    assert main(["predict", "m.safetensors", "new.csv", "-o", "q.csv", "--force"]) == 0
    assert Path("q.csv").read_text() == Path("p.csv").read_text()  # exact: names of classes, of the same rows


@pytest.mark.parametrize("word", ["None", "NA", "nan", "null"])
def test_a_word_for_missing_is_said(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    for labels, options in ((["a", "b", word], []), (["1.5", "2.25", "3", word], ["--task", "regression"])):
        _, err = classes(labels, *options, capsys=capsys)
        rows = 60 // len(labels)
        assert f"column 'y': {rows} rows hold '{word}', a word for a missing cell, and were left out" in err
        assert "without a target" not in err  # the same rows would be reported twice


def test_a_quantity_is_read_as_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Amounts with a decimal comma are read too, and the task is guessed as before."""
    frame = table().round(3)
    frame.to_csv("t.csv", index=False, sep=";", decimal=",")
    assert main(["fit", "t.csv", "-t", "y", "--json", "--no-report", "-o", "m.safetensors"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["target"]["task"] == "regression"
    assert result["reason"] == "the target has fractions"
    assert result["metrics"]["RMSE"] < 0.01


@pytest.mark.parametrize("cell", [[1, 2], {"u": 1}], ids=["list", "structure"])
def test_columns_of_lists_are_left_out(cell: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Parquet files have such columns. They cannot be hashed, as the search for copies of rows does."""
    frame = table().assign(nested=[cell] * 60)
    frame.to_parquet("t.parquet")
    target = str(frame.columns[-2])
    arguments = ["-t", target, "-o", "m.safetensors", "--epochs", "2", "--effort", "quick", "--no-report"]
    assert main(["fit", "t.parquet", *arguments]) == 0
    assert "cells that hold lists are not supported" in " ".join(capsys.readouterr().err.split())
    assert main(["predict", "m.safetensors", "t.parquet", "-o", "p.csv", "-q"]) == 0
    assert main(["fit", "t.parquet", "-t", "nested", "-o", "n.safetensors", "--no-report"]) == 2


def test_half_of_a_pair_in_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "\ud800.safetensors"]) == 2
    assert "a surrogate" in capsys.readouterr().err

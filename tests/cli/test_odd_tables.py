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
from mlayer.tables import fitting


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; training by least squares."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fitting, "default_estimator", lambda *_: LeastSquares())
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
    assert main(["fit", name, "-t", "y", "-o", "m.safetensors", "--json", "-q"]) == 0
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

    monkeypatch.setattr(fitting, "default_estimator", lambda *_: Large())
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
    """In whatever row, learned from or held out."""
    monkeypatch.setattr(fitting, "default_estimator", lambda *_: pytest.fail("it trained"))
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
    assert main(["fit", "t.csv", "-t", "y", "-q"]) == 0

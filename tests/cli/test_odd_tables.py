"""Tables and options that used to be taken for a bug, or taken without a word."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

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

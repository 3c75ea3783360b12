"""Where the commands write: never over one another or over what they read, and found out before the work."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from least_squares import LeastSquares
from mlayer.cli import main
from mlayer.tables import fitting


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table; training by least squares."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fitting, "default_estimator", lambda *_: LeastSquares())
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"u": draw.normal(size=40), "v": draw.normal(size=40)})
    frame.assign(y=frame["u"] + frame["v"]).to_csv("reg.csv", index=False)
    frame.assign(y=np.where(frame["u"] > 0, "a", "b")).to_csv("class.csv", index=False)
    return tmp_path


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    "options",
    [
        ["-o", "same.html", "--report", "same.html"],
        ["-o", "same.html"],  # the report's own name is the model's with .html
        ["-o", "same.html", "--report", "./folder/../same.html"],
        ["-o", "same.html", "--report", "link/same.html"],
        ["-o", "one.hard", "--report", "two.hard", "--force"],
    ],
    ids=" ".join,
)
def test_two_outputs_at_one_place(
    options: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("folder").mkdir()
    Path("link").symlink_to(folder, target_is_directory=True)
    Path("one.hard").write_text("old")
    os.link("one.hard", "two.hard")
    before = content(folder)
    assert main(["fit", "reg.csv", "-t", "y", *options]) == 2
    assert "is wanted for -o and for --report; give one another name" in capsys.readouterr().err
    assert content(folder) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "reg.csv", "-t", "y", "-o", "link.csv"], "is the table itself; use -o"),
        (["fit", "reg.csv", "-t", "y", "--report", "link.csv"], "is the table itself; use --report"),
        (["predict", "m.safetensors", "class.csv", "-o", "m.safetensors"], "is the model itself"),
        (["predict", "m.safetensors", "reg.csv", "-o", "link.csv"], "is the table itself"),
        (["certify", "m.safetensors", "reg.csv", "-o", "link.csv"], "is the table itself"),
        (["certify", "m.safetensors", "class.csv", "-o", "model.csv"], "is the model itself"),
        (["explain", "m.safetensors", "class.csv", "--plot", "model.png"], "is the model itself"),
        (["explain", "m.safetensors", "reg.csv", "--plot", "table.png"], "is the table itself"),
        (["export", "m.safetensors", "--onnx", "model.png"], "is the model itself"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_output_that_is_an_input(
    arguments: list[str], words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "class.csv", "-t", "y", "-o", "m.safetensors", "--no-report", "-q"]) == 0
    for name, target in (
        ("link.csv", "reg.csv"),
        ("table.png", "reg.csv"),
        ("model.csv", "m.safetensors"),
        ("model.png", "m.safetensors"),
    ):
        Path(name).symlink_to(target)
    before = content(folder)
    assert main([*arguments, "--force"]) == 2
    assert words in capsys.readouterr().err
    assert content(folder) == before

"""The commands never write over one another or over their inputs, and say so before the work."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from least_squares import LeastSquares
from mlayer.cli import main
from mlayer.tables import load_table_model
from mlayer.tables.fit import fit_table as fit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table; training by least squares."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fit, "default_estimator", lambda *_: LeastSquares())
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
    assert "is given for both -o and --report; choose another name for one" in capsys.readouterr().err
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


# A file system that takes no files: as /proc, where there is one; a name too long to write is refused by all.
LONG = "n" * 255
NOWHERE = [f"{LONG}.csv"] + (["/proc/x.csv"] if Path("/proc/self").exists() else [])


@pytest.mark.parametrize("place", NOWHERE, ids=lambda place: place[:10])
@pytest.mark.parametrize("option", ["-o", "--report"])
def test_places_that_cannot_be_written_are_found_before_the_work(
    option: str,
    place: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fit, "default_estimator", lambda *_: pytest.fail("it trained"))
    before = content(folder)
    assert main(["fit", "reg.csv", "-t", "y", option, place]) == 2
    err = capsys.readouterr().err
    assert f"cannot write {place}: " in err
    assert f"Use {option} for another place" in err
    assert content(folder) == before


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="needs a device")
def test_a_device_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    """Written beside and renamed, a file would take the place of /dev/null."""
    assert main(["fit", "reg.csv", "-t", "y", "-o", "m.safetensors", "--report", "/dev/null", "--force"]) == 2
    assert "/dev/null is not a regular file" in capsys.readouterr().err


def test_a_report_that_fails_after_all_leaves_the_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlayer.report.page import Page

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "m.html")

    monkeypatch.setattr(Page, "save", full)
    assert main(["fit", "reg.csv", "-t", "y", "-o", "m.safetensors"]) == 2
    err = capsys.readouterr().err
    assert "the model was kept, m.safetensors; the report failed: [Errno 28] No space left on device" in err
    assert main(["info", "m.safetensors", "-q"]) == 0


def test_a_place_that_fills_up_while_a_model_is_trained_does_not_lose_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder / "elsewhere"))
    (folder / "elsewhere").mkdir()

    def full(whole: Callable[..., None], source: Any, target: Any) -> None:
        if Path(target).parent == Path() or Path(target).parent == folder:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        whole(source, target)

    for name in ("replace", "link"):  # a new file gets its name by the second
        monkeypatch.setattr(os, name, partial(full, getattr(os, name)))
    assert main(["fit", "class.csv", "-t", "y", "--no-report", "-q"]) == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said
    (kept,) = (folder / "elsewhere").glob("mlayer-*/class.safetensors")
    assert str(kept) in said
    assert load_table_model(kept).target.name == "y"
    assert sorted(path.name for path in folder.iterdir()) == ["class.csv", "elsewhere", "reg.csv"]

"""`certify`, `check-proof` and `certify-images` with wrong options and hostile files: one line, exit code 2.

No case leaves a file behind, changes one, or begins the work, which an error stands for. Every fourth case
runs by default, all of them with the slow tests.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mlayer
from mlayer.cli.run import run

MODEL, TABLE, PROOF, REGRESSION = "m.safetensors", "t.csv", "p.safetensors", "r.safetensors"
CERTIFY, CHECK, IMAGES = ["certify", MODEL, TABLE], ["check-proof", MODEL, TABLE, PROOF], ["certify-images"]
POSIX = sys.platform != "win32"

NUMBERS = ("nan", "inf", "-inf", "-1", "1e400", "abc", "", "0x10", "1,5", "0.1e", "NaN")
UNITS = ("nan", "inf", "-1", "0", "1e400", "1e-400", "", "x")
COLUMNS = ("=", "=1", "a", "a=", "k=1", "y=1", "zz=1", "\n=1", "\udcff=1")
COUNTS = ("0", "-1", "1.5", "nan", "", "x")
ENCODINGS = ("rot13", "zip", "hex", "base64", "", "x" * 1000, "undefined", "uu", "\0")
DELIMITERS = ("", "ab", "\n", '"', "\0", "\udcff", "\r")

OPTIONS: list[list[str]] = [
    *([*CERTIFY, "--eps", value] for value in NUMBERS),
    *(["certify", REGRESSION, "r.csv", "--eps", value] for value in NUMBERS),
    *([*IMAGES, MODEL, "--eps", value] for value in NUMBERS),
    *([*words, "--unit", f"a={value}"] for value in UNITS for words in (CERTIFY, CHECK)),
    *([*words, "--unit", value] for value in COLUMNS for words in (CERTIFY, CHECK)),
    *([*words, "--rows", value] for value in COUNTS for words in (CERTIFY, CHECK)),
    *([*IMAGES, MODEL, "--images", value] for value in COUNTS),
    *([*CERTIFY, "--workers", value] for value in COUNTS),
    *([*words, "--norm", value] for value in ("l1", "", "l2\0") for words in (CERTIFY, CHECK)),
    *([*CERTIFY, "--method", value] for value in ("none", "", "best ")),
    *([*words, "--encoding", value] for value in ENCODINGS for words in (CERTIFY, CHECK)),
    *([*words, "--delimiter", value] for value in DELIMITERS for words in (CERTIFY, CHECK)),
    *([*CERTIFY, "--decimal", value] for value in ("", "x", "..", "\0")),
    *(["certify", REGRESSION, "r.csv", "--eps", "0.1", "--vary", value] for value in ("a", "zz", "", "\n")),
    [*CERTIFY, "--vary", "k"],
    *(
        ["certify", REGRESSION, "r.csv", "--eps", "0.1", *words]
        for words in (["--norm", "l2"], ["--method", "paper"], ["--rigorous"], ["--proof", "n.safetensors"])
    ),
    ["certify", REGRESSION, "r.csv"],
    *([*CERTIFY, "-o", value] for value in ("o.txt", "dir/../..", "nowhere/o.csv", TABLE, "/dev/full", "")),
    *([*CERTIFY, "--proof", value] for value in ("o.csv", "nowhere/o.safetensors", MODEL, PROOF, "a\0b")),
    [*CERTIFY, "-o", "same.csv", "--proof", "same.csv"],
    ["certify", TABLE, MODEL],
    ["check-proof", TABLE, MODEL, PROOF],
    ["check-proof", MODEL, PROOF, TABLE],
]
FILES = (
    *("empty", "empty.safetensors", "empty.csv", "head.csv", "zeros.csv", "random.csv", "renamed.csv"),
    *(
        "half.safetensors",
        "seven.safetensors",
        "long.safetensors",
        "flipped.safetensors",
        "layer.safetensors",
    ),
    *("half.csv.gz", "half.parquet", "dir", "dir.csv", "dir.safetensors", "loop.csv", "dangling.csv"),
    *("nowhere", f"{TABLE}/x", "x" * 300 + ".csv", "a\0b", "\udcff.csv", "", ".", "/"),
    *(("pipe.csv", "pipe.safetensors", "/dev/null", "/dev/zero") if POSIX else ()),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = tmp_path_factory.mktemp("hostile")
    drawn = np.random.default_rng(0)
    frame = pd.DataFrame({"a": drawn.normal(size=40), "k": drawn.choice(["u", "v"], 40)})
    frame.assign(y=np.where(frame["a"] > 0, "p", "q")).to_csv(there / TABLE, index=False)
    frame.assign(r=2 * frame["a"]).to_csv(there / "r.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(there)
        for table, target, model in ((TABLE, "y", MODEL), ("r.csv", "r", REGRESSION)):
            words = ["fit", table, "--target", target, "-o", model, "--epochs", "1", "--no-report", "-q"]
            assert run([*words, "--matrix-size", "3", "--embedding-size", "2"]) == 0
        assert run([*CERTIFY, "--rows", "1", "--proof", PROOF, "-q"]) == 0
    _make_files(there)
    return there


def _make_files(there: Path) -> None:
    model, table = (there / MODEL).read_bytes(), (there / TABLE).read_bytes()
    frame = pd.DataFrame({"a": range(99)})
    frame.to_parquet(there / "half.parquet")
    contents = {
        **{"empty": b"", "empty.safetensors": b"", "empty.csv": b"", "head.csv": b"a,k\n"},
        **{"zeros.csv": bytes(999), "random.csv": np.random.default_rng(1).bytes(3000)},
        "renamed.csv": b"A1,k\n1,u\n",
        "half.safetensors": model[: len(model) // 2],
        "seven.safetensors": model[:7],
        "long.safetensors": b"\xff" * 8 + model[8:],
        "flipped.safetensors": model[:-9] + bytes([model[-9] ^ 1]) + model[-8:],
        "half.csv.gz": gzip.compress(table)[:-20],
        "half.parquet": (there / "half.parquet").read_bytes()[:-20],
    }
    for name, content in contents.items():
        (there / name).write_bytes(content)
    mlayer.save(mlayer.MLayer(2, 2, 3), there / "layer.safetensors")
    for name in ("dir", "dir.csv", "dir.safetensors"):
        (there / name).mkdir()
    (there / "loop.csv").symlink_to(there / "loop.csv")
    (there / "dangling.csv").symlink_to(there / "not there")
    if POSIX:
        os.mkfifo(there / "pipe.csv")
        os.mkfifo(there / "pipe.safetensors")


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    return {one.name: (one.lstat().st_size, one.lstat().st_mtime_ns) for one in folder.iterdir()}


def _is_one_error_line(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def work(*arguments: object, **options: object) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.chdir(folder)
    for where in ("certify.certify_table.certify", "certify.intervals.bounds"):
        module, _, name = f"mlayer.tables.{where}".rpartition(".")
        assert hasattr(__import__(module, fromlist=[name]), name), "the work has another name"
        monkeypatch.setattr(f"mlayer.tables.{where}", work)
    before = _state(folder)
    assert run(command) == 2
    said = capfd.readouterr().err
    lines = said.splitlines()
    assert len([line for line in lines if re.match(r"mlayer: |Error: ", line)]) == 1, said
    assert lines[-1].startswith(("mlayer: ", "Error: "))
    assert "Traceback" not in said
    assert "bug" not in said
    assert _state(folder) == before


PLACES = {
    "model": ["certify", "FILE", TABLE, "--eps", "0.1"],
    "table": ["certify", MODEL, "FILE", "--eps", "0.1"],
    "proof": ["check-proof", MODEL, TABLE, "FILE", "--rows", "1"],
    "model of a proof": ["check-proof", "FILE", TABLE, PROOF, "--rows", "1"],
    "table of a proof": ["check-proof", MODEL, "FILE", PROOF, "--rows", "1"],
    "images": ["certify-images", "FILE", "--images", "1"],
}
COMMANDS = OPTIONS + [
    [file if word == "FILE" else word for word in words] for file in FILES for words in PLACES.values()
]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            words, marks=[pytest.mark.slow] if k % 4 else [], id=f"{k} {ascii(' '.join(words))[1:50]}"
        )
        for k, words in enumerate(COMMANDS)
    ],
)
def test_a_mistake_is_one_line(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _is_one_error_line(command, folder, monkeypatch, capfd)


def test_there_are_enough() -> None:
    assert len(COMMANDS) > 300

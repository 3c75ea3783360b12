"""Damaged tables on the command line: a sentence that names the file and exit code 2, never a raw error."""

from __future__ import annotations

import gzip
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest

from least_squares import LeastSquares
from mlayer.cli import group, main
from mlayer.tables.fit import fit_table as fit

ROWS = 4000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; training by least squares."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fit, "default_estimator", lambda *_: LeastSquares())
    return tmp_path


def table(rows: int = ROWS) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"u": draw.normal(size=rows), "v": draw.normal(size=rows)})
    words = np.asarray(["Rome", "Oslo", "Zürich"])[np.arange(rows) % 3]
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(rows) % 500, unit="D")
    return frame.assign(city=words, day=days, y=frame["u"] + 2 * frame["v"])


def damaged(data: bytes, draw: np.random.Generator) -> bytes:
    """Truncated, or with up to eight bytes changed; half of the changes in the last fifth, the metadata."""
    if draw.random() < 0.3:
        return data[: draw.integers(4, len(data))]
    changed = bytearray(data)
    start = 4 if draw.random() < 0.5 else len(data) * 4 // 5
    for place in draw.integers(start, len(data), size=draw.integers(1, 9)):
        changed[place] ^= int(draw.integers(1, 256))
    return bytes(changed)


def fits(name: str) -> int:
    return main(["fit", name, "-t", "y", "-o", "m.safetensors", "--no-report", "--force", "-q"])


def check(code: int, err: str, what: object) -> None:
    """Damage may leave a table that can be read, or one with other columns; never a bug or a stop."""
    assert code in (0, 2), (what, code, err)
    assert "Traceback" not in err, what
    if code == 2:
        assert err.strip().startswith("mlayer: "), (what, err)
        assert err.rstrip().endswith("."), (what, err)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.9999])
@pytest.mark.parametrize("command", ["fit", "predict", "rows"])
def test_truncated_gzip(share: float, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    table().to_csv("good.csv", index=False)
    data = gzip.compress(Path("good.csv").read_bytes())
    Path("cut.csv.gz").write_bytes(data[: int(share * len(data))])
    if command == "predict":
        table(300).to_csv("few.csv", index=False)
        assert fits("few.csv") == 0
        code = main(["predict", "m.safetensors", "cut.csv.gz", "-o", "p.csv"])
        assert not Path("p.csv").exists()
    else:
        rows = ["--rows", str(ROWS)] if command == "rows" else []
        code = main(["fit", "cut.csv.gz", "-t", "y", "-o", "m.safetensors", "--no-report", *rows])
    err = capsys.readouterr().err
    assert code == 2, err
    assert "cut.csv.gz must be a complete gzip file; got something else, or a damaged one" in err


@pytest.mark.parametrize(
    ("kind", "trials"),
    [
        ("csv.gz", 60),
        ("csv", 6),  # most can be read, and a fit follows
        ("parquet", 30),
        pytest.param("csv", 60, marks=pytest.mark.fuzz),
        pytest.param("parquet", 150, marks=pytest.mark.fuzz),
    ],
)
def test_damaged(kind: str, trials: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Seeded changes of whole files."""
    name = f"t.{kind}"
    good = table(600)
    good.to_parquet(name, row_group_size=200) if kind == "parquet" else good.to_csv(name, index=False)
    data, draw, refused = Path(name).read_bytes(), np.random.default_rng(21), 0
    for trial in range(trials):
        Path(name).write_bytes(damaged(data, draw))
        code = fits(name)
        check(code, capsys.readouterr().err, trial)
        refused += code == 2
    assert refused >= (2 * trials // 3 if kind == "parquet" else 0)


def test_the_end_of_a_file_is_no_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command("fit")
    def ends() -> None:
        raise EOFError("no more bytes")

    monkeypatch.setattr(group.LazyGroup, "get_command", lambda *_: ends)
    assert main(["fit"]) == 2
    assert "a file ends before it should (no more bytes)" in capsys.readouterr().err

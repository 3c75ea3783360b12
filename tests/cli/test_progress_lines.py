"""Progress: a bar on a terminal, lines elsewhere, nothing with --quiet."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlayer.cli import main, show

pty = pytest.importorskip("pty", reason="no terminals to be had here")

FIT = ["fit", "t.csv", "-t", "y", "--no-report", "--force", "--matrix-size", "3", "--epochs", "20"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small table."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({name: draw.normal(size=40) for name in ("a", "b", "c", "d")})
    frame.assign(y=frame["a"] * frame["b"] + frame["c"]).to_csv("t.csv", index=False)


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> str:
    """The output of a fit where stderr is a terminal."""
    ours, theirs = pty.openpty()
    blocks = []

    def read() -> None:  # all the while: a full terminal would make the fit wait
        with contextlib.suppress(OSError):  # the terminal's other end is closed
            while block := os.read(ours, 65536):
                blocks.append(block)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with monkeypatch.context() as patch, open(theirs, "w", encoding="utf-8") as terminal:
            patch.setattr(sys, "stderr", terminal)
            patch.setenv("COLUMNS", "160")
            patch.setenv("TERM", "xterm")
            assert main(FIT) == 0
    finally:
        reader.join()
        os.close(ours)
    return b"".join(blocks).decode()


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bar over the whole fit, which names its parts."""
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", on_a_terminal(monkeypatch))
    assert re.search(r"(looking for waves|choosing the strength|training on all rows).* ━+", shown), shown
    assert "held out" in shown


def test_a_line_every_few_seconds_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "SECONDS_BETWEEN_LINES", 0.0)
    assert main(FIT) == 0
    assert re.search(r"\d+%  training on all rows", capsys.readouterr().err)


def test_reproduce_says_how_far_it_is_without_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of hours whose output goes to a file is not silent."""
    monkeypatch.setattr(show, "SECONDS_BETWEEN_LINES", 0.0)
    assert main(["reproduce", "waves", "--smoke", "-o", str(tmp_path)]) == 0
    assert re.search(r"^ *\d+%  .*  0:\d\d:\d\d$", capsys.readouterr().err, re.MULTILINE)


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_shows_no_progress(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with show.bar("work", quiet=True) as bar:
        bar(1, 2, "half of it")
    assert not capsys.readouterr().err


def test_lines_become_rare_in_a_long_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every 3 s at first, once a minute from 50 minutes on."""
    seconds = iter(range(4 * 3600))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    with show.bar("work", quiet=False) as bar:
        for _ in range(60):
            bar(0, None, "beginning")
        for _ in range(3 * 3600):
            bar(0, None, "middle")
    lines = capsys.readouterr().err.splitlines()
    assert sum("beginning" in line for line in lines) == 20
    assert 150 < sum("middle" in line for line in lines) < 400


def test_no_bar_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FIT) == 0
    err = capsys.readouterr().err
    assert "training on" in err
    assert "━" not in err
    assert "\x1b" not in err

"""The bar of a fit: on a terminal, and nowhere else."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
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
    """What a fit shows where the error output is a terminal."""
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


def test_no_bar_where_quiet_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert show.wants_bar(quiet=False)
    assert not show.wants_bar(quiet=True)


def test_no_bar_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FIT) == 0
    err = capsys.readouterr().err
    assert "training on" in err
    assert "━" not in err
    assert "\x1b" not in err

"""The bar of a fit: on a terminal, and nowhere else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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


def on_a_terminal() -> str:
    """What a fit shows on a terminal of its own."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mlayer", *FIT]
    environment = {**os.environ, "COLUMNS": "160", "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if not block:
            break
        shown += block
    os.close(ours)
    process.communicate(timeout=60)
    assert process.returncode == 0
    return shown.decode()


def test_a_bar_on_a_terminal() -> None:
    """The training's own bar, after what is said of it; its figures are tested beside it."""
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", on_a_terminal())
    before, _, after = shown.partition("first the strength of the ridge is chosen")
    assert "training ━" not in before
    assert re.search(r"training ━+ .*\d:\d\d:\d\d left", after), after


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

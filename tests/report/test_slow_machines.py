"""Pictures on a machine that takes its time."""

from __future__ import annotations

import ast
import itertools
import warnings
from pathlib import Path
from types import SimpleNamespace

import matplotlib.legend
import pytest
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]


def saved(folder: Path, **options: str) -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([0, 1, 0], label="points")
    axes.legend(**options)
    figure.savefig(folder / "picture.png", dpi=20)


def test_a_second_for_a_legend_is_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib looks at the clock and warns, unless it was told to look for the best place."""
    clock = itertools.count(0, 10)
    monkeypatch.setattr(matplotlib.legend, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    with pytest.warns(UserWarning, match="can be slow"):
        saved(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saved(tmp_path, loc="best")


def test_every_legend_is_told_where() -> None:
    files = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").glob("*.py")])
    found = [
        (file.name, node.lineno, any(word.arg == "loc" for word in node.keywords))
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "legend"
    ]
    assert len(found) >= 10
    assert [(name, line) for name, line, told in found if not told] == []

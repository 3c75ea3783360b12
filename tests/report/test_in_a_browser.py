"""Pages in a real browser: at the width of a desk and of a phone, light and dark.

Nothing may need sideways scrolling, no text may be pale, no picture cut or missing, and dark must be dark.
Screenshots are compared with each other (`screenshots.py`); `test_screenshots.py` tries that on broken pages.
Without Chromium these tests are skipped.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from browser import BROWSER, look
from mlayer.cli import main
from screenshots import WIDTHS, compare, luminance, shots

ROOT = Path(__file__).resolve().parents[2]
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
pytestmark = [pytest.mark.slow, needs_browser]


def inspect(page: Path, folder: Path, themed: bool = True) -> None:
    """Measure the page, and compare its screenshots with each other."""
    orders = []
    for width in WIDTHS:
        pair = shots(page, folder, width)
        for shot, kind in zip(pair, ("light", "dark"), strict=True):
            assert shot.seen.width == width
            assert shot.seen.faults() == [], f"{page.name}, {width} pixels, {kind}"
        light, dark = (float(np.median(luminance(shot.pixels))) for shot in pair)
        assert light > 0.7, f"{page.name} at {width}: light is not light"
        assert dark < 0.05, f"{page.name} at {width}: dark is not dark"
        assert list(compare(*pair, themed)) == [], f"{page.name}, {width} pixels"
        orders.append([box[0] for box in pair[0].seen.boxes])
    assert orders[0] == orders[1], f"{page.name}: the narrow page shows other elements than the wide one"


def test_the_measuring_itself(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><body><p style='color:#aaa'>pale</p><p style='color:#000'>black</p>"
        "<pre style='width:600px'>" + 200 * "wide " + "</pre><img src='none.png' alt='' width=10 height=10>"
        "<div style='overflow-x:auto'><table><tr><td style='min-width:900px'>cells</table></div>"
    )
    seen = look(page, tmp_path, 390, dark=False)
    assert [text for text in seen.pale if "pale" in text]
    assert not [text for text in seen.pale if "black" in text]
    assert seen.scroll > 390
    assert seen.wide
    assert seen.broken
    assert [text for text in seen.cut if text.startswith("TABLE") and "cells" in text]


def test_the_report_of_the_experiments(tmp_path: Path) -> None:
    shutil.copy(ROOT / "results/report.html", tmp_path / "report.html")
    inspect(tmp_path / "report.html", tmp_path)


def test_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--smoke", "-q", "-o", "demo.html"]) == 0
    inspect(tmp_path / "demo.html", tmp_path)


def test_the_report_of_a_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pd = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    dates = pd.date_range("2023-01-01", periods=120).strftime("%Y-%m-%d")
    walk = np.cumsum(np.random.default_rng(0).normal(size=120))
    pd.DataFrame({"date": dates, "walk": walk}).to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "--target", "walk", "-q"]) == 0
    inspect(tmp_path / "t.html", tmp_path)


@pytest.mark.parametrize("task", ["quantity", "class"])
def test_the_report_of_a_fit(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pd = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(150, 3))
    y = x[:, 0] * x[:, 1] if task == "quantity" else np.where(x[:, 0] * x[:, 1] > 0, "yes", "no")
    table = pd.DataFrame(x, columns=["a_rather_long_name_of_a_column", "b", "c"]).assign(target=y)
    table.to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "--target", "target", "-q"]) == 0
    inspect(next(tmp_path.glob("*.html")), tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="needs zensical, of the extra docs")
def test_the_site(tmp_path: Path) -> None:
    site = ROOT / "out" / "docs"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "docs"), str(ROOT / "src")])}
    subprocess.run([sys.executable, "docs/generate.py"], cwd=ROOT, env=environment, check=True)
    subprocess.run([sys.executable, "-m", "zensical", "build"], cwd=ROOT, env=environment, check=True)
    for page in (
        "index",
        "results",
        "paper-map",
        "experiments",
        "when",
        "layer",
        "start/paper",
        "start/table",
        "theory/expm",
        "api/nn",
    ):
        inspect(site / f"{page}.html", tmp_path, themed=False)

"""Pictures of the stored results, on a wide and a narrow page: no words are cut off or on top of others."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlayer.experiments.running.registry import EXPERIMENTS, experiment
from mlayer.experiments.shared.pictures import Look, seen_as

pytest.importorskip("matplotlib")

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
STORED = [name for name in EXPERIMENTS if (ROOT / "results" / f"{name}.json").is_file()]
SLACK = 1.5  # pixels that a box of text has around its letters


def faults(figure: Figure) -> list[str]:
    from matplotlib.text import Text

    figure.set_dpi(100)
    figure.draw_without_rendering()
    renderer = figure._get_renderer()  # type: ignore[attr-defined]
    page = figure.bbox
    found = []

    def box(text: Text) -> tuple[float, float, float, float]:
        return text.get_window_extent(renderer).extents

    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    ticks = {
        id(t)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for t in axis.get_ticklabels(which="both")
    }
    for text in shown:
        x0, y0, x1, y1 = box(text)
        if id(text) in ticks or (x0 == x1 and y0 == y1):
            continue
        if x0 < -SLACK or y0 < -SLACK or x1 > page.x1 + SLACK or y1 > page.y1 + SLACK:
            found.append(f"cut off: {text.get_text()!r}")
    for axes in figure.axes:
        for axis, way in ((axes.xaxis, 0), (axes.yaxis, 1)):
            low, high = sorted(axis.get_view_interval())
            labels = [
                tick.label1
                for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]
                if low <= tick.get_loc() <= high
                and tick.label1.get_visible()
                and tick.label1.get_text().strip()
            ]
            boxes = sorted((box(label)[way], box(label)[way + 2], label.get_text()) for label in labels)
            for (_, end, one), (start, _, two) in pairwise(boxes):
                if start < end - SLACK:
                    found.append(f"ticks {one!r} and {two!r} overlap")
        words = [t for t in (axes.title, *axes.texts) if t.get_visible() and t.get_text().strip()]
        for first, second in combinations(words, 2):
            a, b = box(first), box(second)
            if all(min(a[k + 2], b[k + 2]) - max(a[k], b[k]) > 2 * SLACK for k in (0, 1)):
                found.append(f"{first.get_text()!r} on top of {second.get_text()!r}")
    titles = [(axes.title.get_text(), box(axes.title)) for axes in figure.axes if axes.title.get_text()]
    for (one, a), (two, b) in combinations(titles, 2):
        if all(min(a[k + 2], b[k + 2]) - max(a[k], b[k]) > SLACK for k in (0, 1)):
            found.append(f"title {one!r} on top of {two!r}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", STORED)
def test_words_of_the_pictures(name: str, narrow: bool) -> None:
    results = json.loads((ROOT / "results" / f"{name}.json").read_text())["results"]
    with seen_as(Look(narrow=narrow)):
        assert faults(experiment(name).plot(results)) == []


def test_the_measuring_itself() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2), layout="constrained")
    axes = figure.subplots()
    axes.set_title("a title that is much too long for two inches")
    axes.set_xticks([0.5, 0.51], labels=["first", "second"])
    axes.text(0.5, 0.5, "words")
    axes.text(0.51, 0.51, "others")
    found = "; ".join(faults(figure))
    assert "cut off: 'a title" in found
    assert "ticks 'second' and 'first' overlap" in found
    assert "'words' on top of 'others'" in found

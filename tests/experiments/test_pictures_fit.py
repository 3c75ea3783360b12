"""Pictures of the stored results, on a wide and a narrow page: no words are cut off or on top of others."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlayer.experiments import periodic
from mlayer.experiments.running.registry import EXPERIMENTS, experiment
from mlayer.experiments.shared.pictures import Look, colors, drawn_for, panels

pytest.importorskip("matplotlib")

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
STORED = [name for name in EXPERIMENTS if (ROOT / "results" / f"{name}.json").is_file()]
SLACK = 1.5  # pixels that a box of text has around its letters
# Pixels that the page has for a picture, and those of the smallest letters.
ROOM, LETTERS = {False: 930, True: 332}, {False: 9.0, True: 8.0}


def small_letters(figure: Figure, narrow: bool) -> list[str]:
    """Words whose letters are too small when the picture is as wide as the page."""
    from matplotlib.text import Text

    scale = min(1.0, ROOM[narrow] / (100 * figure.get_figwidth()))
    return sorted(
        {
            f"{text.get_text()!r}: {pixels:.1f} pixels"
            for text in figure.findobj(Text)
            if text.get_visible()
            and text.get_text().strip()
            and (pixels := float(text.get_fontsize()) * 100 / 72 * scale) < LETTERS[narrow] - 0.05
        }
    )


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
    with drawn_for(Look(narrow=narrow)):
        figure = experiment(name).plot(results)
        assert faults(figure) == []
        assert small_letters(figure, narrow) == []


@pytest.mark.parametrize(
    ("count", "rows", "columns"), [(1, 1, 1), (3, 1, 3), (4, 2, 2), (5, 2, 3), (7, 3, 3)]
)
def test_many_panels_take_several_rows(count: int, rows: int, columns: int) -> None:
    with drawn_for(Look()):
        figure, axes = panels(count, 4.4 * count, 4.4)
    grid = axes[0].get_gridspec()
    assert grid is not None
    assert (grid.nrows, grid.ncols) == (rows, columns)
    assert len(axes) == len(figure.axes) == count
    assert figure.get_figwidth() <= 10.4
    axes[0].set_title("words", fontsize=9)
    assert small_letters(figure, narrow=False) == []
    axes[0].set_title("words", fontsize=5)
    assert small_letters(figure, narrow=False) != []


@pytest.mark.parametrize(("epochs", "drawn"), [(30, False), (300, True)])
def test_a_net_of_figure_3_is_drawn_if_it_was_trained_in_full(epochs: int, drawn: bool) -> None:
    curve = [0.0, 1.0, 0.5]
    model = {"curve": curve, "rmse": 0.1}
    entry = {
        "function": "cos",
        "curve": curve,
        "ours": [model],
        "text": [model | {"epochs": 300}],
        "dnn": [model | {"epochs": epochs}],
    }
    labels = [text.get_text() for text in periodic.plot({"figure": [entry]}).legends[0].get_texts()]
    assert (f"DNN, {epochs} epochs" in labels) is drawn
    assert "M-layer, ours" in labels


def luminance(color: str) -> float:
    """Relative luminance: Web Content Accessibility Guidelines 2.1."""
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return float(sum(weight * v for weight, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))


@pytest.mark.parametrize(("dark", "page"), [(False, "#f4f6f8"), (True, "#1e2328")])
def test_colors_can_be_seen_on_their_page(dark: bool, page: str) -> None:
    """The least contrast of graphics is 3: the same guidelines, criterion 1.4.11."""
    with drawn_for(Look(dark=dark)):
        shown = {name: color for name, color in asdict(colors()).items() if name not in ("shade", "ground")}
    below = luminance(page)
    contrast = {
        name: (max(luminance(color), below) + 0.05) / (min(luminance(color), below) + 0.05)
        for name, color in shown.items()
    }
    assert {name: ratio for name, ratio in contrast.items() if ratio < 3} == {}
    if dark:  # thin lines need more than the least
        assert min(contrast["m_layer"], contrast["net"]) > 5


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

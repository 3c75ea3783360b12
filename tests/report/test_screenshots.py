"""The comparison of screenshots, on a page that has every kind of element and on broken copies of it.

The places of its elements, in percent of the width, are compared with those in layout.json. After a wanted
change of the style: MLAYER_WRITE_LAYOUT=1 pytest -m slow tests/report/test_screenshots.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import BROWSER
from browser import Look as Seen
from mlayer.experiments.shared.pictures import Figure, Look, canvas, colors, rendered
from mlayer.report.page import Drawn, Page
from mlayer.report.theme import Theme
from screenshots import CLEARLY, WIDTHS, Shot, compare, outline, shots, visible

STORED = Path(__file__).with_name("layout.json")
in_a_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")


def small(figure: Any, theme: Theme) -> None:
    axes = figure.subplots()
    axes.plot([0, 1, 2], [0, 1, 0.5], color=theme.first)
    axes.set(xlabel="x", ylabel="y")


def large(_: Any) -> Figure:
    figure = canvas(9, 3)
    axes = figure.subplots()
    axes.plot([0, 1, 2], [0, 1, 0.5], color=colors().m_layer)
    axes.set_xlabel("x", color=colors().ink)
    axes.set_ylabel("error", color=colors().ink)
    return figure


def specimen() -> Page:
    page = Page("A page of every kind", "What every page begins with.")
    page.cards([("1.5", "a figure"), ("2.5", "another"), ("3.5", "a third"), ("4.5", "a fourth")])
    page.gallery([(f"part{k}", "99 %", "of it, in a sentence", small, "a curve") for k in range(2)])
    page.heading("Contents").contents([("part0", "Part 0"), ("part1", "Part 1")])
    page.heading("Part 0", anchor="part0").paragraph("Some words about it.").code("mlayer reproduce it")
    looks = [Look(dark=dark, narrow=narrow) for narrow in (False, True) for dark in (False, True)]
    page.picture(Drawn(*(rendered(large, None, each) for each in looks)), "a curve", "What is seen.")
    page.table(["", "paper", "here"], [["accuracy", "0.5", "0.6"], ["error", "", "0.1"]])
    page.heading("Part 1", anchor="part1").figures([(small, "a curve", "Seen"), (small, "a curve", "Again")])
    page.items(["first", "second"]).fold("More", Page("inside").paragraph("hidden"))
    return page


@pytest.fixture(scope="module")
def html() -> str:
    return specimen().html()


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_elements_are_where_they_were(width: int, html: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(html)
    pair = shots(file, tmp_path, width)
    assert [fault for shot in pair for fault in shot.seen.faults()] == []
    assert list(compare(*pair, themed=True)) == []
    found = outline(pair[0].seen)
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    if os.environ.get("MLAYER_WRITE_LAYOUT"):
        stored[str(width)] = found
        STORED.write_text(json.dumps(stored).replace("], [", "],\n  [") + "\n")
    assert far(found, stored[str(width)]) == []


def far(found: list[list[Any]], stored: list[list[Any]]) -> list[Any]:
    """Boxes that are not where they were, to a hundredth of the width for roundings."""
    if [box[0] for box in found] != [box[0] for box in stored]:
        return [box[0] for box in found]
    return [(a, b) for a, b in zip(found, stored, strict=True) if max(abs(a[1] - b[1]), abs(a[2] - b[2])) > 1]


DARK = "@media (prefers-color-scheme: dark) "
BROKEN = {
    "a paragraph that is lost in the dark": DARK + "{ p { color: var(--ground) !important; } }",
    "a picture that is lost in the dark": DARK + "{ .paper img { opacity: .03; } }",
    "letters of a picture that are dark in the dark": DARK
    + "{ .paper img { filter: invert(1) contrast(.9); } "
    ".paper { background: #14171a; } .paper picture { background: #14171a; display: block; } }",
    "an element that only the light page has": DARK + "{ pre { display: none; } }",
    "a page that moves in the dark": DARK + "{ h1 { margin-top: 60px; } }",
    "text that its box cuts off": "p.lead { height: 6px; overflow: hidden; }",
    "cards below each other": ".cards { grid-template-columns: 1fr; }",
    "figures that are half as wide": ".figures { width: 50%; }",
}


@pytest.mark.slow
@in_a_browser
@pytest.mark.parametrize("fault", list(BROKEN))
def test_a_broken_page_is_noticed(fault: str, html: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(html.replace("</style>", BROKEN[fault] + "</style>"))
    pair = shots(file, tmp_path, WIDTHS[0])
    faults = [one for shot in pair for one in shot.seen.faults()]
    moved = far(outline(pair[0].seen), json.loads(STORED.read_text())[str(WIDTHS[0])])
    assert [*faults, *compare(*pair, themed=True), *moved] != []


def picture(ground: int, letters: int) -> Any:
    pixels = np.full((120, 120, 3), ground, dtype=np.uint8)
    pixels[100:110, 40:80] = letters  # a label below the axes
    pixels[10:90, 10:14] = 255 - ground  # the axes
    return pixels


def shot(pixels: Any) -> Shot:
    return Shot(look_of([("IMG", 0, 0, 120, 120)]), pixels)


def look_of(boxes: list[tuple[str, int, int, int, int]]) -> Seen:
    return Seen(120, 120, 120, [], [], [], [], boxes)


def test_what_is_seen_on_one_page_only() -> None:
    """No browser is needed: a label that is black on both pages, one that is not, and no change at all."""
    light = shot(picture(255, 0))
    assert list(compare(light, shot(picture(20, 240)), themed=True)) == []
    lost = list(compare(light, shot(picture(20, 24)), themed=True))
    assert lost
    assert all("lost on the dark page" in one for one in lost)
    assert any("the same on the light and the dark page" in one for one in compare(light, light, themed=True))
    empty = shot(np.full((120, 120, 3), 20, dtype=np.uint8))
    assert any("empty on the dark page" in one for one in compare(light, empty, themed=True))
    assert visible(picture(255, 0), CLEARLY).sum() == 10 * 40 + 80 * 4


def test_boxes_that_move_or_are_missing() -> None:
    pixels = picture(255, 0)
    one, two = look_of([("P", 0, 0, 120, 120)]), look_of([("P", 0, 30, 120, 90)])
    assert any("is at" in said for said in compare(Shot(one, pixels), Shot(two, pixels), themed=False))
    said = list(compare(Shot(one, pixels), Shot(look_of([]), pixels), themed=False))
    assert said == ["the light and the dark page do not have the same elements"]
    blank = np.full((120, 120, 3), 250, dtype=np.uint8)
    assert any("shows nothing" in said for said in compare(Shot(one, blank), Shot(one, pixels), themed=False))
    assert far([["P", 4, 96]], [["P", 4, 95]]) == []
    assert far([["P", 4, 96]], [["P", 4, 50]]) != []
    assert far([["P", 4, 96]], []) != []

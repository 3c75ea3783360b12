"""Names from anywhere in pictures and pages: every SVG is well-formed, in a page and alone."""

from __future__ import annotations

import base64
import io
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import sympy

import mlayer
from mlayer.checks import written_out
from mlayer.report import plots
from mlayer.report.page import Page
from mlayer.report.theme import DARK, LIGHT, svg
from mlayer.symbolic import draw_board, explain

LABELS = [
    "<script>alert(1)</script>",
    "a & b",
    "]]>",
    "-->",
    "<!--",
    "\"'`",
    "&#0;",
    "&nope;",
    "$\\frac{1}{$",
    "$",
    "a\x00b",
    "\x01\x08\x0b\x0c\x0e\x1f",
    "\x1b[31mred",
    "\x7f\x85\x9f",
    "\ufffe\uffff",
    "\ud800",
    "\u202eabc",
    "\U0001f600",
    "a\nb\r\nc\td",
    "",
    " ",
    "x" * 5000,
    "]]><svg/onload=1>",
]


SAFE = {"lang", "charset", "name", "content", "class", "scope", "media", "srcset", "src", "alt"}


class Reader(HTMLParser):
    """A page as a browser parses it: tags, attributes, and the text of each element."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.said: list[tuple[str, str | None]] = []
        self.texts: list[str] = []  # of elements that are closed
        self.inside: list[str] = []  # of those that are open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.said += attrs
        if tag not in ("meta", "source", "img"):
            self.open.append(tag)
            self.inside.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.texts.append(self.inside.pop())

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.inside[-1] += data


def well_formed(data: bytes) -> None:
    ElementTree.fromstring(data)


@pytest.mark.parametrize("label", LABELS, ids=range(len(LABELS)))
def test_pictures_with_any_label_are_well_formed(label: str) -> None:
    truth = np.array([0, 1, 0, 1])
    for draw in (
        plots.importance_bars({label: [0.1, 0.2], f"{label}2": [0.3, 0.1]}, label),
        plots.confusion(truth, truth[::-1], [label, f"{label}2"]),
    ):
        for theme in (LIGHT, DARK):
            well_formed(svg(draw, theme))


@pytest.mark.parametrize("label", LABELS, ids=range(len(LABELS)))
def test_pages_with_any_label_can_be_written_and_hold_whole_pictures(label: str, tmp_path: Path) -> None:
    page = Page(label, label)
    page.paragraph(label).heading(label).table([label, "b"], [[label, label]]).items([label])
    page.figures([(plots.confusion(np.array([0, 1]), np.array([0, 1]), [label, "b"]), label, label)])
    page.save(tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    read = Reader()
    read.feed(text)
    read.close()
    assert not read.open
    assert read.texts.count(written_out(label)) >= 6  # title, heading, lead, paragraph, cells, caption
    assert read.tags <= {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "div"} | {
        *("table", "thead", "tbody", "tr", "th", "td", "ul", "li", "figure", "picture", "source", "img"),
        "figcaption",
    }
    assert all(
        name in SAFE and (name == "alt" or "javascript" not in (value or "")) for name, value in read.said
    )
    found = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", text)
    found += re.findall(r"(<svg .*?</svg>)", text, re.DOTALL)
    assert found
    for picture in found:
        well_formed(picture.encode() if picture.startswith("<") else base64.b64decode(picture))


@pytest.mark.parametrize(
    "label",
    [
        pytest.param(label, id=str(place), marks=[pytest.mark.slow] if place % 4 else [])
        for place, label in enumerate(LABELS)
    ],
)
def test_pictures_of_formulas_with_any_name_are_well_formed(label: str) -> None:
    one, two = (mlayer.from_polynomial(text, names) for text, names in (("x**2", "x"), ("x*y", "x y")))
    x, y = sympy.Symbol(label), sympy.Symbol(f"{label} ")
    for figure in (
        explain(one, None, [x], (label,)).plot(),
        explain(two, None, [x, y], (label,)).plot(),
        draw_board(two, [x, y], title=label),
    ):
        buffer = io.BytesIO()
        with warnings.catch_warnings():  # of letters that the font lacks, and labels that leave no room
            warnings.simplefilter("ignore", UserWarning)
            figure.savefig(buffer, format="svg")
        well_formed(buffer.getvalue())
        # Colored maps are pixels, not thousands of shapes; each letter of the many labels is a shape.
        assert len(buffer.getvalue()) < 200_000 + 500 * len(label)


def test_settings_of_the_user_change_no_report() -> None:
    """TeX would run the names of columns as its code; other settings would give other bytes."""
    draw = plots.confusion(np.array([0, 1]), np.array([0, 1]), ["$\\input{/etc/passwd}$", "b"])
    before = svg(draw, LIGHT)
    odd: Any = {"text.usetex": True, "svg.fonttype": "path", "font.size": 30, "axes.grid": True}
    with matplotlib.rc_context(odd):
        assert svg(draw, LIGHT) == before
    assert b"$\\input" in before


def test_long_names_are_cut_in_pictures() -> None:
    """A label of 130,000 letters, which a table may have, took minutes."""
    long = ["a" * 20_000, "b" * 20_000]
    layer = mlayer.from_polynomial("x*y", "x y")
    for drawing in (
        explain(layer, None, long, ("c" * 20_000,)).plot(),
        draw_board(layer, long, title="d" * 20_000),
    ):
        texts = [text.get_text() for text in drawing.findobj(matplotlib.text.Text)]
        assert max(map(len, texts)) <= 250
        assert any(text.startswith(("aaa", "ddd")) for text in texts)

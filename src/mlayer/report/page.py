"""One self-contained HTML page: style and pictures inside, nothing fetched, no script.

Readable at the width of a phone, light or dark as the reader's system asks for.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from mlayer.checks import file_path, written_out
from mlayer.disk import replace_bytes
from mlayer.report.theme import DARK, LIGHT, Draw, svg

STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --card: #f4f6f8; --text: #1c2126; --soft: #56606b;
  --line: #d8dde3; --link: #005a8f; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --card: #1e2328; --text: #e6e9ec;
  --soft: #a7b0ba; --line: #363d45; --link: #7cc4f0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 62rem; background: var(--ground);
  color: var(--text); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .4rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: .95rem; margin: 1.2rem 0 .3rem; color: var(--soft); }
p { margin: .5rem 0; overflow-wrap: anywhere; }
.lead { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .7rem;
  margin: 1rem 0; }
.card { background: var(--card); border-radius: .6rem; padding: .7rem .9rem; }
.card b { display: block; font-size: 1.45rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: .88rem; }
.scroll { overflow-x: auto; }
.scroll + .scroll { margin-top: 1.4rem; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; padding: .4rem .7rem .4rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: break-word; max-width: 22rem; }
th { color: var(--soft); font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
@media (max-width: 40rem) {
  table { width: max-content; min-width: 100%; } th, td { max-width: 11rem; }
  .stacked, .stacked tbody, .stacked tr, .stacked td { display: block; width: auto; max-width: none; }
  .stacked thead, .stacked td:empty { display: none; }
  .stacked tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .stacked td { border: 0; padding: .05rem 0; overflow-wrap: anywhere; }
  .stacked td:first-child { font-weight: 600; }
  .stacked td.number { text-align: left; white-space: normal; }
  .stacked td[data-name]::before { content: attr(data-name) ": "; color: var(--soft); }
}
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1rem; }
figure { margin: 0; max-width: 44rem; background: var(--card); border-radius: .6rem; padding: .8rem; }
.figures > figure:only-child { max-width: 34rem; }
figure img { display: block; width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .88rem; margin-top: .4rem; }
figure.paper { max-width: none; margin: .8rem 0; }
figure.paper img { width: auto; max-width: 100%; margin: 0 auto; }
.gallery { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem;
  margin: 1rem 0; }
.gallery a { color: inherit; text-decoration: none; background: var(--card); border-radius: .6rem;
  padding: .9rem; display: block; }
.gallery a:hover { outline: 2px solid var(--link); }
.gallery b { display: block; font-size: 1.45rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.gallery span { color: var(--soft); font-size: .92rem; display: block; }
.gallery img { display: block; width: 100%; height: auto; margin-top: .5rem; }
nav ol { columns: 2 18rem; column-gap: 2rem; padding: 0; }
nav li { margin: .2rem 0 .2rem 1.8rem; break-inside: avoid; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--soft); }
pre { background: var(--card); border-radius: .6rem; padding: .8rem; font-size: .88rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; } li { margin: .25rem 0; overflow-wrap: anywhere; }
a { color: var(--link); }
"""


@dataclass(frozen=True)
class Drawn:
    """One picture as PNG or WebP files, for every kind of page."""

    light: bytes
    dark: bytes
    narrow: bytes
    narrow_dark: bytes


class Page:
    """A page that is built from top to bottom. All text given is shown as it is, never read as HTML.

    >>> page = Page("a < b", "first page")
    >>> page = page.heading("numbers").table(["name", "value"], [["x", "1"]])
    >>> "a &lt; b" in page.html()
    True
    """

    def __init__(self, title: str, lead: str = "") -> None:
        self._title = title
        self._body = [f"<h1>{_safe(title)}</h1>"]
        if lead := _safe(lead):
            self._body.append(f'<p class="lead">{lead}</p>')

    def _add(self, html: str) -> Page:
        self._body.append(html)
        return self

    def heading(self, text: str, level: int = 2, anchor: str = "") -> Page:
        """A heading; of a part of a part with level 3. ``anchor`` is the name that links lead to."""
        place = f' id="{_safe(anchor)}"' if anchor else ""
        return self._add(f"<h{level}{place}>{_safe(text)}</h{level}>")

    def paragraph(self, text: str) -> Page:
        """A paragraph."""
        return self._add(f"<p>{_safe(text)}</p>")

    def code(self, text: str) -> Page:
        """Lines to copy."""
        return self._add(f"<pre><code>{_safe(text)}</code></pre>")

    def items(self, texts: Iterable[str]) -> Page:
        """A list."""
        listed = "".join(f"<li>{_safe(text)}</li>" for text in texts)
        return self._add(f"<ul>{listed}</ul>")

    def cards(self, pairs: Iterable[tuple[str, str]]) -> Page:
        """A few large figures, each (figure, what it is)."""
        cards = "".join(
            f'<div class="card"><b>{_safe(figure)}</b><span>{_safe(name)}</span></div>'
            for figure, name in pairs
        )
        return self._add(f'<div class="cards">{cards}</div>')

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = False) -> Page:
        """A table; with ``numbers``, all columns but the first are figures."""
        stacks = len(header) > 2

        def cell(tag: str, place: int, text: str) -> str:
            scope = ' scope="col"' if tag == "th" else ""
            kind = ' class="number"' if numbers and place else ""
            # On a phone the cells of a row stand below each other, each after the name of its column.
            name = f' data-name="{_safe(header[place])}"' if tag == "td" and place and stacks else ""
            return f"<{tag}{scope}{kind}{name}>{_safe(text)}</{tag}>"

        def line(tag: str, cells: Sequence[str]) -> str:
            return "<tr>" + "".join(cell(tag, place, text) for place, text in enumerate(cells)) + "</tr>"

        body = "".join(line("td", row) for row in rows)
        head = line("th", header)
        stacked = ' class="stacked"' if stacks else ""
        grid = f"<table{stacked}><thead>{head}</thead><tbody>{body}</tbody></table>"
        return self._add(f'<div class="scroll">{grid}</div>')

    def figures(self, pictures: Iterable[tuple[Draw, str, str]]) -> Page:
        """Plots, each (draw, text alternative, caption)."""
        parts = (
            f"<figure>{_themed(draw, words)}<figcaption>{_safe(caption)}</figcaption></figure>"
            for draw, words, caption in pictures
        )
        return self._add('<div class="figures">' + "".join(parts) + "</div>")

    def contents(self, entries: Iterable[tuple[str, str]]) -> Page:
        """Links to parts of the page, each (anchor, text)."""
        listed = "".join(f'<li><a href="#{_safe(anchor)}">{_safe(text)}</a></li>' for anchor, text in entries)
        return self._add(f'<nav aria-label="Contents"><ol>{listed}</ol></nav>')

    def gallery(self, cards: Iterable[tuple[str, str, str, Draw, str]]) -> Page:
        """Large cards that lead to parts of the page: (anchor, figure, its words, draw, text alternative)."""
        parts = (
            f'<a href="#{_safe(anchor)}"><b>{_safe(figure)}</b>'
            f"<span>{_safe(says)}</span>{_themed(draw, words)}</a>"
            for anchor, figure, says, draw, words in cards
        )
        return self._add('<div class="gallery">' + "".join(parts) + "</div>")

    def fold(self, summary: str, inside: Page) -> Page:
        """Add the content of ``inside`` below its title, folded until the reader opens it."""
        content = "\n".join(inside._body[1:])
        return self._add(f"<details><summary>{_safe(summary)}</summary>\n{content}\n</details>")

    def picture(self, drawn: Drawn, words: str, caption: str) -> Page:
        """A picture that is drawn already; ``words`` say what it shows to readers who cannot see it."""
        sources = "".join(
            f'<source media="{media}" srcset="{_image(content)}">'
            for media, content in (
                ("(max-width: 40rem) and (prefers-color-scheme: dark)", drawn.narrow_dark),
                ("(max-width: 40rem)", drawn.narrow),
                ("(prefers-color-scheme: dark)", drawn.dark),
            )
        )
        return self._add(
            f'<figure class="paper"><picture>{sources}<img src="{_image(drawn.light)}" '
            f'alt="{_safe(words)}"></picture>'
            f"<figcaption>{_safe(caption)}</figcaption></figure>"
        )

    def html(self) -> str:
        """The page."""
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f"<title>{_safe(self._title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
            + "\n".join(self._body)
            + "\n</main>\n</body>\n</html>\n"
        )

    def save(self, path: str | Path) -> None:
        """Write the page; a crash leaves an old file whole."""
        replace_bytes(file_path("path", path), self.html().encode())


def _themed(draw: Draw, words: str) -> str:
    """A plot for light and dark."""
    light, dark = (_image(svg(draw, theme)) for theme in (LIGHT, DARK))
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{_safe(words)}"></picture>'
    )


def _image(content: bytes) -> str:
    """A PNG, WebP or SVG file as an address."""
    kind = {b"\x89PNG": "png", b"RIFF": "webp", b"<?xm": "svg+xml"}[content[:4]]
    return f"data:image/{kind};base64," + base64.b64encode(content).decode()


def _safe(text: str) -> str:
    """The text, with what HTML would read as its own made harmless."""
    return escape(written_out(text), quote=True)

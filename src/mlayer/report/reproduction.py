"""The page of the reproduction: a summary, contents, and a chapter for each figure and table of the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlayer.report.page import Drawn, Page
from mlayer.report.theme import Draw

BEYOND = "Beyond the paper's figures and tables"
SMOKE = "A smoke run only shows that the code works: its figures say nothing about the paper."


@dataclass(frozen=True)
class Card:
    """A result at the top of the page."""

    figure: str  # the number, as it is shown
    says: str  # what it is, in a sentence
    draw: Draw  # a small picture
    words: str  # what that shows


@dataclass(frozen=True)
class Grid:
    """A table of a chapter."""

    title: str  # above it
    header: Sequence[str]  # of its columns
    rows: Sequence[Sequence[str]]  # cells as text


@dataclass(frozen=True)
class Chapter:
    """One experiment."""

    record: Mapping[str, Any]  # the content of its NAME.json
    in_paper: str  # "Figure 2", or "" if the paper has no such thing
    section: str  # of the paper, or who announced it
    caption: str  # what is seen in the picture
    compared: Sequence[Sequence[str]] = ()  # rows of the comparison: what it is, paper, here, goal
    drawn: Drawn | None = None  # the picture
    grids: Sequence[Grid] = ()  # tables of the paper, rebuilt
    card: Card | None = None  # for the top of the page

    @property
    def title(self) -> str:
        """The title, the paper's own number first."""
        title = str(self.record["title"])
        return f"{self.in_paper}: {title}" if self.in_paper else title


def reproduction_page(chapters: Sequence[Chapter], smoke: bool = False) -> Page:
    """The page, chapters of the paper first. Results of smoke runs are not compared with the paper."""
    page = Page(
        "Intelligent Matrix Exponentiation, reproduced",
        "Every figure and table of the paper, next to what was measured here and the command that measures "
        "it.",
    )
    if smoke:
        page.paragraph(SMOKE)
    if not chapters:
        return page.paragraph("No results yet: mlayer reproduce all")
    cards = [(each.record["name"], each.card) for each in chapters if each.card is not None]
    if cards:
        page.gallery((name, card.figure, card.says, card.draw, card.words) for name, card in cards)
    of_paper = [chapter for chapter in chapters if chapter.in_paper]
    beyond = [chapter for chapter in chapters if not chapter.in_paper]
    page.heading("Contents")
    if of_paper:
        page.contents((chapter.record["name"], chapter.title) for chapter in of_paper)
    if beyond:
        page.heading(BEYOND, 3)
        page.contents((chapter.record["name"], chapter.title) for chapter in beyond)
    page.paragraph(
        "Paper: the paper's figure. Here: measured by the command, with the standard deviation over seeds "
        "where there are several; where no number of seeds is given, there is one. Goal: set by this "
        "project. A net that was not trained in full has no row, and a run that is not complete says so. "
        "Figure 1 of the paper is a diagram of the layer."
    )
    for chapter in of_paper:
        _chapter(page, chapter, smoke)
    if beyond:
        page.heading(BEYOND, anchor="beyond")
    for chapter in beyond:
        _chapter(page, chapter, smoke)
    return page


def _chapter(page: Page, chapter: Chapter, smoke: bool) -> None:
    record = chapter.record
    page.heading(chapter.title, 2 if chapter.in_paper else 3, anchor=record["name"])
    if chapter.section:
        page.paragraph(_place(chapter.section))
    page.code(record["command"])
    if not record.get("complete", True):
        page.paragraph("Not complete: these are the finished parts. The same command resumes the run.")
    if chapter.drawn is not None:
        page.picture(chapter.drawn, f"Picture of the experiment: {record['title']}", chapter.caption)
    for grid in chapter.grids if not smoke else ():
        page.heading(grid.title, 4)
        page.table(grid.header, grid.rows)
    if chapter.compared and not smoke:
        page.table(*_filled(["", "paper", "here", "goal here"], chapter.compared))
    page.fold("All figures of this run, and how it was run", _details(record))


def _place(section: str) -> str:
    """The part of the paper that a chapter belongs to, or goes beyond."""
    return f"B{section[1:]}." if section.startswith("beyond") else f"Paper: {section}."


def _filled(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The table without the columns that are empty in all rows."""
    keep = [k for k in range(len(header)) if any(row[k] for row in rows)]
    return [header[k] for k in keep], [[row[k] for k in keep] for row in rows]


def _details(record: Mapping[str, Any]) -> Page:
    inside = Page("details")
    rows = [[name, _number(value)] for name, value in record["headline"].items()]
    inside.table(["name", "here"], rows, numbers=True)
    quoted = list(_flat(record["paper"]))
    if quoted:
        inside.table([f"quoted from {record.get('quoted_from', 'the paper')}", ""], quoted)
    facts = [
        f"scale {record['scale']}",
        f"seed {record['seed']}",
        f"{record['seconds']:.0f} s",
        f"{record['threads']} thread{'s' if record['threads'] != 1 else ''}",
        record.get("exponential"),
        record.get("instruction_set") and f"instruction set {record['instruction_set']}",
        f"torch {record['torch']}",
        record.get("commit") and f"commit {record['commit']}",
        record["date"],
    ]
    inside.paragraph(", ".join(str(fact) for fact in facts if fact) + ".")
    parts = sorted(set(commits(record.get("results"))) - {record.get("commit")})
    if parts:
        inside.paragraph(f"Parts of it were run at other commits: {', '.join(parts)}.")
    return inside


def commits(results: Any) -> Iterator[str]:
    """Commits that parts of the results name."""
    if isinstance(results, Mapping):
        if isinstance(results.get("commit"), str):
            yield results["commit"]
        for value in results.values():
            yield from commits(value)
    elif isinstance(results, list):
        for value in results:
            yield from commits(value)


def _flat(content: Mapping[str, Any], start: str = "") -> Iterator[list[str]]:
    """Nested figures, one per line."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{start}{key}, ")
        else:
            yield [f"{start}{key}".replace("_", " "), _number(value)]


def _number(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_number(part) for part in value if part is not None)
    return f"{value:.6g}" if isinstance(value, float) else str(value)

"""The page of the reproduction: for each experiment the paper's figures, ours, and the picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlayer.report.page import Page

NAME = "report.html"
# From the figures of a run: what it is, what the paper says, what came out here, the goal.
Compare = Callable[[Mapping[str, float]], list[list[str]]]
SMOKE = "A smoke run shows that it works. Its figures are of small models: they say nothing about the paper."


def write_report(folder: Path, names: Sequence[str], compare: Compare, kind: str | None = None) -> Path:
    """Write FOLDER/report.html from the NAME.json and NAME.png that are there.

    Args:
        folder: where the results are.
        names: experiments, in the order of the page.
        compare: sets the paper's figures beside those of a run.
        kind: "smoke" for the results of smoke runs; the page is then report.smoke.html and compares nothing.
    """
    ending = f".{kind}" if kind else ""
    page = Page(
        "Intelligent Matrix Exponentiation, reproduced",
        "Each experiment of the paper: what it says, what came out here, and the command for it.",
    )
    files = {name: folder / f"{name}{ending}.json" for name in names}
    records = {
        name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.is_file()
    }
    if kind == "smoke":
        page.paragraph(SMOKE)
        compare = _nothing
    if records:
        _overview(page, records.values(), compare)
    else:
        page.paragraph("No results yet: mlayer reproduce all")
    for name, record in records.items():
        _section(page, record, folder / f"{name}{ending}.png", compare)
    path = folder / f"report{ending}.html"
    page.save(path)
    return path


def _nothing(_: Mapping[str, float]) -> list[list[str]]:
    return []


def _overview(page: Page, records: Iterable[dict[str, Any]], compare: Compare) -> None:
    rows = [[*line, record["command"]] for record in records for line in compare(record["headline"])]
    if rows:
        page.table(["", "paper", "here", "goal here", "command"], rows)


def _section(page: Page, record: dict[str, Any], picture: Path, compare: Compare) -> None:
    page.heading(record["title"])
    page.code(record["command"])
    if not record.get("complete", True):
        page.paragraph("Not complete: these are the parts that are finished. The same command goes on.")
    if picture.is_file():
        page.picture(picture.read_bytes(), f"Figure of the experiment: {record['title']}", record["title"])
    compared = compare(record["headline"])
    if compared:
        page.table(["", "paper", "here", "goal here"], compared)
    page.heading("All figures of the run", level=3)
    page.table(["name", "here"], [[k, _number(v)] for k, v in record["headline"].items()], numbers=True)
    quoted = list(_flat(record["paper"]))
    if quoted:
        whom = record.get("quoted_from", "the paper")
        page.table([f"quoted from {whom}", ""], quoted)  # sentences among them wrap
    page.paragraph(
        f"Scale {record['scale']}, seed {record['seed']}, {record['seconds']:.0f} s, "
        f"{record['threads']} threads, torch {record['torch']}, {record['date']}."
    )


def _flat(content: Mapping[str, Any], start: str = "") -> Iterator[list[str]]:
    """Nested figures, one a line."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{start}{key}, ")
        else:
            yield [f"{start}{key}".replace("_", " "), _number(value)]


def _number(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_number(part) for part in value if part is not None)
    return f"{value:.6g}" if isinstance(value, float) else str(value)

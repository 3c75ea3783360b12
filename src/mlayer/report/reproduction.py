"""The page of the reproduction: for each experiment the paper's figures, ours, and the picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlayer.report.page import Page

NAME = "report.html"


def write_report(folder: Path, names: Sequence[str], kind: str | None = None) -> Path:
    """Write FOLDER/report.html from the NAME.json and NAME.png that are there.

    Args:
        folder: where the results are.
        names: experiments, in the order of the page.
        kind: "smoke" for the results of smoke runs; the page is then report.smoke.html.
    """
    ending = f".{kind}" if kind else ""
    page = Page(
        "Intelligent Matrix Exponentiation, reproduced",
        "Each experiment of the paper: what the text says, what came out here, and the command that made it.",
    )
    shown = 0
    for name in names:
        file = folder / f"{name}{ending}.json"
        if not file.is_file():
            continue
        shown += 1
        _section(page, json.loads(file.read_text(encoding="utf-8")), folder / f"{name}{ending}.png")
    if not shown:
        page.paragraph("No results yet: mlayer reproduce all")
    path = folder / f"report{ending}.html"
    page.save(path)
    return path


def _section(page: Page, record: dict[str, Any], picture: Path) -> None:
    page.heading(record["title"])
    page.code(record["command"])
    page.table(["figure", "here"], [[k, _number(v)] for k, v in record["headline"].items()], numbers=True)
    if record["paper"]:
        page.table(
            # Sentences among them, which must be free to wrap.
            ["the paper (quoted)", ""],
            [[k, _number(v)] for k, v in record["paper"].items()],
        )
    if picture.is_file():
        page.picture(picture.read_bytes(), f"Figure of the experiment: {record['title']}", record["title"])
    page.paragraph(
        f"Scale {record['scale']}, seed {record['seed']}, {record['seconds']:.0f} s, "
        f"{record['threads']} threads, torch {record['torch']}, {record['date']}."
    )


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

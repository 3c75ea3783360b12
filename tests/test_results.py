"""Every file of results/ says where its figures come from: command, code, machine and threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
FACTS = ("command", "commit", "date", "instruction_set", "threads")
# Collected from the other files, which name their own sources.
COLLECTED = {"summary.json"}
# Written before results named the commit and the instruction set. A new run takes a file off this list:
# one that is listed although it names everything fails too.
EARLIER = {
    "determinant5.json",
    "images.json",
}


def _missing(path: Path) -> list[str]:
    content: dict[str, Any] = json.loads(path.read_text())
    facts = content.get("circumstances") or content.get("setting") or content
    return [name for name in FACTS if facts.get(name) is None]


def test_a_result_names_its_source() -> None:
    missing = {path.name: _missing(path) for path in RESULTS.glob("*.json") if path.name not in COLLECTED}
    assert {name: parts for name, parts in missing.items() if parts and name not in EARLIER} == {}
    assert [name for name in EARLIER if not missing[name]] == [], "names its source now: take it off EARLIER"


def test_the_page_of_experiments_quotes_the_results() -> None:
    """Its table of the text's recipe is written by hand."""
    from mlayer.report.numbers import formatted

    page = (RESULTS.parent / "docs" / "experiments.md").read_text()
    for start, name, prefix, paper in (
        ("3 x 3, 2^17 examples", "determinant", "determinant3", ("2e-4", "0.003")),
        ("5 x 5, 2^20 examples", "determinant5", "determinant5", ("0.0012", "0.279")),
    ):
        figures = json.loads((RESULTS / f"{name}.json").read_text())["headline"]
        ours = formatted(figures[f"{prefix}.paper_recipe_mse"], ".1e")
        net = formatted(figures[f"{prefix}.dnn_mse"], ".2e" if prefix == "determinant5" else ".1e")
        assert f"| {start} | {ours} | {paper[0]} | {net} | {paper[1]} |" in page


def test_the_list_of_earlier_results_names_files() -> None:
    assert {path.name for path in RESULTS.glob("*.json")} >= EARLIER | COLLECTED

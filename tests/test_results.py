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
    "certified.json",
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


def test_the_list_of_earlier_results_names_files() -> None:
    assert {path.name for path in RESULTS.glob("*.json")} >= EARLIER | COLLECTED

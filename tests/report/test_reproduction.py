"""The page of the reproduction sets the paper's figures beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlayer.experiments.comparison import ROWS, Row, compare
from mlayer.report.reproduction import write_report

PIXEL = bytes.fromhex("89504e470d0a1a0a")


def record(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "title": f"Title of {name}",
        "command": f"mlayer reproduce {name}",
        "scale": "default",
        "complete": True,
        "seed": 0,
        "seconds": 3.0,
        "threads": 1,
        "torch": "2",
        "date": "2000-01-01",
        "headline": {"timing.ratio": 2.5},
        "paper": {"ratio": 2.1, "rows": {"M_layer": [97.99, None, 3]}},
    } | changes


def written(folder: Path, *records: dict[str, Any], kind: str | None = None) -> str:
    ending = f".{kind}" if kind else ""
    for content in records:
        (folder / f"{content['name']}{ending}.json").write_text(json.dumps(content))
    names = ["second", "first"]
    return write_report(folder, names, compare, kind).read_text()


def test_paper_and_ours_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "first.png").write_bytes(PIXEL)
    page = written(tmp_path, record("first"), record("second", headline={"other": 1.0}, paper={}))
    row = (
        "<td>Time of an epoch, M-layer / ReLU net</td><td>2.1 (V100)</td><td>2.50</td><td>≤ 2.1: missed</td>"
    )
    assert page.count(row) == 2  # the overview and the section
    assert f"{row}<td>mlayer reproduce first</td>" in page
    assert page.index("Title of second") < page.index("Title of first")
    assert page.count("data:image/png;base64,") == 1
    # Nested figures of the paper are written out, not shown as Python.
    assert ">rows, M layer</td>" in page
    assert "97.99, 3" in page
    assert "{" not in page.split("</style>")[1]
    assert "Not complete" not in page


def test_quotations_name_their_source(tmp_path: Path) -> None:
    assert ">quoted from the paper<" in written(tmp_path, record("first"))
    assert ">quoted from others<" in written(tmp_path, record("first", quoted_from="others"))


def test_what_is_not_complete_says_so(tmp_path: Path) -> None:
    assert "Not complete: these are the parts" in written(tmp_path, record("first", complete=False))


def test_smoke_runs_have_a_page_of_their_own(tmp_path: Path) -> None:
    assert "Title of first" in written(tmp_path, record("first"), kind="smoke")
    assert not (tmp_path / "report.html").exists()


def test_smoke_figures_are_not_held_against_the_paper(tmp_path: Path) -> None:
    """They come from other, smaller models: "missed" beside them would be no news."""
    page = written(tmp_path, record("first", scale="smoke"), kind="smoke")
    assert "they say nothing about the paper" in page
    assert "missed" not in page
    assert "<td>timing.ratio</td>" in page
    assert "they say nothing about the paper" not in written(tmp_path, record("first"))


def test_a_page_without_results(tmp_path: Path) -> None:
    assert "No results yet: mlayer reproduce all" in written(tmp_path)


@pytest.mark.parametrize(
    ("figures", "here", "goal"),
    [
        ({"a": 0.5}, "0.50", "≤ 0.5: met"),
        ({"a": 0.51}, "0.51", "≤ 0.5: missed"),
        ({"a.mean": 0.25, "a.seeds": 1.0}, "0.25 (1 seed)", "≤ 0.5: met"),
        ({"a.mean": 0.25, "a.sd": 0.125, "a.seeds": 3.0}, "0.25 ± 0.12 (3 seeds)", "≤ 0.5: met"),
        ({"b": 1.0}, "", ""),
    ],
)
def test_a_row(figures: dict[str, float], here: str, goal: str) -> None:
    row = Row("it", "paper", "a", ".2f", at_most=0.5)
    assert (row.here(figures), row.goal(figures)) == (here, goal)


def test_goals_from_below() -> None:
    row = Row("it", "paper", "a", ".1%", at_least=0.9)
    assert [row.goal({"a": value}) for value in (0.9, 0.89)] == ["≥ 90%: met", "≥ 90%: missed"]
    assert Row("it", "paper", "a", ".1%").goal({"a": 0.5}) == ""


def test_names_are_of_our_experiments() -> None:
    """A misspelt name would never be measured: all the first parts are known."""
    known = {"spiral", "periodic", "temperatures", "determinant3", "determinant5", "permanent3", "images"}
    assert {row.name.split(".")[0] for row in ROWS} <= known | {
        "baselines",
        "timing",
        "robustness",
        "certified",
    }
    assert len({row.name for row in ROWS}) == len(ROWS)

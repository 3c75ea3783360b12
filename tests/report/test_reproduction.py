"""The page of the reproduction sets the paper's figures beside ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mlayer.experiments import EXPERIMENTS
from mlayer.experiments.running import page as page_of_results
from mlayer.experiments.running.registry import all_rows
from mlayer.experiments.running.rows import PaperRow
from mlayer.report import page as report_page
from mlayer.report.numbers import formatted
from mlayer.report.page import Drawn
from mlayer.report.reproduction import Card, Chapter, Grid, commits, reproduction_page

RESULTS = Path(__file__).resolve().parents[2] / "results"
PIXEL = bytes.fromhex("89504e470d0a1a0a")


def chapter(name: str, in_paper: str = "", **changes: Any) -> Chapter:
    record = {
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
        "results": {},
    } | changes
    rows = [["Time of an epoch", "2.1 (V100)", "2.50", "≤ 2.1: missed"]]
    return Chapter(record, in_paper, "section 4.1", f"Caption of {name}", rows)


def test_chapters_of_the_paper_have_its_numbers_and_come_with_contents() -> None:
    page = reproduction_page([chapter("first", "Figure 2"), chapter("second")]).html()
    assert '<a href="#first">Figure 2: Title of first</a>' in page
    assert '<h2 id="first">Figure 2: Title of first</h2>' in page
    assert '<h3 id="second">Title of second</h3>' in page
    assert page.index('<h2 id="beyond"') > page.index('<h2 id="first"')
    row = (
        '<td>Time of an epoch</td><td data-name="paper">2.1 (V100)</td><td data-name="here">2.50</td>'
        '<td data-name="goal here">≤ 2.1: missed</td>'
    )
    assert page.count(row) == 2
    # Nested figures of the paper are written out, not shown as Python.
    assert ">rows, M layer</td>" in page
    assert "97.99, 3" in page
    assert "{" not in page.split("</style>")[1]
    assert "Not complete" not in page


def test_contents_and_chapters_keep_the_paper_apart_from_what_is_beyond_it() -> None:
    page = reproduction_page([chapter("first"), chapter("second", "Table 1"), chapter("third")]).html()
    links = re.findall(r'<a href="#(\w+)">|<h3>(Beyond)', page)
    assert [a or b for a, b in links] == ["second", "Beyond", "first", "third"]
    assert re.findall(r'<h\d id="(\w+)">', page) == ["second", "beyond", "first", "third"]
    assert "Beyond" not in reproduction_page([chapter("only", "Figure 2")]).html()


def test_the_page_in_results_is_of_this_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All but its pictures, which are not drawn here."""
    monkeypatch.setattr(page_of_results, "rendered", lambda *arguments: PIXEL)
    monkeypatch.setattr(report_page, "_themed", lambda draw, words: "<picture></picture>")
    for name in EXPERIMENTS:
        if (RESULTS / f"{name}.json").is_file():
            (tmp_path / f"{name}.json").symlink_to(RESULTS / f"{name}.json")
    texts = [
        re.sub(r"<picture>.*?</picture>", "", file.read_text(), flags=re.DOTALL)
        for file in (page_of_results.write_page(tmp_path), RESULTS / "report.html")
    ]
    assert texts[0] == texts[1], "run python benchmarks/redraw.py"


def test_raw_figures_are_folded_away() -> None:
    page = reproduction_page([chapter("first", "Figure 2")]).html()
    folded = page[page.index("<details>") : page.index("</details>")]
    assert "<td>timing.ratio</td>" in folded
    assert "timing.ratio" not in page.replace(folded, "")


def test_pictures_come_in_four_versions() -> None:
    files = [PIXEL + bytes([k]) for k in range(4)]
    one = chapter("first", "Figure 2")
    page = reproduction_page([Chapter(one.record, "Figure 2", "", "Caption", drawn=Drawn(*files))]).html()
    assert page.count("data:image/png;base64,") == 4
    assert page.count("(max-width: 40rem) and (prefers-color-scheme: dark)") == 1
    assert "<figcaption>Caption</figcaption>" in page


def test_tables_of_the_paper_and_cards() -> None:
    one = chapter("first", "Table 1")
    grid = Grid("MNIST", ["net", "paper"], [["M-layer", "97.99"]])
    drawn: list[bool] = []
    card = Card("99 %", "of it", lambda figure, theme: drawn.append(True), "a picture")
    page = reproduction_page([Chapter(one.record, "Table 1", "", "", grids=[grid], card=card)]).html()
    assert "<td>M-layer</td><td>97.99</td>" in page
    assert '<a href="#first"><b>99 %</b><span>of it</span>' in page
    assert len(drawn) == 2  # light and dark


def test_columns_that_are_empty_in_all_rows_are_left_out() -> None:
    one = chapter("first")
    rows = [["Accuracy", "", "0.9", ""], ["Loss", "", "0.1", ""]]
    page = reproduction_page([Chapter(one.record, "", "", "", rows)]).html()
    assert "<tr><td>Accuracy</td><td>0.9</td></tr>" in page
    assert "goal here" not in page


@pytest.mark.parametrize(
    ("section", "said"),
    [("section 4.1", "Paper: section 4.1."), ("beyond Table 1: more", "Beyond Table 1: more.")],
)
def test_a_chapter_says_where_it_belongs(section: str, said: str) -> None:
    one = chapter("first")
    assert f"<p>{said}</p>" in reproduction_page([Chapter(one.record, "", section, "")]).html()


def test_quotations_name_their_source() -> None:
    assert ">quoted from the paper<" in reproduction_page([chapter("first")]).html()
    assert ">quoted from others<" in reproduction_page([chapter("first", quoted_from="others")]).html()


def test_what_is_not_complete_says_so() -> None:
    assert (
        "Not complete: these are the finished parts"
        in reproduction_page([chapter("first", complete=False)]).html()
    )


def test_results_put_together_from_parts_say_so() -> None:
    results = {"rows": [{"commit": "aaa"}, {"commit": "bbb"}], "other": {"commit": "aaa"}}
    assert sorted(commits(results)) == ["aaa", "aaa", "bbb"]
    page = reproduction_page([chapter("first", commit="aaa", results=results)]).html()
    assert "commit aaa" in page
    assert "Parts of it were run at other commits: bbb." in page
    assert "Put together" not in reproduction_page([chapter("first", commit="aaa")]).html()


def test_smoke_figures_are_not_held_against_the_paper() -> None:
    """They come from other, smaller models: "missed" beside them would be no news."""
    page = reproduction_page([chapter("first", scale="smoke")], smoke=True).html()
    assert "say nothing about the paper" in page
    assert "missed</td>" not in page
    assert "<td>timing.ratio</td>" in page
    assert "say nothing about the paper" not in reproduction_page([chapter("first")]).html()


def test_a_page_without_results() -> None:
    assert "No results yet: mlayer reproduce all" in reproduction_page([]).html()


@pytest.mark.parametrize(
    ("figures", "here", "goal"),
    [
        ({"a": 0.5}, "0.50", "≤ 0.5: met"),
        ({"a": 0.51}, "0.51", "≤ 0.5: missed"),
        ({"a.mean": 0.25, "a.seeds": 1.0}, "0.25 (1 seed)", "≤ 0.5: met"),
        ({"a.mean": 0.25, "a.sd": 0.125, "a.seeds": 3.0}, "0.25 ± 0.12 (3 seeds)", "≤ 0.5: met"),
        ({"a": 0.25, "a.seeds": 3.0, "e": 1000.0}, "0.25 (3 seeds, 1,000 epochs)", "≤ 0.5: met"),
        ({"a": 1234.5}, "1,234.50", "≤ 0.5: missed"),
        ({"b": 1.0}, "", ""),
    ],
)
def test_a_row(figures: dict[str, float], here: str, goal: str) -> None:
    row = PaperRow("it", "paper", "a", ".2f", at_most=0.5, epochs="e")
    assert (row.here(figures), row.goal(figures)) == (here, goal)


@pytest.mark.parametrize(
    ("value", "said"), [(1.0, "100.0%"), (0.9995, "99.95%"), (0.99995, "99.995%"), (0.9994, "99.9%")]
)
def test_what_is_not_all_is_not_written_as_all(value: float, said: str) -> None:
    assert formatted(value, ".1%") == said


def test_goals_from_below() -> None:
    row = PaperRow("it", "paper", "a", ".1%", at_least=0.9)
    assert [row.goal({"a": value}) for value in (0.9, 0.89)] == ["≥ 90%: met", "≥ 90%: missed"]
    assert PaperRow("it", "paper", "a", ".1%").goal({"a": 0.5}) == ""


def test_names_are_of_our_experiments() -> None:
    """A misspelled name would never be measured: all the first parts are known."""
    assert {row.name.split(".")[0] for row in all_rows()} <= {*EXPERIMENTS, "determinant3", "permanent3"}
    assert len({row.name for row in all_rows()}) == len(all_rows())

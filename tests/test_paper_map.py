"""docs/paper-map.md names what exists (files, tests, commands, names) and every number of the paper."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from mlayer.experiments import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "paper-map.md"
NAMED = re.findall(r"`([^`]+)`", PAGE.read_text())
FILES = sorted({name for name in NAMED if name.endswith(".py")})
TESTS = sorted({name for name in NAMED if "::" in name})
COMMANDS = sorted({name for name in NAMED if name.startswith("mlayer ")})
PUBLIC = sorted({name for name in NAMED if name.startswith("mlayer.")})
# What the paper numbers.
NUMBERED = [
    *(f"Figure {k}" for k in range(1, 7)),
    *(f"Table {k}" for k in range(1, 3)),
    *(f"Equation {k}" for k in range(1, 5)),
    "Theorem 1",
    "Corollary",
]


@pytest.mark.parametrize("number", NUMBERED)
def test_the_page_has_every_number_of_the_paper(number: str) -> None:
    assert re.search(rf"^\| \[?{number}\b", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize("number", NUMBERED[1:8])
def test_figures_and_tables_lead_to_what_was_measured(number: str) -> None:
    """Figure 1 is a diagram."""
    assert re.search(rf"^\| \[{number}\]\(results\.md#", PAGE.read_text(), re.MULTILINE)
    assert re.search(rf"^## {number}: ", (ROOT / "docs/results.md").read_text(), re.MULTILINE)


# Subsections of "Architecture", section 3, and of "Results", section 4.
SUBSECTIONS = {*(f"3.{k}" for k in range(1, 8)), *(f"4.{k}" for k in range(1, 5))}


def sections_cited(text: str) -> set[str]:
    return set(re.findall(r"\b[Ss]ections?\s+([1-9]\.\d+)", text))


def test_sections_that_are_cited_exist() -> None:
    assert sections_cited("(section 3.8): closed form") == {"3.8"}
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    cited = {file.name: sections_cited(file.read_text()) - SUBSECTIONS for file in files}
    assert {name: wrong for name, wrong in cited.items() if wrong} == {}


@pytest.mark.parametrize("file", FILES)
def test_files_exist(file: str) -> None:
    assert (ROOT / "src/mlayer" / file).is_file()


@pytest.mark.parametrize("named", TESTS)
def test_tests_exist(named: str) -> None:
    file, _, function = named.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command: str) -> None:
    _, reproduce, name, *options = command.split()
    assert reproduce == "reproduce"
    assert name in EXPERIMENTS
    assert set(options) <= {"--full"}


def test_every_experiment_of_the_paper_is_named() -> None:
    named = {command.split()[2] for command in COMMANDS}
    for name in EXPERIMENTS:
        place = importlib.import_module(f"mlayer.experiments.{name}").IN_PAPER
        assert name in named or place.startswith("; beyond"), name


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_exist(name: str) -> None:
    head, *rest = name.split(".")
    value = importlib.import_module(head)
    for part in rest:
        value = getattr(value, part)
    assert callable(value)

"""The demands of CONTRIBUTING's recipes on a change, which a reviewer would otherwise have to remember."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest

import mlayer
from mlayer.cli.group import COMMANDS

SOURCE = Path(mlayer.__file__).parent
PAGES = "\n".join(page.read_text() for page in (SOURCE.parents[1] / "docs").rglob("*.md"))


def undocumented(spellings: list[str], text: str) -> bool:
    return not any(re.search(rf"(?<![\w-]){spelling}(?![\w-])", text) for spelling in spellings)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_in_the_documentation(name: str) -> None:
    assert undocumented(["--text"], "`--text-size` and `--context`")
    command: click.Command = import_module(f"mlayer.cli.commands.{COMMANDS[name][0]}").command
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert not [option.opts[-1] for option in options if undocumented(option.opts, PAGES)]


def fields_left_out(code: str) -> dict[str, list[str]]:
    """Public fields of dataclasses that have a list of attributes in their docstring, but not on it."""
    found = {}
    for node in ast.walk(ast.parse(code)):
        text = (ast.get_docstring(node) or "") if isinstance(node, ast.ClassDef) else ""
        if not isinstance(node, ast.ClassDef) or "Attributes:" not in text:
            continue
        if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            continue
        names = [
            line.target.id
            for line in node.body
            if isinstance(line, ast.AnnAssign)
            and isinstance(line.target, ast.Name)
            and "ClassVar" not in ast.unparse(line.annotation)
            and "init=False" not in ast.unparse(line)
            and not line.target.id.startswith("_")
        ]
        missing = [name for name in names if not re.search(rf"^\s+{name}:", text, re.M)]
        if missing:
            found[node.name] = missing
    return found


def test_lists_of_attributes_are_complete() -> None:
    """A new setting, option of a fit or column of a result has its line in the docstring."""
    text = '"""A.\n\n    Attributes:\n        x: one.\n    """'
    sample = f"@dataclass\nclass A:\n    {text}\n    x: int\n    y: int\n"
    assert fields_left_out(sample) == {"A": ["y"]}
    found = {
        str(file.relative_to(SOURCE)): fields_left_out(file.read_text()) for file in SOURCE.rglob("*.py")
    }
    assert {file: names for file, names in found.items() if names} == {}


ROOT = SOURCE.parents[1]


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/decisions/*.md")), ids=lambda page: page.stem)
def test_files_that_a_decision_names_exist(page: Path) -> None:
    """A decision that names a file that was moved is out of date."""
    folders = ("src", "docs", "tests", "benchmarks", "tools", "examples", "results")
    files = [f"/{file.relative_to(ROOT)}" for name in folders for file in (ROOT / name).rglob("*.*")]
    files += [f"/{file.name}" for file in ROOT.glob("*.*")]
    named = re.findall(r"`([\w./-]+\.(?:py|h|cpp|json|yml))`", page.read_text())
    assert not [name for name in named if not any(file.endswith(f"/{name}") for file in files)]


def fields_of(code: str, name: str) -> list[str]:
    """The fields of a class, for example the options of a fit."""
    found = next(n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.ClassDef) and n.name == name)
    lines = [line.target for line in found.body if isinstance(line, ast.AnnAssign)]
    return [target.id for target in lines if isinstance(target, ast.Name)]


@cache
def read_in(code: str) -> frozenset[str]:
    """Attributes that a file reads, as in ``plan.drop``."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)]
    return frozenset(node.attr for node in nodes if isinstance(node.ctx, ast.Load))


def read_outside(files: dict[str, str], home: str) -> set[str]:
    """Attributes that files other than ``home`` read."""
    return {name for file, code in files.items() if file != home for name in read_in(code)}


@pytest.mark.parametrize(
    ("home", "name"),
    [
        ("tables/fit/plan.py", "Plan"),
        ("tables/fit/plan.py", "Training"),
        ("training/settings.py", "Settings"),
        ("training/settings.py", "Plateau"),
    ],
)
def test_every_option_is_used(home: str, name: str) -> None:
    """An option that is checked and passed on, and then read by nobody, does nothing."""
    sample = {"plan.py": "class Plan:\n    drop: str\n    def f(self): self.drop", "fit.py": "plan.rows"}
    assert fields_of(sample["plan.py"], "Plan") == ["drop"]
    assert read_outside(sample, "plan.py") == {"rows"}
    files = {str(file.relative_to(SOURCE)): file.read_text() for file in SOURCE.rglob("*.py")}
    assert not set(fields_of(files[home], name)) - read_outside(files, home)


@pytest.mark.parametrize("name", ["Settings", "Plateau"])
def test_every_setting_of_a_training_is_in_the_documentation(name: str) -> None:
    page = (ROOT / "docs/training.md").read_text()
    code = (SOURCE / "training/settings.py").read_text()
    assert not [field for field in fields_of(code, name) if undocumented([field], page)]


def test_every_plot_of_a_fit_is_drawn_in_a_test() -> None:
    """Its numbers, or when it is shown: by its name in the tests of reports."""
    code = (SOURCE / "report/plots.py").read_text()
    functions = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    plots = [node.name for node in functions if "_plot" in map(ast.unparse, node.decorator_list)]
    assert len(plots) > 5
    tests = "\n".join(file.read_text() for file in (ROOT / "tests/report").glob("*.py"))
    assert not [name for name in plots if f"plots.{name}" not in tests]

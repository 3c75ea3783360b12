"""The rules of the rooms: read from the import statements, not from what happens to be loaded."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mlayer

SOURCE = Path(mlayer.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# Rule 1: errors <- {checks, disk} <- exponential <- nn <- {certificates, symbolic, training, files}
# <- estimators <- {experiments, report, tables, speed} <- cli. A room may import any room of a lower floor.
FLOORS = (
    {"errors", "version"},
    {"checks", "disk"},
    {"exponential"},
    {"nn"},
    {"certificates", "symbolic", "training", "files"},
    {"estimators"},
    {"experiments", "report", "tables", "speed"},
    {"cli"},
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# Outside the order: data sets know the errors, how to check and how to write, and nothing else.
ONLY_ERRORS = {"datasets"}
# Rule 2: these do not know each other. (Certified training is an experiment that joins two.)
STRANGERS = {"certificates", "symbolic", "training"}
# Rule 8.
MOST_LINES = 400
# The front door and `python -m mlayer` stand outside the rooms.
DOORS = {"__init__", "__main__"}


def room_of(file: Path) -> str:
    relative = file.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def imported_rooms(code: str, file: Path) -> set[str]:
    """Rooms named in import statements anywhere in the file, also inside functions."""
    package = ("mlayer", *file.relative_to(SOURCE).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(code)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "mlayer" and len(parts) > 1:
                found.add(parts[1])
    return found & (set(FLOOR) | ONLY_ERRORS)


def violations(code: str, file: Path) -> list[str]:
    room = room_of(file)
    problems = []
    for other in sorted(imported_rooms(code, file) - {room}):
        if room in ONLY_ERRORS:
            allowed = other in FLOORS[0] | FLOORS[1]
        elif other in ONLY_ERRORS:
            allowed = FLOOR.get(room, 99) > FLOOR["nn"]
        else:
            allowed = FLOOR[other] < FLOOR.get(room, 99)
        if {room, other} <= STRANGERS:
            allowed = False
        if not allowed:
            problems.append(f"{room} imports {other}")
    return problems


def test_there_is_something_to_read() -> None:
    assert SOURCE / "exponential" / "front.py" in FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_every_file_is_in_a_known_room(file: Path) -> None:
    assert room_of(file) in set(FLOOR) | ONLY_ERRORS | DOORS


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_point_one_way(file: Path) -> None:
    if room_of(file) not in DOORS:
        assert violations(file.read_text(), file) == []


@pytest.mark.parametrize(
    ("room", "code", "problems"),
    [
        ("exponential", "import mlayer.nn", ["exponential imports nn"]),
        ("exponential", "from mlayer import nn", ["exponential imports nn"]),
        ("exponential", "from ..nn import layer", ["exponential imports nn"]),
        ("exponential", "def f():\n    from mlayer.cli import main", ["exponential imports cli"]),
        ("nn", "from mlayer.exponential import expm\nfrom mlayer import errors", []),
        ("training", "from mlayer.certificates.bounds import x", ["training imports certificates"]),
        ("symbolic", "from mlayer.training import fit", ["symbolic imports training"]),
        ("datasets", "from mlayer.nn import MLayer\nimport mlayer.errors", ["datasets imports nn"]),
        ("report", "import mlayer.experiments", ["report imports experiments"]),
        ("experiments", "from mlayer import training, certificates, datasets", []),
    ],
)
def test_the_reader_of_imports_itself(room: str, code: str, problems: list[str]) -> None:
    assert violations(code, SOURCE / room / "file.py") == problems


def test_no_room_shares_its_name_with_a_public_name() -> None:
    """Rule 7."""
    rooms = {room_of(file) for file in FILES} - DOORS
    public = set(mlayer.__all__) | {"expm", "certify", "attack", "save", "load"}
    assert not rooms & public


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_files_are_short(file: Path) -> None:
    """Rule 8: past about 400 lines a file is split, or its docstring says why not."""
    text = file.read_text()
    head = ast.get_docstring(ast.parse(text)) or ""
    assert len(text.splitlines()) <= MOST_LINES or "one file because" in head


def test_kernel_sources_are_short() -> None:
    for file in (SOURCE / "exponential" / "kernel").iterdir():
        assert len(file.read_text().splitlines()) <= MOST_LINES, file.name


def test_no_utils() -> None:
    """Rule 8."""
    assert not [file for file in FILES if file.stem in ("utils", "util", "helpers", "misc", "common")]


def test_front_door_lists_every_public_name() -> None:
    """Nothing computed in `__init__`: imports, `__all__` and, for lazy names, functions."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    for node in tree.body:
        assert isinstance(
            node,
            ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign | ast.FunctionDef | ast.Expr | ast.If,
        ), ast.unparse(node)
    for name in mlayer.__all__:
        assert getattr(mlayer, name) is not None
    assert sorted(mlayer.__all__) == sorted(set(mlayer.__all__))

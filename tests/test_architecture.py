"""The rules of the rooms: read from the import statements, not from what happens to be loaded."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path

import pytest

import mlayer
import structure_cases
from mlayer import datasets, nn
from mlayer.certificates.api.certifier import Certifier
from mlayer.certificates.bounds import methods
from mlayer.cli.commands import fit, reproduce
from mlayer.cli.group import COMMANDS
from mlayer.datasets import load_by_name
from mlayer.estimators import selection
from mlayer.experiments import EXPERIMENTS
from mlayer.exponential import paths
from mlayer.nn.structures import STRUCTURES
from mlayer.tables.columns import KINDS
from mlayer.tables.fit.plan import EFFORTS, SPLITS, Plan, Training
from mlayer.tables.target import AUTO, TASKS

SOURCE = Path(mlayer.__file__).parent
FILES = {file: file.read_text(encoding="utf-8") for file in sorted(SOURCE.rglob("*.py"))}

# Rule 1: errors <- memory <- {checks, disk, numerics} <- exponential <- nn
# <- {certificates, symbolic, training, files} <- estimators <- tables <- report <- {experiments, speed}
# <- cli. A room may import any of a lower floor, and no other of its own floor: certified training, which
# joins two, is an experiment.
FLOORS = (
    {"errors", "version"},
    {"memory"},
    {"checks", "disk", "numerics", "tensorfile"},
    {"arrayfile"},
    {"exponential"},
    {"nn"},
    {"certificates", "symbolic", "training", "files"},
    {"estimators"},
    {"tables"},
    {"report"},
    {"experiments", "speed"},
    {"cli"},
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# Outside the order: data sets know the errors, how to check and how to write, and nothing else.
ONLY_ERRORS = {"datasets"}
BASICS = {"errors", "version", "memory", "checks", "disk"}
# Inside a room with subfolders imports point one way too; files beside the subfolders may import all of them.
INNER_FLOORS = {
    "symbolic": ("parse", "compile", "read"),
    "tables": ("reader", "columns", "fit", "certify", "export"),
    "certificates": (
        "checker",
        "derivatives",
        "problem",
        "bounds",
        "solve",
        "proofs",
        "boxes",
        "networks",
        "api",
    ),
}
# Rule 8.
MOST_LINES = 400
# The front door and `python -m mlayer` stand outside the rooms.
DOORS = {"__init__", "__main__"}


def room_of(file: Path) -> str:
    relative = file.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def imported_modules(code: str, file: Path) -> set[str]:
    """Full names in import statements anywhere in the file, also inside functions, and in import_module."""
    package = ("mlayer", *file.relative_to(SOURCE).parts[:-1])
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found.add(ast.unparse(node.args[0]).lstrip("f").strip("'\""))
    return found


def imported_rooms(code: str, file: Path) -> set[str]:
    names = [name.split(".") for name in imported_modules(code, file)]
    rooms = {parts[1] for parts in names if parts[0] == "mlayer" and len(parts) > 1}
    return rooms & (set(FLOOR) | ONLY_ERRORS)


def violations(code: str, file: Path) -> list[str]:
    room = room_of(file)
    problems = []
    for other in sorted(imported_rooms(code, file) - {room}):
        if room in ONLY_ERRORS:
            allowed = other in BASICS
        elif other in ONLY_ERRORS:
            allowed = FLOOR.get(room, 99) > FLOOR["nn"]
        else:
            allowed = FLOOR[other] < FLOOR.get(room, 99)
        if not allowed:
            problems.append(f"{room} imports {other}")
    return problems


def inner_violations(code: str, file: Path) -> list[str]:
    """Imports from a subfolder of the same room that stands on a higher floor."""
    room, *folders = file.relative_to(SOURCE).parts[:-1]
    floors = INNER_FLOORS.get(room, ())
    if not folders or folders[0] not in floors:
        return []
    higher = floors[floors.index(folders[0]) + 1 :]
    names = imported_modules(code, file)
    return [
        f"{folders[0]} imports {other}"
        for other in higher
        if any(f"{name}.".startswith(f"mlayer.{room}.{other}.") for name in names)
    ]


def test_imports_inside_a_room_point_one_way() -> None:
    found = {file: inner_violations(code, file) for file, code in FILES.items() if file.parent != SOURCE}
    assert {file: problems for file, problems in found.items() if problems} == {}


def test_the_reader_of_inner_imports_itself() -> None:
    for wrong in (
        "from mlayer.symbolic.read.formula import Formula",
        "from mlayer.symbolic.read import formula",
        "from mlayer.symbolic import read",
        "import mlayer.symbolic.read.formula",
        "from ..read import formula",
        "import_module('mlayer.symbolic.read.formula')",
    ):
        assert inner_violations(wrong, SOURCE / "symbolic/compile/board.py") == ["compile imports read"]
        assert inner_violations(wrong, SOURCE / "symbolic/read/exact.py") == []
    for room, floors in INNER_FLOORS.items():
        assert {
            folder.name for folder in (SOURCE / room).iterdir() if (folder / "__init__.py").exists()
        } == set(floors)


def test_there_is_something_to_read() -> None:
    assert SOURCE / "exponential" / "expm_function.py" in FILES


def test_every_file_is_in_a_known_room() -> None:
    assert {room_of(file) for file in FILES} == set(FLOOR) | ONLY_ERRORS | DOORS


def test_imports_point_one_way() -> None:
    found = {file: violations(code, file) for file, code in FILES.items() if room_of(file) not in DOORS}
    assert {file: problems for file, problems in found.items() if problems} == {}


@pytest.mark.parametrize(
    ("room", "code", "problems"),
    [
        ("exponential", "import mlayer.nn", ["exponential imports nn"]),
        ("exponential", "from mlayer import nn", ["exponential imports nn"]),
        ("exponential", "from ..nn import layer", ["exponential imports nn"]),
        ("exponential", "def f():\n    from mlayer.cli import main", ["exponential imports cli"]),
        ("exponential", "importlib.import_module(f'mlayer.nn.{name}')", ["exponential imports nn"]),
        ("nn", "from mlayer.exponential import expm\nfrom mlayer import errors", []),
        ("training", "from mlayer.certificates.bounds import x", ["training imports certificates"]),
        ("symbolic", "from mlayer.training import fit", ["symbolic imports training"]),
        ("files", "from mlayer.training import fit", ["files imports training"]),
        ("datasets", "from mlayer.nn import MLayer\nimport mlayer.errors", ["datasets imports nn"]),
        ("datasets", "from mlayer.numerics.arrays import Array", ["datasets imports numerics"]),
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


def test_files_are_short() -> None:
    """Rule 8: past about 400 lines a file is split, or its docstring says why not."""
    long = {file: code for file, code in FILES.items() if len(code.splitlines()) > MOST_LINES}
    heads = {file: ast.get_docstring(ast.parse(code)) or "" for file, code in long.items()}
    assert [file for file, head in heads.items() if "one file because" not in head] == []


def test_tests_are_short() -> None:
    tests = Path(__file__).parent
    long = {str(file): len(file.read_text().splitlines()) for file in tests.rglob("*.py")}
    assert {file: lines for file, lines in long.items() if lines > MOST_LINES + 20} == {}


def test_no_two_tests_share_a_file_name() -> None:
    """The type checker reads them as modules of one folder and refuses two of one name."""
    names = [file.name for file in Path(__file__).parent.rglob("*.py")]
    assert sorted(names) == sorted(set(names))


def test_kernel_sources_are_short() -> None:
    for file in (SOURCE / "exponential" / "kernel").rglob("*.*"):
        assert len(file.read_text().splitlines()) <= MOST_LINES, file.name


# Names that say nothing about what is inside.
EMPTY_NAMES = {"utils", "util", "helpers", "misc", "common", "touch", "spare", "forms", "needs", "places"}
EMPTY_NAMES |= {"by_name", "sets", "front", "written", "careful", "twice"}


def test_file_names_say_what_is_inside() -> None:
    """Rule 8, for the kernel's sources too."""
    files = [*FILES, *(SOURCE / "exponential" / "kernel").rglob("*.*")]
    assert [str(file.relative_to(SOURCE)) for file in files if file.stem in EMPTY_NAMES] == []


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


# A name may stand for two classes only where a protocol demands it.
SHARED_CLASS_NAMES = {
    "Config": "each experiment module has its own: experiments/running/protocol.py",
}


def test_no_two_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(str(file.relative_to(SOURCE)))
    twice = {name: files for name, files in homes.items() if len(files) > 1}
    assert not {name: files for name, files in twice.items() if name not in SHARED_CLASS_NAMES}
    assert not set(SHARED_CLASS_NAMES) - set(twice), "no longer shared: take it off the list"


def test_array_types_are_named_once() -> None:
    aliases = [
        str(file.relative_to(SOURCE))
        for file in FILES
        for line in file.read_text().splitlines()
        if line.startswith(("Array = ", "Array: TypeAlias", "AnyArray = "))
    ]
    assert set(aliases) == {"numerics/arrays.py"}


ROOT = SOURCE.parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def test_contributing_lists_the_rooms_from_low_to_high() -> None:
    section = CONTRIBUTING.split("## Rooms")[1].split("## Recipes")[0]
    table = "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("|"))
    listed = re.findall(r"`(\w+)(?:/|\.py)`", table)
    rooms = [name for name in listed if name in set(FLOOR) | ONLY_ERRORS]
    assert set(rooms) == set(FLOOR) | ONLY_ERRORS
    floors = [FLOOR[name] for name in rooms if name in FLOOR]
    assert floors == sorted(floors)


def test_files_that_contributing_names_exist() -> None:
    """A recipe that names a file that was moved sends its reader astray. NAME stands for a new one."""
    named = [path for path in re.findall(r"`([\w./]+/[\w./]*)`", CONTRIBUTING) if "NAME" not in path]
    assert len(named) > 40
    inside = {room: SOURCE / room for room in INNER_FLOORS}
    for path in named:
        places = [ROOT / path, SOURCE / path, *(folder / path for folder in inside.values())]
        places += [SOURCE / "exponential" / path, SOURCE / "experiments" / path]
        assert any(place.exists() for place in places), path


def kinds_asked_for(code: str, kinds: Mapping[str, str]) -> list[str]:
    """Column kinds in ``isinstance``, with ``type(...)``, in a pattern, or by name: ``.kind == "date"``."""
    found = []
    for node in ast.walk(ast.parse(code)):
        asked: list[ast.AST] = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"isinstance", "issubclass"}:
            asked = [node.args[1]]
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(getattr(getattr(side, "func", None), "id", "") == "type" for side in sides):
                asked = [*sides]
            if any(getattr(side, "attr", "") == "kind" for side in sides):
                texts = [getattr(part, "value", None) for side in sides for part in ast.walk(side)]
                found += [kinds[text] for text in texts if isinstance(text, str) and text in kinds]
        names = [getattr(name, "id", getattr(name, "attr", "")) for part in asked for name in ast.walk(part)]
        found += [name for name in names if name in kinds.values()]
    return found


def test_nobody_asks_a_column_for_its_kind() -> None:
    """A column kind is one class: what differs between kinds is a method, so that a new one is one file."""
    kinds = {kind.kind: kind.__name__ for kind in KINDS}
    assert kinds_asked_for("isinstance(column, columns.Date | Number)", kinds) == ["Date", "Number"]
    assert kinds_asked_for("type(column) is Date", kinds) == ["Date"]
    assert kinds_asked_for("column.kind in ('date', 'number')", kinds) == ["Date", "Number"]
    assert kinds_asked_for("match column:\n    case Date():\n        pass", kinds) == ["Date"]
    above = [file for file in FILES if FLOOR.get(room_of(file), -1) >= FLOOR["tables"]]
    asked = {str(file.relative_to(SOURCE)): kinds_asked_for(file.read_text(), kinds) for file in above}
    assert {file: names for file, names in asked.items() if names} == {}


def names_gone(item: str) -> list[str]:
    """Names of code in an item of a recipe that none of the files and folders it names has any more."""
    paths = [top / path for path in re.findall(r"`([\w/.]+[/.]\w*)`", item) for top in (SOURCE, ROOT)]
    files = [file for path in paths for file in (path.rglob("*.*") if path.is_dir() else [path])]
    readable = [file for file in files if file.suffix in {".py", ".h", ".cpp", ".md", ".toml"}]
    words = {word for file in readable if file.exists() for word in re.findall(r"\w+", file.read_text())}
    return [
        name for name in re.findall(r"`([A-Za-z_]\w+)(?:\(\))?`", item) if name not in words | {*COMMANDS}
    ]


def test_names_that_contributing_mentions_exist() -> None:
    """A recipe says where a table, a function or a field is; it is there."""
    assert names_gone("`STRUCTURES` and `moved` in `nn/structures/named.py`") == ["moved"]
    items = re.split(r"\n(?=[-|#])", CONTRIBUTING.split("## Recipes")[1])  # of tables, and of lists
    assert {item: names for item in items if (names := names_gone(item))} == {}


def spelled(text: str, names: Iterable[str]) -> list[str]:
    """The names that the text leaves out."""
    return [name for name in names if not re.search(rf"\b{name}\b", text)]


def test_every_structure_is_tested_and_documented() -> None:
    """Its recipe says: a row of the tests' table, and the documentation."""
    assert spelled("Full, Skew", ["Full", "Nilpotent"]) == ["Nilpotent"]
    assert list(structure_cases.CASES) == list(STRUCTURES)
    for name, kind in STRUCTURES.items():
        assert kind.__name__ in nn.__all__
        texts = {file: (ROOT / file).read_text() for file in ("docs/layer.md", "src/mlayer/nn/layer.py")}
        for place, text in texts.items():
            assert kind.__name__ in text or f'"{name}"' in text, f"{name} is missing in {place}"


def test_lists_that_repeat_a_table_agree_with_it() -> None:
    """Help texts load nothing heavy and docstrings cannot compute: they repeat names, and here they agree."""
    help_text = inspect.getdoc(reproduce.command.callback) or ""
    listed = re.search(r"Names: ([\w,;\s]+); all\.", help_text)
    assert listed is not None
    assert re.findall(r"\w+", listed[1]) == list(EXPERIMENTS)
    options = {option.name: option.type for option in fit.command.params}
    for option, known in (("task", (AUTO, *TASKS)), ("split", SPLITS), ("effort", EFFORTS)):
        assert tuple(getattr(options[option], "choices", ())) == tuple(known), option
    assert tuple(selection.EFFORTS) == EFFORTS
    assert not spelled(Certifier.__call__.__doc__ or "", methods.names())
    assert not spelled((ROOT / "docs/certificates.md").read_text(), methods.names())
    assert not spelled(mlayer.expm_path.__doc__ or "", paths._CHOICES)
    assert not spelled(datasets.images.__doc__ or "", datasets.IMAGE_SETS)
    assert not spelled(datasets.fetch_sets.__doc__ or "", load_by_name.FILES)
    assert not spelled((ROOT / "docs/datasets.md").read_text(), (*datasets.IMAGE_SETS, *load_by_name.FILES))


def test_an_option_of_fit_reaches_the_plan() -> None:
    """Every field of the plan is an option that the command does not use itself: it passes all others on."""
    options = {str(option.name) for option in fit.command.params}
    choices = {field.name for kind in (Plan, Training) for field in fields(kind)} - {"training"}
    assert choices <= options
    assert fit.command.callback is not None
    assert choices & set(inspect.signature(fit.command.callback).parameters) == {"time_limit"}

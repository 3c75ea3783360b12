"""make types needs nothing that make does not install: each import has its package there, or is excused."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Where the name to import is not the name to install.
PACKAGES = {"flint": "python-flint", "sklearn": "scikit-learn", "yaml": "pyyaml"}


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def imports(source: str) -> set[str]:
    """Modules of other packages, as written; relative imports are ours."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module)
    return found


@cache
def imported_by_what_is_checked() -> dict[str, list[str]]:
    """Module -> files, for all that mypy reads, without Python's own and ours."""
    files = [file for part in pyproject()["tool"]["mypy"]["files"] for file in (ROOT / part).rglob("*.py")]
    ours = {"mlayer", *(file.stem for file in files)}
    found: dict[str, list[str]] = {}
    for file in sorted(files):
        for module in imports(file.read_text(encoding="utf-8")):
            top = module.partition(".")[0]
            if top not in ours and top not in sys.stdlib_module_names:
                found.setdefault(module, []).append(str(file.relative_to(ROOT)))
    return found


def installed_extras() -> list[str]:
    """The extras that `make types` installs."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rule = re.search(r"^\$\(VENV\)/\.ready:.*\n\t@?\$\(INSTALL\) (\S+)", makefile, re.MULTILINE)
    assert rule is not None
    return rule.group(1).split(",")


def packages(extras: list[str]) -> set[str]:
    """The packages that pyproject.toml names for these extras, by name alone."""
    project = pyproject()["project"]
    lines, left = list(project["dependencies"]), list(extras)
    while left:
        for line in project["optional-dependencies"][left.pop()]:
            inner = re.fullmatch(r"mlayer\[(.*)\]", line)
            if inner:
                left += inner.group(1).split(",")
            else:
                lines.append(line)
    return {re.split(r"[<>=!~;\[ ]", line)[0].lower() for line in lines}


def excused() -> list[str]:
    """Patterns of modules that mypy may miss."""
    overrides = pyproject()["tool"]["mypy"]["overrides"]
    return [name for entry in overrides if entry.get("ignore_missing_imports") for name in entry["module"]]


def unexplained(modules: dict[str, list[str]], there: set[str], patterns: list[str]) -> dict[str, list[str]]:
    """Imports that mypy could not follow in an environment with these packages."""
    return {
        module: files
        for module, files in modules.items()
        if PACKAGES.get(top := module.partition(".")[0], top).lower() not in there
        and not any(fnmatch(module, pattern) or f"{module}.*" == pattern for pattern in patterns)
    }


def test_every_import_is_installed_or_excused() -> None:
    missing = unexplained(imported_by_what_is_checked(), packages(installed_extras()), excused())
    assert not missing, f"not among {installed_extras()}; name them in mypy's overrides: {missing}"


def test_the_reader_of_imports_reads() -> None:
    found = imported_by_what_is_checked()
    assert {"torch", "pytest", "prophet", "jax"} <= {module.partition(".")[0] for module in found}
    assert imports("import a.b, c\ndef f():\n    from d.e import g\n    from .h import i\n") == {
        "a.b",
        "c",
        "d.e",
    }


@pytest.mark.parametrize("name", ["prophet", "geotorch", "gplearn", "triton", "latex2mathml"])
def test_what_only_another_extra_brings_must_be_excused(name: str) -> None:
    patterns = [pattern for pattern in excused() if not pattern.startswith(name)]
    missing = unexplained(imported_by_what_is_checked(), packages(installed_extras()), patterns)
    assert {module.partition(".")[0] for module in missing} == {name}


def test_an_excuse_covers_submodules() -> None:
    asked = {"a": ["x.py"], "a.b.c": ["x.py"], "ab": ["y.py"], "sklearn.base": ["z.py"]}
    assert unexplained(asked, {"scikit-learn"}, ["a.*"]) == {"ab": ["y.py"]}

"""Code that nothing uses: names of src that only their own definition, or only the tests, mention."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import mlayer

SOURCE = Path(mlayer.__file__).parent
ROOT = SOURCE.parents[1]
FILES = sorted(SOURCE.rglob("*.py"))
# What a user reads or runs, besides the package: a name that stands there is used.
READERS = [
    file
    for folder in ("docs", "examples", "benchmarks", "tools")
    for file in (ROOT / folder).rglob("*")
    if file.suffix in {".md", ".py", ".ipynb"}
] + [ROOT / "README.md", ROOT / "setup.py"]

# Called by a framework under this name.
HOOKS = {
    "list_commands": "click",
    "get_command": "click",
    "invoke": "click",
    "resolve_command": "click",
    "format_commands": "click",
    "setup_context": "torch.autograd.Function",
    "jvp": "torch.autograd.Function",
    "extra_repr": "torch.nn.Module",
    "_fields_": "ctypes",
    "readinto": "io.RawIOBase",
    "redirect_request": "urllib.request",
    "http_open": "urllib.request",
    "https_open": "urllib.request",
    "connect": "http.client",
    "predict_log_proba": "scikit-learn",
    "decision_function": "scikit-learn",
    "_": "torch.library registers it",
    "paper_radius": "certificates/bounds/methods.py: the file of a closed form has <name>_radius",
    "lipschitz_radius": "the same",
}
# Only tests read them, to look inside.
FOR_TESTS = {
    "as_lists": "a proof before it is written, to forge it",
    "careful_squarings": "a counter of the compiled kernel",
    "ORDER": "the quadrature is compared with that of the order",
    "EXACT_DEGREES": "coefficients are compared with Taylor's up to here",
}

Uses = dict[str, list[tuple[Path, int]]]


def uses_in(trees: dict[Path, ast.Module]) -> Uses:
    """The places where each name is read: as a variable, an attribute or a whole string."""
    found: Uses = defaultdict(list)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found[node.id].append((file, node.lineno))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found[node.attr].append((file, node.lineno))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found[node.value].append((file, node.lineno))
    return found


def defined(body: list[ast.stmt], inside: bool = False) -> list[tuple[str, ast.stmt]]:
    """Functions, classes and methods; constants of modules. (Fields of classes describe data in files.)"""
    found: list[tuple[str, ast.stmt]] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append((node.name, node))
            if isinstance(node, ast.ClassDef):
                found += defined(node.body, True)
        elif isinstance(node, ast.Assign) and not inside:
            found += [(target.id, node) for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and not inside and isinstance(node.target, ast.Name):
            found.append((node.target.id, node))
    return found


def unused(trees: dict[Path, ast.Module]) -> set[str]:
    """Names that nothing reads outside of their definition; dunder names are Python's."""
    uses = uses_in(trees)
    return {
        name
        for file, tree in trees.items()
        for name, node in defined(tree.body)
        if not name.startswith("__")
        and not [
            line
            for where, line in uses[name]
            if where != file or not node.lineno <= line <= (node.end_lineno or node.lineno)
        ]
    }


def test_the_finder_itself() -> None:
    code = "A = 1\ndef f(): return f()\ndef g(): return A\nclass C:\n    def m(self): pass\n__all__ = ['g']\n"
    assert unused({Path("file.py"): ast.parse(code)}) == {"f", "C", "m"}


def test_nothing_is_there_for_the_tests_alone() -> None:
    read = set(re.findall(r"\w+", "\n".join(file.read_text() for file in READERS)))
    found = unused({file: ast.parse(file.read_text()) for file in FILES}) - read
    assert found - set(HOOKS) - set(FOR_TESTS) == set()
    assert set(FOR_TESTS) <= found, "used now: take it off the list"

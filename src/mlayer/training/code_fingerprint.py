"""The code of a function and the objects that it names, for the identity of a run.

Names of globals are followed through modules, and so are imports inside a function. Libraries (the standard
one, and what is installed) are known by their files.
"""

from __future__ import annotations

import dis
import hashlib
import importlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec, resolve_name
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

LONGEST_INTEGER = 1000  # bits; Python refuses to write those of thousands of digits
_MADE_WHILE_RUNNING = 1 << 9  # of `__flags__`: not compiled into Python or a package, as `generator` is
_INSTALLED = ("site-packages", "dist-packages")
_LIBRARIES = tuple(
    os.path.dirname(str(module.__file__)) + os.sep for module in (os, torch, np, sys.modules["mlayer"])
)


def of_a_library(kind: type) -> bool:
    """Whether a class is one of an installed package; a class made by a script may only say so."""
    if not kind.__flags__ & _MADE_WHILE_RUNNING:
        return True
    module = sys.modules.get(kind.__module__)
    found: Any = module
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not kind:
        return False
    file = getattr(module, "__file__", None)
    return (
        kind.__module__.split(".")[0] in sys.builtin_module_names if file is None else is_library_file(file)
    )


@cache
def is_library_file(file: str) -> bool:
    """Whether a file belongs to Python or an installed package."""
    if file.startswith("<frozen "):
        return True
    path = file.replace("\\", "/")
    return any(f"/{name}/" in path for name in _INSTALLED) or file.startswith(_LIBRARIES)


def named_by(function: FunctionType) -> dict[str, Any]:
    """The globals that its code names, also as ``module.name``, and what it imports; not what is built in."""
    found: dict[str, Any] = {}
    for names in _paths(function.__code__):
        path, value = names[0], function.__globals__.get(names[0], filled)
        for name in names[1:]:
            if not isinstance(value, ModuleType):
                break
            path, value = f"{path}.{name}", getattr(value, name, filled)
        if value is not filled:
            found[path] = value
    package = str(function.__globals__.get("__package__") or "")
    for module, names in _imports(function.__code__):
        value = _imported(module, package)
        found[f"import {module}"] = value if not names else module
        for name in names:
            inner = f"{module}{'' if module.endswith('.') else '.'}{name}"  # of a package: a module, maybe
            there = value is None or hasattr(value, name)
            found[f"import {inner}"] = getattr(value, name, None) if there else _imported(inner, package)
    return found


def _paths(code: CodeType) -> Iterator[list[str]]:
    """Globals that the code loads, each with the attributes that are taken of it right away."""
    path: list[str] = []
    for step in _steps(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and path:
            path.append(step.argval)
            continue
        if path:
            yield path
        path = [step.argval] if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") else []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _paths(constant)


def _imports(code: CodeType) -> Iterator[tuple[str, list[str]]]:
    """The modules that the code imports, with dots in front as it is written, and the names taken of each."""
    steps = [step for step in _steps(code) if step.opname != "EXTENDED_ARG"]
    for level, names, step in zip(steps, steps[1:], steps[2:], strict=False):
        if step.opname == "IMPORT_NAME":
            dots, taken = (
                code.co_consts[one.arg or 0] if one.opname == "LOAD_CONST" else one.arg
                for one in (level, names)
            )
            written = "." * (dots if isinstance(dots, int) else 0) + step.argval
            yield written, list(taken) if isinstance(taken, tuple) else []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports(constant)


def _steps(code: CodeType) -> Iterator[dis.Instruction]:
    # Without the constants, which dis would write out.
    return dis.get_instructions(code.replace(co_consts=(None,) * len(code.co_consts)))


def _imported(written: str, package: str) -> ModuleType | None:
    """The module that an import inside a function brings; None for one that is not there, or of a library.

    A module of the run that no call has imported yet is imported here; otherwise the fingerprint would
    change after the first call.
    """
    try:
        name = resolve_name(written, package)
        spec = find_spec(name.partition(".")[0])
        if spec is None or spec.origin in ("built-in", "frozen"):
            return sys.modules.get(name)
        # A folder without an __init__.py has no file, but places.
        files = [spec.origin] if spec.origin else [f"{one}/" for one in spec.submodule_search_locations or ()]
        return None if any(map(is_library_file, files)) else importlib.import_module(name)
    except Exception:  # any exception of a module that is imported: the call itself will raise it
        return sys.modules.get(written)


def filled(cell: Any) -> bool:
    """Whether a variable of an outer function has a value yet."""
    try:
        cell.cell_contents  # noqa: B018 - asked for whether it raises
    except ValueError:
        return False
    return True


def _constant(value: Any) -> str:
    if type(value) is int and value.bit_length() > LONGEST_INTEGER:
        return hex(value)
    if type(value) is tuple and any(type(one) in (int, tuple) for one in value):
        return f"({', '.join(map(_constant, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def code_digest(code: CodeType) -> str:
    """The digest of what the code does, without its place and its name."""
    digest = hashlib.sha256(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            digest.update(code_digest(constant).encode())
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(f"{type(constant).__name__} {_constant(constant)}".encode())
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, code.co_kwonlyargcount)
    digest.update(repr((*names, code.co_posonlyargcount, code.co_exceptiontable)).encode())
    return digest.hexdigest()

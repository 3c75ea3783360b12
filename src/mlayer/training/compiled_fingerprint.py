"""Code that is no Python: functions and modules of torch.jit, shared libraries, objects of C types.

What an object of a C type holds is known to Python's garbage collector, if the object can be neither stored
nor asked for: the function inside `numpy.frompyfunc`, the dictionary behind its view, the callback of ctypes.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import sys
from functools import cache
from types import ModuleType
from typing import Any

import torch

from mlayer.training.code_fingerprint import is_library_file

_EXTENSIONS = (".so", ".pyd", ".dll", ".dylib")
_PIECE = 1 << 20  # bytes read at once


def script_parts(value: Any) -> list[Any] | None:
    """The code of a scripted or traced function, method or module, with its constants; None for others."""
    if isinstance(value, torch.jit.ScriptFunction):
        graph: Any = value.graph
        kept = graph.findAllNodes("prim::Constant")  # the code names tensors only
        return [
            value.code,
            [one.t("value") for one in kept if one.hasAttribute("value") and one.kindOf("value") == "t"],
        ]
    if isinstance(value, torch.ScriptMethod):
        return [value.name, *_method(value), _attributes_used(value, value.owner), _tensors(value.owner)]
    if isinstance(value, torch.jit.ScriptModule):
        methods = [value._c._get_method(name) for name in sorted(value._c._method_names())]
        return [[one.name, *_method(one), _attributes_used(one, value._c)] for one in methods]
    return None


def _method(method: Any) -> list[Any]:
    code, constants = method.code_with_constants
    return [code, dict(constants)]


def _attributes_used(method: Any, owner: Any) -> dict[str, Any]:
    """Numbers, texts and containers of a scripted module; its tensors and parts have their own place."""
    names = sorted({node.s("name") for node in method.graph.findAllNodes("prim::GetAttr")})
    found = {name: owner.getattr(name) for name in names if owner.hasattr(name)}
    return {
        name: value
        for name, value in found.items()
        if not isinstance(value, torch.Tensor | torch.ScriptObject | torch._C.ScriptModule)
    }


def _tensors(owner: Any) -> dict[str, Any]:
    from torch.jit._recursive import wrap_cpp_module

    return dict(wrap_cpp_module(owner).state_dict())


def shared_library(library: ctypes.CDLL) -> list[Any]:
    """A shared library: its name, and the digest of its file if that belongs to no package."""
    name = str(library._name)
    return [os.path.basename(name), file_digest(name) if os.path.isfile(name) else None]


def extension_digest(module: ModuleType) -> str | None:
    """The digest of the file of a compiled module; None for one that has another kind of file."""
    file = getattr(module, "__file__", None)
    return file_digest(file) if isinstance(file, str) and file.endswith(_EXTENSIONS) else None


def file_digest(file: str) -> str | None:
    """The digest of a file of the run; None for one of an installed package, or one that cannot be read."""
    if is_library_file(os.path.realpath(file)) or file.startswith(("/usr/", "/lib")):
        return None
    try:
        about = os.stat(file)
        return _digest(file, about.st_size, about.st_mtime_ns)
    except OSError:
        return None


@cache
def _digest(file: str, size: int, changed: int) -> str:
    del size, changed  # of another file under the same name
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def held_by(value: Any, attributes: dict[str, Any]) -> list[Any]:
    """The parts of an object of a C type, but for its class, its attributes and the globals of its module.

    >>> held_by({"a": 1}.values(), {})
    [{'a': 1}]
    """
    known = {id(type(value)), id(getattr(value, "__dict__", None)), *map(id, attributes.values())}
    return [one for one in gc.get_referents(value) if id(one) not in known and not _is_of_a_module(one)]


def global_of(value: Any, name: str) -> ModuleType | None:
    """The module in which ``value`` is found under this name, as pickle looks for it; None if in none."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return module if found is value else None


def _is_of_a_module(value: Any) -> bool:
    return isinstance(value, dict) and "__spec__" in value and "__name__" in value

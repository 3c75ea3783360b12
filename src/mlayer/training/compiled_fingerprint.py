"""Code that is no Python: functions and modules of torch.jit, shared libraries, objects of C types."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
from functools import cache
from types import ModuleType
from typing import Any

import torch

from mlayer.training.code_fingerprint import is_library_file

_EXTENSIONS = (".so", ".pyd", ".dll", ".dylib")
_PIECE = 1 << 20  # bytes read at once
_NUMBERED = re.compile(r"___torch_mangle_\d+\.")  # types of one name, as torch met them


def script_parts(value: Any) -> list[Any] | None:
    """The graph of a scripted or traced function, method or module, with all it calls; None for others."""
    if isinstance(value, torch.jit.ScriptFunction):
        return _graph(value.graph)
    if isinstance(value, torch.ScriptMethod):
        from torch.jit._recursive import wrap_cpp_module

        return [value.name, wrap_cpp_module(value.owner)]
    if isinstance(value, torch.jit.ScriptModule):
        methods = [value._c._get_method(name) for name in sorted(value._c._method_names())]
        return [[one.name, *_graph(one.graph), _attributes_used(one, value._c)] for one in methods]
    return None


def _graph(graph: Any) -> list[Any]:
    """The words of a graph with all it calls, and its constant tensors, for which they have a sign."""
    whole = graph.copy()
    torch._C._jit_pass_inline(whole)
    constants = whole.findAllNodes("prim::Constant")
    kept = [one.t("value") for one in constants if one.hasAttribute("value") and one.kindOf("value") == "t"]
    return [_NUMBERED.sub("", whole.str(False)), kept]


def _attributes_used(method: Any, owner: Any) -> dict[str, Any]:
    """Numbers, texts and containers of a scripted module; its tensors and parts have their own place."""
    names = sorted({node.s("name") for node in method.graph.findAllNodes("prim::GetAttr")})
    found = {name: owner.getattr(name) for name in names if owner.hasattr(name)}
    return {
        name: value
        for name, value in found.items()
        if not isinstance(value, torch.Tensor | torch._C.ScriptModule)
    }


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

"""The autograd node in C++: found, checked and loaded. Optional; native.py and ctypes do without it.

The node calls into torch and Python, so a file serves one version of each, which its name says. A file for
another version is never opened: it could crash the process.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from mlayer.exponential import native
from mlayer.exponential.build import node_digest, node_name

BUILD = "python -m mlayer.exponential.compile"

_pullbacks: list[Callable[[Tensor, Tensor], Tensor]] = []


def set_pullback(pullback: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Set the function for derivatives of derivatives: (A, G) -> L(A^H, G)."""
    _pullbacks[:] = [pullback]


def _open(folder: Path) -> tuple[ModuleType | None, str]:
    """The module in this folder for this torch and Python, or None and why not."""
    if not native.available():
        return None, "there is no kernel for it to call"
    file = folder / node_name(torch.__version__)
    if not file.exists():
        others = sorted(other.name for other in folder.glob("_node.torch-*"))
        if others:
            return None, f"the autograd node is {others[0]}, this needs {file.name}: {BUILD}"
        return None, f"the autograd node was not built: {BUILD}"
    try:
        loader = ExtensionFileLoader("_node", str(file))
        spec = spec_from_file_location("_node", file, loader=loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        return None, f"the autograd node {file.name} does not load: {error}"
    if module.version() != native.KERNEL_VERSION:
        return None, f"the autograd node is of another version of the kernel: {BUILD}"
    if not hasattr(module, "source_digest") or module.source_digest() != node_digest():
        why = f"the autograd node was built from other sources than the present ones: {BUILD}"
        warnings.warn(f"{why}. Until then ctypes is used, a little slower.", stacklevel=2)
        return None, why
    return module, ""


@cache
def _load() -> tuple[ModuleType | None, str]:
    module, why = _open(Path(__file__).parent)
    if module is not None:
        module.configure(*native.addresses(), native.LARGEST_SIZE, *_pullbacks)
    return module, why


def available() -> bool:
    """Whether the compiled autograd node is available."""
    return _load()[0] is not None


def description() -> str:
    """A description of how autograd reaches the kernel."""
    module, why = _load()
    return "C++ autograd node" if module is not None else f"through ctypes ({why})"


def _nothing(_: object) -> None:
    return None


@cache
def expm() -> Callable[[object], Tensor | None]:
    """The node's function, exp(A) of ordinary CPU tensors and None of the rest; or always None."""
    module, _ = _load()
    return _nothing if module is None else module.expm

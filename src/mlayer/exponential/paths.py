"""The choice of the implementation of an exponential, and the reason for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor

from mlayer.checks import did_you_mean, one_of
from mlayer.errors import ArgumentError, KernelError
from mlayer.exponential import native, node, triton_path
from mlayer.exponential.arguments import EXPM_IN_SINGLE, check_matrices

VARIABLE = "MLAYER_EXPM"
_CHOICES = ("auto", "native", "ctypes", "matmul", "triton")
# What expm(A, path=...) asks for while it runs; stronger than the variable.
_asked: ContextVar[str | None] = ContextVar("asked", default=None)


@dataclass(frozen=True)
class ExpmPath:
    """The implementation in use: ``name`` is "native", "matmul" or "triton", ``reason`` says why.

    For the kernel the reason also says how autograd reaches it: a node in C++, or ctypes.
    """

    name: str
    reason: str


@contextmanager
def asked_for(path: str) -> Iterator[None]:
    """Choose the path for the calls inside."""
    one_of("path", path, _CHOICES, "Leave it out to let mlayer choose.")
    token = _asked.set(path)
    try:
        yield
    finally:
        _asked.reset(token)


def _wish() -> str:
    asked = _asked.get()
    if asked is not None:
        return asked
    # Read at every call, so that a notebook can change it; `in` because a missing key costs twice `get`.
    if VARIABLE not in os.environ:
        return "auto"
    wish = os.environ[VARIABLE]
    if wish not in _CHOICES:
        raise ArgumentError(
            f"the environment variable {VARIABLE}",
            f"one of {', '.join(_CHOICES)}",
            repr(wish),
            f"{did_you_mean(wish, _CHOICES, '')} Unset it to let mlayer choose.".strip(),
        )
    return wish


def uses_kernel(matrices: Tensor) -> bool:
    """Whether the compiled kernel takes these matrices."""
    wish = _wish()
    if wish == "matmul" or (wish == "triton" and triton_path.takes(matrices)):
        return False
    if not native.available():
        if wish in ("native", "ctypes"):
            raise KernelError(
                f"{VARIABLE}={wish}, but {native.description()}; unset it or install with a compiler"
            )
        return False
    return native.supports(matrices)


def uses_triton(matrices: Tensor) -> bool:
    """Whether the Triton kernel takes these matrices; it has to be asked for."""
    return _wish() == "triton" and triton_path.takes(matrices)


def expm_path(matrices: Tensor | None = None) -> ExpmPath:
    """Say which path :func:`mlayer.expm` takes for ``matrices`` (or for an ordinary CPU batch), and why.

    The environment variable ``MLAYER_EXPM`` (``auto``, ``native``, ``ctypes``, ``matmul``, ``triton``)
    overrules the choice; ``ctypes`` is the kernel without the autograd node.

    >>> import mlayer
    >>> mlayer.expm_path().name in ("native", "matmul")
    True
    """
    if matrices is not None:
        check_matrices(matrices, "matrices")
    if _wish() == "matmul":
        return ExpmPath("matmul", f"{VARIABLE}=matmul asks for torch's own matrix products")
    if matrices is not None and matrices.dtype in EXPM_IN_SINGLE:
        matrices = matrices.float()  # as expm does
    if matrices is not None and uses_triton(matrices):
        return ExpmPath("triton", f"{VARIABLE}=triton asks for the Triton kernel")
    if matrices is not None and not native.supports(matrices):
        size = matrices.shape[-1]
        largest = native.largest_size(matrices.dtype)
        if matrices.device.type == "cpu":
            why = f"beyond size {largest} torch's own products are as fast; this is {size}"
        else:
            why = f"the kernel computes on the CPU, not on {matrices.device}"
        return ExpmPath("matmul", why)
    if matrices is not None:
        name = "native" if uses_kernel(matrices) else "matmul"
    else:
        name = "native" if native.available() else "matmul"
    if name == "matmul":
        return ExpmPath(name, native.description())
    how = f"through ctypes ({VARIABLE}=ctypes)" if _wish() == "ctypes" else node.description()
    return ExpmPath(name, f"{native.description()}, {how}")

"""Which implementation computes an exponential, and why."""

from __future__ import annotations

import os
from dataclasses import dataclass

from torch import Tensor

from mlayer.checks import did_you_mean
from mlayer.errors import ArgumentError, KernelError
from mlayer.exponential import native
from mlayer.exponential.arguments import HALVES, check_matrices

VARIABLE = "MLAYER_EXPM"
_CHOICES = ("auto", "native", "matmul")


@dataclass(frozen=True)
class ExpmPath:
    """The implementation in use: ``name`` is "native" or "matmul", ``reason`` says why."""

    name: str
    reason: str


def _wish() -> str:
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
    """Does the compiled kernel take these matrices?"""
    wish = _wish()
    if wish == "matmul":
        return False
    if not native.available():
        if wish == "native":
            raise KernelError(
                f"{VARIABLE}=native, but {native.description()}; unset it or install with a compiler"
            )
        return False
    return native.supports(matrices)


def expm_path(matrices: Tensor | None = None) -> ExpmPath:
    """Say which path :func:`mlayer.expm` takes for ``matrices`` (or for an ordinary CPU batch), and why.

    The environment variable ``MLAYER_EXPM`` (``auto``, ``native``, ``matmul``) overrules the choice.

    >>> import mlayer
    >>> mlayer.expm_path().name in ("native", "matmul")
    True
    """
    if matrices is not None:
        check_matrices(matrices, "matrices")
    if _wish() == "matmul":
        return ExpmPath("matmul", f"{VARIABLE}=matmul asks for torch's own matrix products")
    if matrices is not None and matrices.dtype in HALVES:
        matrices = matrices.float()  # as expm does
    if matrices is not None and not native.supports(matrices):
        size = matrices.shape[-1]
        if size > native.LARGEST_SIZE and matrices.device.type == "cpu":
            why = f"beyond size {native.LARGEST_SIZE} torch's own products are as fast; this is {size}"
        else:
            kind = f"{matrices.dtype} on {matrices.device}"
            why = f"the kernel computes float32 and float64 on the CPU, not {kind}"
        return ExpmPath("matmul", why)
    if matrices is not None:
        name = "native" if uses_kernel(matrices) else "matmul"
    else:
        name = "native" if native.available() else "matmul"
    return ExpmPath(name, native.description())

"""`mlayer.expm`: input is checked here, once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.exponential import node, operator
from mlayer.exponential.arguments import EXPM_IN_SINGLE, check_matrices
from mlayer.exponential.paths import VARIABLE, asked_for
from mlayer.exponential.traced import expm_traced


def expm(A: Tensor, *, path: str | None = None) -> Tensor:
    """The exponential of a square matrix, or of each in a batch.

    Differentiable to every order, in reverse and forward mode and every nesting of them, under
    ``torch.func`` and ``torch.compile``; exportable with ``torch.export``. The backward pass keeps
    ``A`` only. float16 and bfloat16 are computed in float32. NaN or infinity in one matrix gives NaN
    in that matrix only; an entry too large for the dtype is infinite.

    Args:
        A: shape (..., n, n), floating point or complex, any strides, any device.
        path: "auto", "native", "ctypes", "matmul" or "triton" instead of what :func:`mlayer.expm_path` says;
            the backward pass of an ordinary call takes it too. Not under ``torch.compile``, where
            ``MLAYER_EXPM`` decides.

    Returns:
        A contiguous tensor of the shape, dtype and device of ``A``.

    >>> import math, torch, mlayer
    >>> rotation = mlayer.expm(torch.tensor([[0.0, -math.pi / 2], [math.pi / 2, 0.0]]))
    >>> torch.allclose(rotation, torch.tensor([[0.0, -1.0], [1.0, 0.0]]), atol=1e-6)
    True
    """
    compiling = torch.compiler.is_compiling()
    if path is not None:
        if compiling:
            raise ArgumentError(
                "path", "None under torch.compile", repr(path), f"Set the environment variable {VARIABLE}."
            )
        with asked_for(path):
            return _chosen(A)
    if not compiling:
        ordinary = node.expm()(A)
        if ordinary is not None:
            return ordinary
    return _checked(A, expm)


def _chosen(A: Tensor) -> Tensor:
    """The exponential on the requested path, without the node, which makes its own choice."""
    return _checked(A, _chosen)


def _checked(A: Tensor, single: Callable[[Tensor], Tensor]) -> Tensor:
    """The exponential of checked input; ``single`` is the float32 copy of a half-precision one."""
    check_matrices(A)
    if A.dtype in EXPM_IN_SINGLE:
        return single(A.float()).to(A.dtype)
    if A.shape[-1] <= 1:
        return A.exp().contiguous()
    if _is_exporting():
        return expm_traced(A)
    return operator.expm(A)


def _is_exporting() -> bool:
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        raise ArgumentError(
            "the exporter",
            "torch.export or torch.onnx.export(..., dynamo=True)",
            "torch.jit.trace, which would freeze the number of squarings of the example input",
            "Export with one of the two.",
        )
    is_exporting = getattr(torch.compiler, "is_exporting", None)  # torch >= 2.7
    return is_exporting is not None and is_exporting()

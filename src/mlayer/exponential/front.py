"""`mlayer.expm`: input is checked here, once."""

from __future__ import annotations

import torch
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.exponential import operator
from mlayer.exponential.arguments import HALVES, check_matrices
from mlayer.exponential.matmul import expm_traced


def expm(A: Tensor) -> Tensor:
    """The exponential of a square matrix, or of each in a batch.

    Differentiable to every order, in reverse and (up to two nested) forward modes, under
    ``torch.func`` and ``torch.compile``; exportable with ``torch.export``. The backward pass keeps
    ``A`` only. float16 and bfloat16 are computed in float32. NaN or infinity in one matrix gives NaN
    in that matrix only; an entry too large for the dtype is infinite.

    Args:
        A: shape (..., n, n), floating point or complex, any strides, any device.

    Returns:
        A contiguous tensor of the shape, dtype and device of ``A``.

    >>> import math, torch, mlayer
    >>> rotation = mlayer.expm(torch.tensor([[0.0, -math.pi / 2], [math.pi / 2, 0.0]]))
    >>> torch.allclose(rotation, torch.tensor([[0.0, -1.0], [1.0, 0.0]]), atol=1e-6)
    True
    """
    check_matrices(A)
    if A.dtype in HALVES:
        return expm(A.float()).to(A.dtype)
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

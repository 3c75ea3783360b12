"""`mlayer.expm`: input is checked here, once."""

from __future__ import annotations

import torch
from torch import Tensor

from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.exponential import operator
from mlayer.exponential.matmul import expm_traced

_HALVES = (torch.float16, torch.bfloat16)
_DTYPES = frozenset((*_HALVES, torch.float32, torch.float64, torch.complex64, torch.complex128))


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
    _check(A)
    if A.dtype in _HALVES:
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


def _check(A: Tensor) -> None:
    if not isinstance(A, Tensor):
        raise ArgumentTypeError(
            "A", "a torch.Tensor", type(A).__name__, "Convert it with torch.as_tensor(A)."
        )
    shape = A.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ArgumentError(
            "A",
            "a square matrix or a batch of them, shape (..., n, n)",
            f"shape {tuple(shape)}",
            "The last two dimensions must be equal.",
        )
    if A.dtype not in _DTYPES:
        raise ArgumentTypeError(
            "A",
            "of floating point or complex dtype",
            str(A.dtype),
            "Convert it with A.float() or A.double().",
        )
    if A.layout != torch.strided:
        raise ArgumentTypeError("A", "a dense tensor", str(A.layout), "Convert it with A.to_dense().")

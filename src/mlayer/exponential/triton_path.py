"""The Triton kernel behind `mlayer.expm`: opt-in, for float32 matrices up to 32 x 32 on a GPU.

It has been compiled for GPUs and executed instruction by instruction on a CPU, but never on a GPU. It is used
only where `MLAYER_EXPM=triton` or ``expm(A, path="triton")`` asks for it. What it does not compute (other
dtypes, larger sizes, CPU tensors) is computed by the default path. With `TRITON_INTERPRET=1`, the
interpreter runs it on CPU tensors.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from mlayer.errors import MissingPackageError
from mlayer.exponential import grouped
from mlayer.exponential.arguments import materialized
from mlayer.exponential.schedule import exact_degree

LARGEST_SIZE = 32
# Warps of a program of 16 and of 32 rows: nothing spills (tests/exponential/test_triton.py).
WARPS = {"cuda": {16: 2, 32: 8}, "hip": {16: 2, 32: 4}}
_NO_FINITE_SERIES = 16


def takes(matrices: Tensor) -> bool:
    """Whether the kernel computes these, given that it is asked for."""
    if find_spec("triton") is None:
        raise MissingPackageError("the Triton path of expm", "triton", "pip install 'mlayer[triton]'")
    here = matrices.device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    return here and matrices.dtype == torch.float32 and 1 < matrices.shape[-1] <= LARGEST_SIZE


def expm(matrices: Tensor) -> Tensor:
    """exp(A).  (..., n, n) -> (..., n, n)"""
    from mlayer.exponential.triton_kernel import expm_kernel

    a = materialized(matrices).reshape(-1, *matrices.shape[-2:])
    out, flags = _launch(expm_kernel, a, [], derivative=False)
    index = flags.nonzero().squeeze(1)  # the one synchronization
    if len(index):
        out[index] = grouped.expm(a[index])
    return out.reshape(matrices.shape)


def frechet(matrices: Tensor, direction: Tensor) -> Tensor:
    """L(A, E); both (..., n, n)."""
    from mlayer.exponential.triton_kernel import frechet_kernel

    a = materialized(matrices).reshape(-1, *matrices.shape[-2:])
    e = materialized(direction).reshape(a.shape).contiguous()
    out, flags = _launch(frechet_kernel, a, [e], derivative=True)
    index = flags.nonzero().squeeze(1)
    if len(index):
        out[index] = grouped.frechet(a[index], e[index])
    return out.reshape(matrices.shape)


def _launch(kernel: Any, a: Tensor, more: list[Tensor], *, derivative: bool) -> tuple[Tensor, Tensor]:
    batch, n, _ = a.shape
    out = torch.empty_like(a, memory_format=torch.contiguous_format)
    flags = torch.empty(batch, dtype=torch.int32, device=a.device)
    if batch:
        rows = 16 if n <= 16 else 32
        exact = exact_degree(n - 1, derivative) or _NO_FINITE_SERIES
        warps = WARPS["hip" if torch.version.hip else "cuda"][rows]
        with torch.cuda.device(a.device) if a.is_cuda else nullcontext():
            kernel[(batch,)](a, *more, out, flags, n, *a.stride(), exact, N=rows, num_warps=warps)
    return out, flags

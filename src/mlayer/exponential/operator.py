"""expm as a torch operator: derivatives of every order, vmap, torch.compile, torch.export.

Two operators (primary_function.py), exp(A) and its Frechet derivative, on whichever path serves the matrices;
and a shorter way for ordinary tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mlayer.exponential import matmul, native, node
from mlayer.exponential.arguments import is_plain, owned, transforms_active
from mlayer.exponential.paths import uses_kernel
from mlayer.exponential.primary_function import adjoint, define_primary
from mlayer.exponential.sharding import allow_sharding


def _expm_value(matrices: Tensor) -> Tensor:
    return native.expm(matrices) if uses_kernel(matrices) else matmul.expm(matrices)


def _frechet_value(matrices: Tensor, direction: Tensor) -> Tensor:
    return (native if uses_kernel(matrices) else matmul).frechet(matrices, direction)


# ---- The two operators. ---------------------------------------------------------------------------


def _scale(matrices: Tensor, direction: Tensor) -> Tensor:
    """Powers of two of the size of the directions: [[A, E], [0, A]] must not need more squarings than A."""
    largest = direction.detach().abs().amax((-2, -1), keepdim=True)
    usable = (largest > 0) & largest.isfinite()
    return torch.where(usable, torch.exp2(torch.log2(largest).floor()), torch.ones_like(largest))


expm_op, frechet_op = define_primary("expm", "frechet", _expm_value, _frechet_value, _scale)


def _pullback(matrices: Tensor, cotangent: Tensor) -> Tensor:
    return frechet_op(adjoint(matrices), cotangent)


node.set_pullback(_pullback)


# ---- Ordinary tensors: without the operator's overhead. --------------------------------------------


class _PlainExpm(torch.autograd.Function):
    """Reverse mode only, for ordinary tensors: node.cpp in Python, at half the overhead of the operator."""

    @staticmethod
    def forward(ctx: Any, matrices: Tensor) -> Tensor:
        ctx.save_for_backward(matrices)
        ctx.native = uses_kernel(matrices)
        if ctx.native:
            return native.expm(matrices)
        value, ctx.plan = matmul.expm_with_plan(matrices)
        return owned(value)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        (matrices,) = ctx.saved_tensors
        if torch.is_grad_enabled() or not is_plain(cotangent):
            return _pullback(matrices, cotangent)
        if ctx.native:
            return native.frechet(matrices, cotangent, adjoint=True)
        return matmul.frechet(adjoint(matrices), cotangent, ctx.plan)


# Without the Python part of Function.apply, which serves torch.func and takes a tenth of a small step.
_apply_plain = super(torch.autograd.Function, _PlainExpm).apply


def expm(matrices: Tensor) -> Tensor:
    """exp(A) for checked input."""
    if torch.compiler.is_compiling() or transforms_active() or not is_plain(matrices):
        allow_sharding(matrices)
        return expm_op(matrices)
    if matrices.requires_grad and torch.is_grad_enabled():
        return _apply_plain(matrices)
    return _expm_value(matrices)


def frechet(matrices: Tensor, direction: Tensor) -> Tensor:
    """L(A, E) for checked input."""
    return frechet_op(matrices, direction)

"""expm as a torch operator: derivatives of every order, vmap, torch.compile, torch.export.

Everything rests on two primitives, exp(A) and its Frechet derivative L(A, E), because they are
closed under differentiation (docs/theory/expm.md):

    pull-back of exp at A:     G -> L(A^H, G)
    push-forward of exp at A:  E -> L(A, E)
    L(A, E) is the upper right block of exp([[A, E], [0, A]]), so its own derivatives are Frechet
    derivatives of twice the size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from mlayer.exponential import matmul, native, node
from mlayer.exponential.arguments import is_plain, owned
from mlayer.exponential.forward_modes import refuse_nested_forward_modes
from mlayer.exponential.paths import uses_kernel


def _expm_value(matrices: Tensor) -> Tensor:
    return native.expm(matrices) if uses_kernel(matrices) else matmul.expm(matrices)


def _frechet_value(matrices: Tensor, direction: Tensor) -> Tensor:
    return (native if uses_kernel(matrices) else matmul).frechet(matrices, direction)


# ---- Operators: what compiled and exported graphs contain. ---------------------------------------


@torch.library.custom_op("mlayer::expm", mutates_args=())
def expm_op(matrices: Tensor) -> Tensor:
    """exp(A) of (..., n, n)."""
    return _expm_value(matrices)


@torch.library.custom_op("mlayer::frechet", mutates_args=())
def frechet_op(matrices: Tensor, direction: Tensor) -> Tensor:
    """L(A, E) of (..., n, n) and (..., n, n)."""
    return _frechet_value(matrices, direction)


@expm_op.register_fake
def _(matrices: Tensor) -> Tensor:
    return torch.empty_like(matrices, memory_format=torch.contiguous_format)


@frechet_op.register_fake
def _(matrices: Tensor, direction: Tensor) -> Tensor:
    return torch.empty_like(matrices, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)
    ctx.save_for_forward(*inputs)


def _save_op(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _adjoint(matrices: Tensor) -> Tensor:
    return matrices.mT.conj_physical() if matrices.is_complex() else matrices.mT


def _pullback(matrices: Tensor, cotangent: Tensor) -> Tensor:
    return frechet(_adjoint(matrices), cotangent)


node.set_pullback(_pullback)


def _expm_pullback(ctx: Any, cotangent: Tensor) -> Tensor:
    (matrices,) = ctx.saved_tensors
    return _pullback(matrices, cotangent)


def _frechet_pullback(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, Tensor | None]:
    matrices, direction = ctx.saved_tensors
    adjoint = _adjoint(matrices)
    on_direction = frechet(adjoint, cotangent)
    if not ctx.needs_input_grad[0]:
        return None, on_direction
    return _second(adjoint, _adjoint(direction), cotangent), on_direction


def _second(matrices: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The second Frechet derivative at A, bilinear and symmetric in its two directions.

    It is the upper right block of L([[A, E], [0, A]], [[F, 0], [0, F]]). E is brought to the size
    of A first: the block matrix must not need more squarings than A, whatever the scale of E.
    """
    scale = _scale(first)
    first = first / scale
    n = matrices.shape[-1]
    zero = torch.zeros_like(matrices)
    block = _blocks(matrices, first, zero, matrices)
    return frechet(block, _blocks(second, zero, zero, second))[..., :n, n:] * scale


def _scale(direction: Tensor) -> Tensor:
    """A power of two of the size of each matrix, a constant to differentiation.  -> (..., 1, 1)"""
    largest = direction.detach().abs().amax((-2, -1), keepdim=True)
    usable = (largest > 0) & largest.isfinite()
    return torch.where(usable, torch.exp2(torch.log2(largest).floor()), torch.ones_like(largest))


def _blocks(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.cat([torch.cat([a, b], -1), torch.cat([c, d], -1)], -2)


expm_op.register_autograd(_expm_pullback, setup_context=_save_op)
frechet_op.register_autograd(_frechet_pullback, setup_context=_save_op)


def _batched(matrices: Tensor, dim: int | None) -> Tensor:
    return matrices if dim is None else matrices.movedim(dim, 0)


def _expm_vmap(info: Any, in_dims: tuple[int | None], matrices: Tensor) -> tuple[Tensor, int]:
    return expm(_batched(matrices, in_dims[0])), 0


def _frechet_vmap(
    info: Any, in_dims: tuple[int | None, int | None], matrices: Tensor, direction: Tensor
) -> tuple[Tensor, int]:
    pair = torch.broadcast_tensors(
        *(
            _batched(x, dim) if dim is not None else x.unsqueeze(0)
            for x, dim in zip((matrices, direction), in_dims, strict=True)
        )
    )
    return frechet(*pair), 0


if hasattr(expm_op, "register_vmap"):  # torch >= 2.5
    expm_op.register_vmap(_expm_vmap)
    frechet_op.register_vmap(_frechet_vmap)


# ---- Eager: the same two primitives without the operator's overhead. ------------------------------


class _PlainExpm(torch.autograd.Function):
    """Reverse mode only, for ordinary tensors: node.cpp in Python, at half the overhead of `_Expm`."""

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
        if torch.is_grad_enabled() or not is_plain(cotangent):
            return _expm_pullback(ctx, cotangent)
        (matrices,) = ctx.saved_tensors
        if ctx.native:
            return native.frechet(matrices, cotangent, adjoint=True)
        return matmul.frechet(_adjoint(matrices), cotangent, ctx.plan)


# Without the Python part of Function.apply, which serves torch.func and takes a tenth of a small step.
_apply_plain = super(torch.autograd.Function, _PlainExpm).apply


class _Expm(torch.autograd.Function):
    """The function with forward mode and vmap, for everything else."""

    @staticmethod
    def forward(matrices: Tensor) -> Tensor:
        return owned(_expm_value(matrices)) if is_plain(matrices) else expm_op(matrices)

    setup_context = staticmethod(_save)
    vmap = staticmethod(_expm_vmap)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        return _expm_pullback(ctx, cotangent)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        (matrices,) = ctx.saved_tensors
        return frechet(matrices, tangent)


class _Frechet(torch.autograd.Function):
    @staticmethod
    def forward(matrices: Tensor, direction: Tensor) -> Tensor:
        if is_plain(matrices) and is_plain(direction):
            return owned(_frechet_value(matrices, direction))
        return frechet_op(matrices, direction)

    setup_context = staticmethod(_save)
    vmap = staticmethod(_frechet_vmap)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return _frechet_pullback(ctx, cotangent)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, direction_tangent: Tensor | None) -> Tensor:
        refuse_nested_forward_modes()
        matrices, direction = ctx.saved_tensors
        # As contiguous as the value: torch insists that a tangent has the strides of its primal.
        result = torch.zeros_like(matrices, memory_format=torch.contiguous_format)
        if direction_tangent is not None:
            result = result + frechet(matrices, direction_tangent)
        if tangent is not None:
            result = result + _second(matrices, direction, tangent)
        return result


def expm(matrices: Tensor) -> Tensor:
    """exp(A) for checked input."""
    if torch.compiler.is_compiling():
        return expm_op(matrices)
    if _transforms_active() or not is_plain(matrices):
        return _Expm.apply(matrices)
    if matrices.requires_grad and torch.is_grad_enabled():
        return _apply_plain(matrices)
    return _expm_value(matrices)


def _transforms_active() -> bool:
    """Whether this runs inside torch.func or forward-mode differentiation."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def frechet(matrices: Tensor, direction: Tensor) -> Tensor:
    """L(A, E) for checked input."""
    if torch.compiler.is_compiling():
        return frechet_op(matrices, direction)
    return _Frechet.apply(matrices, direction)

"""A function of matrices with derivatives of every order, from its value and its Frechet derivative.

The two are closed under differentiation (docs/theory/inverse.md): for the inner product tr(X^H Y) the
pull-back of G at A is L(A^H, G), and L(A, E) is the upper right block of f([[A, E], [0, A]]), so its own
derivatives are Frechet derivatives of twice the size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlayer.exponential.arguments import is_plain, owned
from mlayer.exponential.forward_modes import refuse_nested_forward_modes

Value = Callable[[Tensor], Tensor]
Frechet = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Rule:
    """The computation of f and its derivative, of plain tensors (..., n, n); the same as torch operators."""

    value: Value
    frechet: Frechet
    value_op: Value
    frechet_op: Frechet


def make_rule(name: str, value: Value, frechet: Frechet) -> Rule:
    """The rule with its operators, which compiled graphs contain and stand-ins for tensors go through."""
    two = "(Tensor matrices, Tensor direction) -> Tensor"
    value_op = torch.library.custom_op(
        f"mlayer::{name}", value, mutates_args=(), schema="(Tensor matrices) -> Tensor"
    )
    frechet_op = torch.library.custom_op(f"mlayer::{name}_frechet", frechet, mutates_args=(), schema=two)
    value_op.register_fake(_empty)
    frechet_op.register_fake(lambda matrices, direction: _empty(matrices))
    rule = Rule(value, frechet, value_op, frechet_op)
    value_op.register_autograd(
        lambda ctx, cotangent: _pullback(rule, ctx, cotangent), setup_context=_save_operator
    )
    frechet_op.register_autograd(
        lambda ctx, cotangent: _frechet_pullback(rule, ctx, cotangent, ctx.needs_input_grad[0]),
        setup_context=_save_operator,
    )
    return rule


def _empty(matrices: Tensor) -> Tensor:
    return torch.empty_like(matrices, memory_format=torch.contiguous_format)


def _save_operator(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _pullback(rule: Rule, ctx: Any, cotangent: Tensor) -> Tensor:
    (matrices,) = ctx.saved_tensors
    return _PrimaryFrechet.apply(rule, _adjoint(matrices), cotangent)


def _frechet_pullback(
    rule: Rule, ctx: Any, cotangent: Tensor, on_matrices: bool
) -> tuple[Tensor | None, Tensor]:
    matrices, direction = ctx.saved_tensors
    adjoint = _adjoint(matrices)
    on_direction = _PrimaryFrechet.apply(rule, adjoint, cotangent)
    if not on_matrices:
        return None, on_direction
    return _second(rule, adjoint, _adjoint(direction), cotangent), on_direction


def _adjoint(matrices: Tensor) -> Tensor:
    return matrices.mT.conj_physical() if matrices.is_complex() else matrices.mT


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.rule, *tensors = inputs
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


class _Value(torch.autograd.Function):
    @staticmethod
    def forward(rule: Rule, matrices: Tensor) -> Tensor:
        return owned(rule.value(matrices)) if is_plain(matrices) else rule.value_op(matrices)

    setup_context = staticmethod(_save)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[None, Tensor]:
        return None, _pullback(ctx.rule, ctx, cotangent)

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor) -> Tensor:
        (matrices,) = ctx.saved_tensors
        return _PrimaryFrechet.apply(ctx.rule, matrices, tangent)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[None, int | None], rule: Rule, matrices: Tensor) -> tuple[Tensor, int]:
        assert in_dims[1] is not None
        return _Value.apply(rule, matrices.movedim(in_dims[1], 0)), 0


class _PrimaryFrechet(torch.autograd.Function):
    @staticmethod
    def forward(rule: Rule, matrices: Tensor, direction: Tensor) -> Tensor:
        if is_plain(matrices) and is_plain(direction):
            return owned(rule.frechet(matrices, direction))
        return rule.frechet_op(matrices, direction)

    setup_context = staticmethod(_save)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        return None, *_frechet_pullback(ctx.rule, ctx, cotangent, ctx.needs_input_grad[1])

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor | None, direction_tangent: Tensor | None) -> Tensor:
        refuse_nested_forward_modes()
        matrices, direction = ctx.saved_tensors
        # As contiguous as the value: torch insists that a tangent has the strides of its primal.
        result = torch.zeros_like(matrices, memory_format=torch.contiguous_format)
        if direction_tangent is not None:
            result = result + _PrimaryFrechet.apply(ctx.rule, matrices, direction_tangent)
        if tangent is not None:
            result = result + _second(ctx.rule, matrices, direction, tangent)
        return result

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[None, int | None, int | None],
        rule: Rule,
        matrices: Tensor,
        direction: Tensor,
    ) -> tuple[Tensor, int]:
        moved = (
            x.unsqueeze(0) if dim is None else x.movedim(dim, 0)
            for x, dim in zip((matrices, direction), in_dims[1:], strict=True)
        )
        return _PrimaryFrechet.apply(rule, *torch.broadcast_tensors(*moved)), 0


def _second(rule: Rule, matrices: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The second derivative at A, bilinear and symmetric in its two directions.

    It is the upper right block of L([[A, E], [0, A]], [[F, 0], [0, F]]). E is first brought to the size of A.
    """
    if not matrices.shape[-1]:
        return matrices + first + second  # nothing, but a function of all three
    largest = [x.detach().abs().amax((-2, -1), keepdim=True) for x in (matrices, first)]
    ratio = largest[1] / largest[0]
    scale = torch.where((ratio > 0) & ratio.isfinite(), torch.exp2(torch.log2(ratio).floor()), 1.0)
    zero = torch.zeros_like(matrices)
    block = _blocks(matrices, first / scale, zero, matrices)
    n = matrices.shape[-1]
    return _PrimaryFrechet.apply(rule, block, _blocks(second, zero, zero, second))[..., :n, n:] * scale


def _blocks(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.cat([torch.cat([a, b], -1), torch.cat([c, d], -1)], -2)


def differentiable(rule: Rule, matrices: Tensor) -> Tensor:
    """f(A) with its derivatives."""
    if torch.compiler.is_compiling():
        return rule.value_op(matrices)
    return _Value.apply(rule, matrices)

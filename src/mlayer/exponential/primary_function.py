"""A function of matrices with derivatives of every order, from its value and its Frechet derivative.

Everything rests on these two primitives, f(A) and L(A, E), because they are closed under differentiation
(docs/theory/expm.md, docs/theory/inverse.md), for the inner product tr(X^H Y):

    pull-back of f at A:     G -> L(A^H, G)
    push-forward of f at A:  E -> L(A, E)
    L(A, E) is the upper right block of f([[A, E], [0, A]]), so its own derivatives are Frechet
    derivatives of twice the size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mlayer.exponential.arguments import moved_and_broadcast
from mlayer.exponential.define_operator import Rules, define

Value = Callable[[Tensor], Tensor]
Frechet = Callable[[Tensor, Tensor], Tensor]
Tensors = Sequence[Tensor]


def define_primary(
    name: str, derivative_name: str, value: Value, frechet: Frechet, scale: Frechet
) -> tuple[Value, Frechet]:
    """Two operators with derivatives of every order, F and its Frechet derivative.

    Args:
        name: of the operator F.
        derivative_name: of its derivative.
        value: f, for tensors (..., n, n) with memory.
        frechet: L, for the same.
        scale: (A, E) -> powers of two, (..., 1, 1), constants to differentiation, by which E is divided
            before it becomes a block next to A.
    """

    def second(matrices: Tensor, first: Tensor, other: Tensor) -> Tensor:
        """The second derivative at A, bilinear and symmetric in its two directions.

        It is the upper right block of L([[A, E], [0, A]], [[F, 0], [0, F]]).
        """
        n = matrices.shape[-1]
        if not n:
            return matrices + first + other  # nothing, but a function of all three
        size = scale(matrices, first)
        zero = torch.zeros_like(matrices)
        block = _blocks(matrices, first / size, zero, matrices)
        return derivative(block, _blocks(other, zero, zero, other))[..., :n, n:] * size

    def push_forward(_: object, tensors: Tensors, tangents: Sequence[Tensor | None]) -> Tensor:
        (matrices, direction), (tangent, direction_tangent) = tensors, tangents
        # As contiguous as the value: torch insists that a tangent has the strides of its primal.
        result = torch.zeros_like(matrices, memory_format=torch.contiguous_format)
        if direction_tangent is not None:
            result = result + derivative(matrices, direction_tangent)
        if tangent is not None:
            result = result + second(matrices, direction, tangent)
        return result

    def pull_back(
        _: object, tensors: Tensors, cotangents: Tensors, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        (matrices, direction), (cotangent,) = tensors, cotangents
        return [
            second(adjoint(matrices), adjoint(direction), cotangent) if wanted[0] else None,
            derivative(adjoint(matrices), cotangent) if wanted[1] else None,
        ]

    rules = Rules(
        frechet,
        lambda matrices, direction: _empty(matrices),
        lambda size, dims, *tensors: (derivative(*moved_and_broadcast(tensors, dims)), 0),
        pull_back,
        push_forward,
    )
    derivative = define(derivative_name, "(Tensor matrices, Tensor direction) -> Tensor", rules, tensors=2)
    rules = Rules(
        value,
        _empty,
        lambda size, dims, matrices: (function(matrices.movedim(dims[0], 0)), 0),
        pull_back=lambda _, tensors, cotangents, __: [derivative(adjoint(tensors[0]), cotangents[0])],
        push_forward=lambda _, tensors, tangents: derivative(tensors[0], tangents[0]),
    )
    function = define(name, "(Tensor matrices) -> Tensor", rules, tensors=1)
    return function, derivative


def adjoint(matrices: Tensor) -> Tensor:
    """A^H."""
    return matrices.mT.conj_physical() if matrices.is_complex() else matrices.mT


def _empty(matrices: Tensor) -> Tensor:
    return torch.empty_like(matrices, memory_format=torch.contiguous_format)


def _blocks(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.cat([torch.cat([a, b], -1), torch.cat([c, d], -1)], -2)

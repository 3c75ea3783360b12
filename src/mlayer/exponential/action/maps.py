"""The three kinds of A, each by what the method asks of it. Vectors come as (b, n, c), c for each matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.exponential.action.norms import probes
from mlayer.exponential.action.sparse import Pattern, multiply, multiply_adjoint, sample
from mlayer.exponential.action.wide_exponents import Entries


class Map(Protocol):
    """A linear map, B in docs/theory/action.md."""

    def apply(self, x: Tensor) -> Tensor:
        """B x, differentiable."""
        ...

    def adjoint(self, x: Tensor) -> Tensor:
        """B^H x, differentiable."""
        ...

    def advance(self, x: Tensor, scale: float, out: Tensor | None) -> Tensor:
        """Scale B x, into ``out`` if that saves memory; not differentiable."""
        ...


class Matrix(Map, Protocol):
    """A linear map with entries, in which one may differentiate."""

    @property
    def entries(self) -> Tensor: ...

    def on(self, entries: Tensor) -> Matrix:
        """The same map with other entries."""
        ...

    def outer(self, g: Tensor, x: Tensor) -> Tensor:
        """G x^H at the entries: the gradient of <G, B x>."""
        ...

    def listed(self, item: int) -> Entries:
        """The entries of one matrix, those of the shift too; not differentiable."""
        ...


@dataclass(frozen=True)
class Dense:
    """Matrices (b, n, n)."""

    entries: Tensor

    def on(self, entries: Tensor) -> Dense:
        return Dense(entries)

    def apply(self, x: Tensor) -> Tensor:
        return self.entries @ x

    def adjoint(self, x: Tensor) -> Tensor:
        return self.entries.mH @ x

    def outer(self, g: Tensor, x: Tensor) -> Tensor:
        return g @ x.mH

    def listed(self, item: int) -> Entries:
        matrix = self.entries.detach()[item]
        rows, columns = matrix.nonzero(as_tuple=True)
        return Entries(rows, columns, matrix[rows, columns])

    def advance(self, x: Tensor, scale: float, out: Tensor | None) -> Tensor:
        return torch.baddbmm(x, self.entries, x, beta=0.0, alpha=scale, out=out)


@dataclass(frozen=True)
class Sparse:
    """One sparse matrix, less ``shift`` times the identity; b = 1."""

    pattern: Pattern
    entries: Tensor  # (nnz,)
    shift: complex = 0.0
    # For `advance`: the matrix made for many products, and what of the shift is not yet in its diagonal.
    matrix: Tensor | None = None
    rest: complex = 0.0

    def on(self, entries: Tensor) -> Sparse:
        return replace(self, entries=entries, matrix=None)

    def ready(self) -> Sparse:
        """The same map with its matrix prepared for many products."""
        values, rest = self.entries.detach(), self.shift
        diagonal = (self.pattern.rows == self.pattern.columns).nonzero().squeeze(1)
        if rest and torch.equal(
            self.pattern.rows[diagonal], torch.arange(self.pattern.n, device=values.device)
        ):
            values, rest = values.index_add(0, diagonal, values.new_full(diagonal.shape, -rest)), 0.0
        return replace(self, matrix=self.pattern.matrix(values), rest=rest)

    def product(self, x: Tensor) -> Tensor:
        """B x, not differentiable."""
        return self.advance(x, 1.0, None)

    def adjoint_map(self) -> Sparse:
        """The adjoint as a map, for many products."""
        entries = self.entries.detach().conj()[self.pattern.order].resolve_conj()
        return Sparse(self.pattern.transposed, entries, self.shift.conjugate()).ready()

    def apply(self, x: Tensor) -> Tensor:
        return multiply(self.pattern, self.entries, x[0])[None] - self.shift * x

    def adjoint(self, x: Tensor) -> Tensor:
        return multiply_adjoint(self.pattern, self.entries, x[0])[None] - self.shift.conjugate() * x

    def outer(self, g: Tensor, x: Tensor) -> Tensor:
        return sample(self.pattern, g[0], x[0])

    def listed(self, item: int) -> Entries:
        diagonal = torch.arange(self.pattern.n, device=self.entries.device)
        shift = self.entries.new_full((self.pattern.n,), -self.shift)
        return Entries(
            torch.cat([self.pattern.rows, diagonal]),
            torch.cat([self.pattern.columns, diagonal]),
            torch.cat([self.entries.detach(), shift]),
        )

    def advance(self, x: Tensor, scale: float, out: Tensor | None) -> Tensor:
        assert self.matrix is not None
        into = torch.empty_like(x[0]) if out is None else out[0]
        # With beta = 0 and itself as the first argument nothing is read or copied before the product.
        first = x[0] if self.rest else into
        return torch.addmm(first, self.matrix, x[0], beta=-scale * self.rest, alpha=scale, out=into)[None]


@dataclass(frozen=True)
class Function:
    """A linear function of tensors of one shape; x is (1, n, 1), all of such a tensor as one vector."""

    function: Callable[[Tensor], Tensor]
    given_adjoint: Callable[[Tensor], Tensor] | None
    shape: torch.Size

    def check(self, like: Tensor, norm: float | None, longest: float) -> None:
        """Raise unless A is linear, and ``adjoint`` and ``norm`` its own, as far as two vectors show.

        Rounding is allowed for, also what a function computes in half precision, and that of a result that
        would be zero without it. ``longest`` is the largest of the times.
        """
        n, size = like.shape[1], float(torch.where(like.isfinite(), like, 0).abs().amax()) or 1.0
        u, v = (n * size * probes(1, n, like)).split(1, 2)
        factor = complex(-1.75, 0.5) if like.is_complex() else -1.75
        with torch.no_grad():
            self._check_zero(like)
            first, second, both = self.apply(u), self.apply(v), self.apply(u + factor * v)
            back = None if self.given_adjoint is None else self.adjoint(v)
        if not all(bool(x.isfinite().all()) for x in (first, second, both)):
            return  # the norm will not be finite either
        eps = torch.finfo(like.dtype).eps
        noise = eps**0.5 * float(u.norm()) / longest if longest else math.inf
        lengths = float(first.norm()), abs(factor) * float(second.norm())
        if float((both - first - factor * second).norm()) > max(eps**0.25 * sum(lengths), noise):
            raise ArgumentError(
                "A",
                "a linear function",
                "one with A(x + c y) other than A(x) + c A(y)",
                "Leave out what is not linear; of complex numbers conj and real are not. Switch dropout off.",
            )
        if back is not None and bool(back.isfinite().all()):
            apart = abs(complex((v.conj() * first).sum() - (back.conj() * u).sum()))
            most = eps**0.25 * (float(v.norm()) * lengths[0] + float(back.norm()) * float(u.norm()))
            if apart > max(most, noise * float(v.norm())):
                raise ArgumentError(
                    "adjoint",
                    "the function x -> A^H x",
                    "one with <y, A x> other than <A^H y, x>",
                    "Leave it out if A is made of torch's operations.",
                )
        for x, image in ((u, first), (v, second)):
            if norm is not None and all(
                float(image.norm(p))
                > (norm + eps**0.5 / max(longest, eps)) * (1 + eps**0.25) * float(x.norm(p))
                for p in (1, 2)
            ):
                raise ArgumentError(
                    "norm",
                    f"a bound of the 1-norm of A, here at least {float(image.norm(1) / x.norm(1)):.3g}",
                    f"{norm:.3g}",
                    "Leave it out to have it estimated.",
                )

    def _check_zero(self, like: Tensor) -> None:
        """Raise if 0 has an image other than 0: a bias, which no exponential of a matrix describes."""
        image = self.apply(torch.zeros_like(like))
        if bool((image.isfinite() & (image != 0)).any()):
            raise ArgumentError(
                "A",
                "a linear function",
                "one with A(0) = b other than 0",
                "Leave the constant out: x -> A(x) - A(0). For x' = A x + b append a 1 to x.",
            )

    def apply(self, x: Tensor) -> Tensor:
        result = self._call(self.function, "A", x)
        if torch.is_grad_enabled() and x.requires_grad and not result.requires_grad:
            if self.given_adjoint is None:
                raise ArgumentError(
                    "adjoint",
                    "given where A computes outside of torch's autograd and a gradient is wanted",
                    "None",
                    "Give the function x -> A^H x.",
                )
            return _Opaque.apply(self, x)
        return result

    def adjoint(self, x: Tensor) -> Tensor:
        if self.given_adjoint is not None:
            return self._call(self.given_adjoint, "adjoint", x)
        # In inference mode too: this derivative is a tool, not what the caller asks for.
        inside = torch.is_inference_mode_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            x = x.clone() if x.is_inference() else x
            argument = torch.zeros_like(x).requires_grad_()
            try:
                result = self.function(argument.reshape(self.shape))
            except RuntimeError:
                if inside:  # it has tensors made in inference mode, which autograd refuses
                    raise self._not_differentiable() from None
                raise
            if not result.requires_grad:
                raise self._not_differentiable()
            return torch.autograd.grad(result, argument, x.reshape(self.shape))[0]

    @staticmethod
    def _not_differentiable() -> ArgumentError:
        return ArgumentError(
            "A",
            "made of torch's differentiable operations if neither adjoint nor norm is given",
            "a function whose result has no gradient",
            "Give adjoint, the function x -> A^H x, or norm, a bound of the 1-norm of A.",
        )

    def advance(self, x: Tensor, scale: float, out: Tensor | None) -> Tensor:
        return self.apply(x) * scale

    def columns(self, x: Tensor, adjoint: bool) -> Tensor:
        """B X or B^H X of several vectors, one call each.  (1, n, c) -> (1, n, c)"""
        product = self.adjoint if adjoint else self.apply
        return torch.cat([product(column) for column in x.split(1, 2)], 2)

    def _call(self, function: Callable[[Tensor], Tensor], name: str, x: Tensor) -> Tensor:
        given = x.reshape(self.shape)
        if given.is_inference():  # has no counter of its changes
            return self._checked(function(given.clone()), name, x)
        before = given._version
        result = function(given)
        if given._version != before:
            hint = "Copy it first: x.clone()."
            raise ArgumentError(
                name, "a function that leaves its argument as it is", "one that changes it", hint
            )
        return self._checked(result, name, x)

    def _checked(self, result: object, argument: str, x: Tensor) -> Tensor:
        shape = tuple(self.shape)
        if not isinstance(result, Tensor) or result.shape != self.shape or result.dtype != x.dtype:
            came = (
                f"{result.dtype} of shape {tuple(result.shape)}"
                if isinstance(result, Tensor)
                else type(result).__name__
            )
            raise ArgumentError(
                argument,
                f"a linear function that maps {x.dtype} of shape {shape} to the same",
                came,
                "Give V the shape and the dtype of the result.",
            )
        return result.reshape(x.shape)


class _Opaque(torch.autograd.Function):
    """A function that autograd does not see, with the adjoint that was given for it."""

    @staticmethod
    def forward(ctx: object, mapping: Function, x: Tensor) -> Tensor:
        ctx.mapping = mapping  # type: ignore[attr-defined]
        return mapping.apply(x)

    @staticmethod
    def backward(ctx: object, g: Tensor) -> tuple[None, Tensor]:
        mapping: Function = ctx.mapping  # type: ignore[attr-defined]
        assert mapping.given_adjoint is not None
        return None, Function(mapping.given_adjoint, mapping.function, mapping.shape).apply(g)

"""Products with a sparse matrix, differentiable in its values to every order.

Three operations are closed under differentiation: A X, A^H X, and the entries of G X^H where A has them.
Torch's own sparse products know no second derivative, and no derivative in the values of CSR.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pattern:
    """The places of the entries of an (n, n) matrix, row by row."""

    n: int
    rows: Tensor  # (nnz,), sorted
    columns: Tensor

    @cached_property
    def row_starts(self) -> Tensor:
        counts = torch.bincount(self.rows, minlength=self.n)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(self._index)

    @cached_property
    def short_columns(self) -> Tensor:
        return self.columns.to(self._index)

    @property
    def _index(self) -> torch.dtype:
        # MKL works with 32 bits and would convert longer ones at every product.
        return torch.int32 if max(self.n, len(self.rows)) < 2**31 else torch.int64

    @cached_property
    def order(self) -> Tensor:
        """The entries column by column: how the transpose's values follow from the matrix's."""
        return torch.argsort(self.columns, stable=True)

    @cached_property
    def transposed(self) -> Pattern:
        other = Pattern(self.n, self.columns[self.order], self.rows[self.order])
        # The transpose of the transpose is this one, in this order.
        inverse = torch.empty_like(self.order)
        inverse[self.order] = torch.arange(len(self.order), device=self.order.device)
        other.__dict__.update(order=inverse, transposed=self)
        return other

    def matrix(self, values: Tensor) -> Tensor:
        """The matrix for torch's products: CSR where torch multiplies by it, COO elsewhere."""
        size = (self.n, self.n)
        if values.device.type == "cuda" or (
            values.device.type == "cpu" and torch.backends.mkl.is_available()
        ):
            with warnings.catch_warnings():
                # Torch says once that CSR is in beta state.
                warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
                parts = (self.row_starts, self.short_columns, values)
                return torch.sparse_csr_tensor(*parts, size=size, check_invariants=False)
        indices = torch.stack([self.rows, self.columns])
        return torch.sparse_coo_tensor(indices, values, size, is_coalesced=True, check_invariants=False)

    def sampled(self, g: Tensor, x: Tensor) -> Tensor:
        """The entries of G X^H at this pattern.  (n, c) twice -> (nnz,)"""
        if g.device.type == "cpu" and not g.is_complex() and torch.backends.mkl.is_available():
            matrix = self.matrix(g.new_zeros(len(self.rows)))
            return torch.sparse.sampled_addmm(matrix, g.contiguous(), x.mT, beta=0.0).values()
        # A few columns at a time: the product needs nnz numbers for each.
        parts = zip(g.split(16, 1), x.split(16, 1), strict=True)
        return sum(((a[self.rows] * b[self.columns].conj()).sum(1) for a, b in parts), g.new_zeros(()))


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(values, x)
        return pattern.matrix(values) @ x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        values, x = ctx.saved_tensors
        on_values = sample(ctx.pattern, g, x) if ctx.needs_input_grad[1] else None
        on_x = multiply_adjoint(ctx.pattern, values, g) if ctx.needs_input_grad[2] else None
        return None, on_values, on_x


class _Sample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pattern: Pattern, g: Tensor, x: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(g, x)
        return pattern.sampled(g, x)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        g, x = ctx.saved_tensors
        on_g = multiply(ctx.pattern, cotangent, x) if ctx.needs_input_grad[1] else None
        on_x = multiply_adjoint(ctx.pattern, cotangent, g) if ctx.needs_input_grad[2] else None
        return None, on_g, on_x


def multiply(pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
    """A X.  (nnz,), (n, c) -> (n, c)"""
    return _Multiply.apply(pattern, values, x)


def multiply_adjoint(pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
    """A^H X.  (nnz,), (n, c) -> (n, c)"""
    return _Multiply.apply(pattern.transposed, values.conj()[pattern.order], x)


def sample(pattern: Pattern, g: Tensor, x: Tensor) -> Tensor:
    """The entries of G X^H where A has them.  (n, c) twice -> (nnz,)"""
    return _Sample.apply(pattern, g, x)

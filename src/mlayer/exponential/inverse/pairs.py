"""Matrices with a tangent: the algebra in which logarithm and root are written once, derivatives included."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class MatrixPair:
    """X and, where a derivative is wanted, its tangent H; both (b, n, n)."""

    x: Tensor
    h: Tensor | None = None

    def __matmul__(self, other: MatrixPair) -> MatrixPair:
        x = self.x @ other.x
        if self.h is None or other.h is None:
            return MatrixPair(x)
        return MatrixPair(x, self.x @ other.h + self.h @ other.x)

    def __add__(self, other: MatrixPair) -> MatrixPair:
        return MatrixPair(self.x + other.x, None if self.h is None or other.h is None else self.h + other.h)

    def __rmul__(self, scale: float | Tensor) -> MatrixPair:
        return MatrixPair(scale * self.x, None if self.h is None else scale * self.h)

    def plus_identity(self, scale: float = 1.0) -> MatrixPair:
        return MatrixPair(
            self.x + scale * torch.eye(self.x.shape[-1], dtype=self.x.dtype, device=self.x.device), self.h
        )

    def inverse(self) -> tuple[MatrixPair, Tensor]:
        """The inverse, and log |det X| of each.  -> , (b,)"""
        factors, pivots, _ = torch.linalg.lu_factor_ex(self.x)
        eye = torch.eye(self.x.shape[-1], dtype=self.x.dtype, device=self.x.device).expand_as(self.x)
        x = torch.linalg.lu_solve(factors, pivots, eye)
        logarithm = factors.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
        return MatrixPair(x, None if self.h is None else -x @ self.h @ x), logarithm

    def transposed(self) -> MatrixPair:
        return MatrixPair(self.x.mT, None if self.h is None else self.h.mT)

    def select(self, index: Tensor) -> MatrixPair:
        return MatrixPair(self.x[index], None if self.h is None else self.h[index])

    def replaced(self, index: Tensor, other: MatrixPair) -> MatrixPair:
        """The same with the other's matrices at these places."""
        h = None if self.h is None or other.h is None else self.h.index_copy(0, index, other.h)
        return MatrixPair(self.x.index_copy(0, index, other.x), h)

    def where(self, condition: Tensor, other: MatrixPair) -> MatrixPair:
        """This in the matrices where the condition holds, the other elsewhere."""
        mask = condition[:, None, None]
        h = None if self.h is None or other.h is None else torch.where(mask, self.h, other.h)
        return MatrixPair(torch.where(mask, self.x, other.x), h)

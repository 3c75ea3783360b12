"""Least squares by the normal equations, of all columns or of some of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlayer.numerics.arrays import Array, Flags

# Singular values below 1e-6 of the largest are dropped, which are roots of these.
_RANK = 1e-12


@dataclass(frozen=True)
class NormalEquations:
    """Columns and targets of weighted rows, with their products, which serve every choice of columns."""

    columns: Array  # (rows, columns)
    y: Array  # (rows, outputs)
    weight: Array  # (rows,)
    squared: Array  # products of the columns, (columns, columns)
    crossed: Array  # products of the columns and the targets, (columns, outputs)

    @classmethod
    def of(cls, columns: Array, y: Array, weight: Array) -> NormalEquations:
        """The products."""
        weighted = columns * weight[:, None]
        return cls(columns, y, weight, weighted.T @ columns, weighted.T @ y)

    def solved(self, kept: Flags | None = None) -> tuple[Array, float, Array]:
        """Coefficients of the columns, or of those kept, the weighted sum of squares, and a matrix F.

        F F^T is the inverse of the matrix of the equations. Nearly equal columns would get huge opposite
        coefficients: directions that hardly vary are left out.
        """
        kept = np.ones(len(self.squared), dtype=bool) if kept is None else kept
        sizes, vectors = np.linalg.eigh(self.squared[np.ix_(kept, kept)])
        enough = sizes > _RANK * sizes[-1]
        factor = vectors[:, enough] / np.sqrt(sizes[enough])
        found = np.zeros_like(self.crossed)
        found[kept] = factor @ (factor.T @ self.crossed[kept])
        squares = float((self.weight @ np.square(self.y - self.columns @ found)).sum())
        return found[kept], squares, np.asarray(factor)

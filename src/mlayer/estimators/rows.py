"""Rows in a standard form: equal rows are merged, weights added, the order is that of the values.

A fit then depends on what the data say and not on how they are written down: a row given twice counts as
one of weight 2, a row of weight 0 as none, and shuffling changes nothing, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlayer.errors import ArgumentError
from mlayer.memory import available_memory, readable
from mlayer.numerics.arrays import Array

_COPIES = 4  # of a dense table that a fit makes


@dataclass(frozen=True)
class Rows:
    """Rows with positive weights of mean 1."""

    x: Array  # (rows, inputs)
    y: NDArray[Any]  # (rows, outputs), or (rows,) class indices
    weight: Array  # (rows,)

    def __len__(self) -> int:
        return len(self.x)

    def part(self, chosen: NDArray[np.bool_]) -> Rows:
        """The chosen rows, weights again of mean 1."""
        weight = self.weight[chosen]
        return Rows(self.x[chosen], self.y[chosen], weight / weight.mean())


def scaled_weights(weight: Array, name: str) -> Array:
    """Weights over the power of two next to the largest: their sums are finite, and nothing is rounded.

    Only ratios count. A weight that is negligible compared with the largest counts as 0.

    >>> import numpy as np
    >>> scaled_weights(np.array([2.0**1023, 2.0**1022, 0.0]), "sample_weight").tolist()
    [1.0, 0.5, 0.0]
    """
    largest = weight.max(initial=0.0)
    if not (np.isfinite(weight).all() and weight.min(initial=0.0) >= 0 and largest > 0):
        raise ArgumentError(
            name,
            "finite, not negative and not all 0",
            f"values from {weight.min(initial=np.inf):.3g} to {weight.max(initial=-np.inf):.3g}",
            "Leave it out to give all rows the same weight.",
        )
    return np.asarray(np.ldexp(weight, 1 - np.frexp(largest)[1]))


def standard_rows(x: Array, y: NDArray[Any], weight: NDArray[np.float64] | None) -> Rows:
    """The rows of a table in standard form.

    >>> import numpy as np
    >>> x, y = np.array([[2.0], [1.0], [2.0]]), np.array([[0.5], [0.0], [0.5]])
    >>> rows = standard_rows(x, y, None)
    >>> rows.x[:, 0].tolist(), (rows.weight * 1.5).tolist()
    ([1.0, 2.0], [1.0, 2.0])
    """
    weight = np.ones(len(x)) if weight is None else scaled_weights(weight, "sample_weight")
    kept = weight > 0
    x, y, weight = x[kept], y[kept], weight[kept]
    table = np.column_stack([x, y.astype(np.float64)]) + 0.0  # minus zero is zero
    # The last key is the first: by inputs, then by targets; equal rows by weight, so that the order in
    # which weights are added does not depend on the order of the rows either.
    order = np.lexsort(np.vstack([weight, table.T[::-1]]))
    table, weight = table[order], weight[order]
    first = np.ones(len(table), dtype=bool)
    first[1:] = (table[1:] != table[:-1]).any(axis=1)
    total = np.add.reduceat(weight, np.flatnonzero(first))
    chosen = order[first]
    return Rows(x[chosen] + 0.0, y[chosen], total / total.mean())


def dense(X: Any) -> Any:
    """A table without sparse columns, or the dense array of a sparse matrix; anything else as it is.

    Raises:
        ArgumentError: it would not fit into the memory.
    """
    types = list(getattr(X, "dtypes", ())) if hasattr(X, "columns") else []
    sparse = [hasattr(each, "fill_value") and hasattr(each, "subtype") for each in types]
    is_matrix = hasattr(X, "toarray") and hasattr(X, "nnz") and len(getattr(X, "shape", ())) == 2
    if not is_matrix and not any(sparse):
        return X
    free, need = available_memory(), 8 * _COPIES * X.shape[0] * X.shape[1]
    if free is not None and need > free:
        raise ArgumentError(
            "X",
            f"small enough for a dense array: {readable(free)} are free",
            f"sparse, {X.shape[0]} rows and {X.shape[1]} columns, which would take {readable(need)}",
            "Choose columns, or reduce them by sklearn.decomposition.TruncatedSVD in a pipeline.",
        )
    if is_matrix:
        return X.toarray()
    return X.astype(
        {name: each.subtype for name, each in zip(X.columns[sparse], X.dtypes[sparse], strict=True)}
    )

"""Quartic forms as matrices on symmetric matrices y y^T, symmetric in all four indices.

docs/theory/certificates.md, theorems 5 and 6.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.jets import Indices, sorted_pairs

Array = NDArray[np.float64]


@lru_cache(maxsize=4)
def _exchanges(d: int) -> tuple[Indices, Indices, Array]:
    """Where Q_{ac,bd} and Q_{ad,bc} stand in the flat matrix, and a third of the coordinates' weights."""
    pairs, place = sorted_pairs(d)
    i, j = pairs.T
    A, B, C, D = i[:, None], j[:, None], i[None, :], j[None, :]
    count = len(pairs)
    weight = np.where(i == j, 1.0, np.sqrt(2.0))
    one, two = place[A, C] * count + place[B, D], place[A, D] * count + place[B, C]
    return one, two, weight[:, None] * weight[None, :] / 3


def symmetric_form(Q: Array, d: int) -> Array:
    """The form of the fully symmetric tensor on y y^T, in coordinates sqrt(2) y_a y_b off the diagonal.

    Args:
        Q: (pairs, pairs), the tensor Q_{ab,cd} over sorted pairs, symmetric in a, b and in c, d.
        d: of the coordinates y.
    """
    one, two, weight = _exchanges(d)
    Q = Q + Q.T
    form = Q + np.take(Q, one)
    form += np.take(Q, two)
    form *= weight
    # Both orders of the pairs are in it: the exchanges of a symmetric Q are symmetric up to rounding.
    result: Array = (form + form.T) / 4
    return result


def least_ritz_value(form: Array, steps: int) -> float:
    """The least Ritz value after some steps: at least the least eigenvalue, and near it."""
    steps = min(steps, len(form))
    basis = np.zeros((steps, len(form)))
    v = np.cos(np.arange(len(form), dtype=np.float64))
    for k in range(steps):
        for _ in range(2):  # orthogonal to the earlier ones, twice for rounding
            v = v - basis[:k].T @ (basis[:k] @ v)
        length = float(np.linalg.norm(v))
        if length <= 1e-300:
            basis = basis[:k]
            break
        basis[k] = v / length
        v = form @ basis[k]
    return float(np.linalg.eigvalsh(basis @ form @ basis.T)[0])

"""Quartic forms as matrices on symmetric matrices y y^T, symmetric in all four indices.

docs/theory/certificates.md, theorems 5 and 6.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.derivatives.divided_differences import Indices
from mlayer.certificates.derivatives.jets import sorted_pairs
from mlayer.numerics.arrays import Array


@lru_cache(maxsize=4)
def _exchanges(d: int) -> tuple[Indices, Indices, Array]:
    """The places of Q_{ac,bd} and Q_{ad,bc} in the flat matrix, and a third of the coordinates' weights."""
    pairs, place = sorted_pairs(d)
    i, j = pairs.T
    A, B, C, D = i[:, None], j[:, None], i[None, :], j[None, :]
    count = len(pairs)
    weight = np.where(i == j, 1.0, np.sqrt(2.0))
    one, two = place[A, C] * count + place[B, D], place[A, D] * count + place[B, C]
    return one, two, weight[:, None] * weight[None, :] / 3


def symmetric_form(Q: Array | NDArray[np.float32], d: int) -> Array:
    """The form of the fully symmetric tensor on y y^T, in coordinates sqrt(2) y_a y_b off the diagonal.

    The sums are in the precision of Q, the result is in double precision.

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
    result: Array = ((form + form.T) / 4).astype(np.float64)
    return result


def least_ritz_value(form: Array, steps: int) -> float:
    """The least Ritz value after some steps: near the least eigenvalue, a guess of it in single precision."""
    steps = min(steps, len(form))
    size = float(np.abs(form).max(initial=0.0))
    if size == 0:
        return 0.0
    single = (form / size).astype(np.float32)
    basis, images = np.zeros((2, steps, len(form)), np.float32)
    v = np.cos(np.arange(len(form), dtype=np.float32))
    for k in range(steps):
        for _ in range(2):  # orthogonal to the earlier ones, twice for rounding
            v = v - basis[:k].T @ (basis[:k] @ v)
        length = float(np.linalg.norm(v))
        if length <= 1e-6:  # of images of norm about 1 at most: nothing new is left
            basis, images = basis[:k], images[:k]
            break
        basis[k] = v / length
        v = images[k] = single @ basis[k]
    inner = basis @ images.T
    return float(np.linalg.eigvalsh((inner + inner.T) / 2)[0]) * size

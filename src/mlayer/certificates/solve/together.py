"""Rows together: what their bounds read first, computed for all rows and rivals of a chunk at once.

The numbers are those that `Row` and `Pair` would compute one at a time, by the same formulas: matrices,
exponentials, logarithmic norms, gradients, second derivatives. Products are taken row by row, in shapes that
do not depend on how many rows there are, so a row's result does not depend on the others.
"""

from __future__ import annotations

import numpy as np

from mlayer.certificates.bounds.first_order import FirstOrder
from mlayer.certificates.bounds.methods import STRATEGY, is_closed_form
from mlayer.certificates.derivatives.spectral import SpectralPath
from mlayer.certificates.linalg import top_eigenvalue
from mlayer.certificates.overflow import unless_out_of_range
from mlayer.certificates.problem.expansion import Pair, Row
from mlayer.certificates.problem.model import Model, exponentials, gradients, log_norms
from mlayer.certificates.solve.corner import corner
from mlayer.numerics.arrays import Array

_MOST_ROWS = 64
_ENTRIES = 4_000_000  # of the slopes or the block matrices of a chunk


def chunk_size(model: Model) -> int:
    """Rows that are taken together."""
    rivals, n, m = len(model.weights.S) - 1, model.weights.n, len(model.weights.rows)
    return max(1, min(_MOST_ROWS, _ENTRIES // max(rivals * max(m, 4 * n * n), 1)))


def rows_together(model: Model, x: Array, labels: list[int], method: str, eps: float | None) -> list[Row]:
    """The rows of a chunk, with what their answers read first.  x: (rows, m)"""
    M = model.weights.matrices(x)
    E = exponentials(M)
    rows = [Row(model, x[k], label, M[k], E[k]) for k, label in enumerate(labels)]
    right = [row for row in rows if row.is_right]
    if not right:
        return rows
    for row, mu in zip(right, log_norms(np.stack([row.M_gauge for row in right])).tolist(), strict=True):
        row.mu = mu + row.off
    right = [row for row in right if row.in_range]
    if right and not is_closed_form(method):
        _with_slopes(model, right)
        if eps is not None and eps > 0 and method == STRATEGY:
            _with_screening(right, eps)
    return rows


def _with_slopes(model: Model, rows: list[Row]) -> None:
    """Every pair's gradient, in the features and in the inputs."""
    W = np.stack([np.delete(model.differences(row.label), row.label, 0) for row in rows])
    found = gradients(model, np.stack([row.M for row in rows]), W)
    for row, gradient in zip(rows, found, strict=True):
        slopes = np.ascontiguousarray((model.weights.rows @ gradient.T).T)
        rivals = (rival for rival in range(len(model.weights.S)) if rival != row.label)
        for k, rival in enumerate(rivals):
            pair = row.known[rival] = Pair(row, rival)
            pair.gradient, pair.slopes = gradient[k], slopes[k]


@unless_out_of_range(None)
def _with_screening(rows: list[Row], eps: float) -> None:
    """For a fixed eps: which corners break a margin; second derivatives where the first order falls short."""
    likeliest = [min(row.known.values(), key=_aim) for row in rows]
    _look_at_corners(likeliest, eps)
    hard = []
    for row, first in zip(rows, likeliest, strict=True):
        if not first.broken[eps]:
            for pair in row.known.values():
                pair.easy[eps] = _is_easy(pair, eps)
            hard.append([pair for pair in row.known.values() if not pair.easy[eps]])
    _look_at_corners([pair for pairs in hard for pair in pairs if eps not in pair.broken], eps)
    hard = [pairs for pairs in hard if pairs and not any(pair.broken[eps] for pair in pairs)]
    for pairs in hard:
        path = pairs[0].row.derivatives
        if isinstance(path, SpectralPath):
            for pair, H in zip(pairs, path.seconds(np.stack([pair.W for pair in pairs])), strict=True):
                pair.second = H
    flat = [pair for pairs in hard for pair in pairs]
    if flat:
        falls = top_eigenvalue(-np.stack([pair.second for pair in flat]))
        for pair, fall in zip(flat, falls.tolist(), strict=True):
            pair.fall = fall


def _aim(pair: Pair) -> float:
    return pair.first_radius


@unless_out_of_range(False)
def _is_easy(pair: Pair, eps: float) -> bool:
    return FirstOrder(pair).lower(eps) > 0


def _look_at_corners(pairs: list[Pair], eps: float) -> None:
    """Whether each margin is negative in the corner that its gradient points to."""
    if not pairs:
        return
    model = pairs[0].row.model
    scale = model.region.scale.numpy()
    M = model.weights.matrices(np.stack([pair.row.x + corner(pair, eps) * scale for pair in pairs]))
    for pair, E in zip(pairs, exponentials(M), strict=True):
        pair.broken[eps] = bool(pair.bias + float((pair.W * E).sum()) < 0)

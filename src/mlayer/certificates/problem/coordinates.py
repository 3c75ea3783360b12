"""The ellipsoid around the region, and coordinates in which it is a ball.

docs/theory/certificates.md, lemma 2. For weights w > 0 with sum 1, every step of the L-infinity ball of
radius eps has z = U^T delta = L y with |y| <= eps, where L L^T >= sum_i u_i u_i^T / w_i. For the L2 ball
L L^T >= U^T U. Any w is sound; a good one makes the ellipsoid tight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlayer.certificates.linalg import UNIT, VANISHED, frobenius, gram_norm, ridge
from mlayer.numerics.arrays import Array


@dataclass(frozen=True)
class Whitened:
    """Coordinates y in which the ellipsoid is the ball |y| <= radius.

    Attributes:
        w: (m,), weights of the inputs; all ones for L2.
        L: (d, d), z = L y.
        rows: (m, d), y = rows^T delta.
        T: (d, n, n), N = sum_a y_a T_a.
        reach: |y|^2 <= reach^2 sum w_i delta_i^2 for these rows, as they are stored.
        error: (m,), bounds of ||sum_a rows_ia T_a - sum_a u_ia T_a||_F: what rounding did to each input's
            matrix.
    """

    w: Array
    L: Array
    rows: Array
    T: Array
    reach: float
    error: Array


def whiten(rows: Array, T: Array, w: Array | None) -> Whitened:
    """Whiten for the weights w (L-infinity) or for the L2 ball (None)."""
    if w is None:
        Q = rows.T @ rows
    else:
        used = w > 0  # rows of zeros need no weight
        Q = rows[used].T @ (rows[used] / w[used, None])
    weights = np.ones(len(rows)) if w is None else w
    L: Array = np.linalg.cholesky(Q + ridge(Q, len(rows)) * np.eye(len(Q)))  # type: ignore[assignment]
    white = np.ascontiguousarray(np.linalg.solve(L, rows.T).T)
    return Whitened(
        weights,
        L,
        white,
        np.ascontiguousarray(np.tensordot(L.T, T, 1)),
        _reach(white, weights),
        _basis_error(rows, white, L, T),
    )


def _reach(rows: Array, w: Array) -> float:
    """Proved from the stored rows: the root of the largest eigenvalue of sum_i rows_i rows_i^T / w_i.

    Entries of a weight of 0 must be rows of zeros, else nothing is proved.
    """
    used = w > 0
    if rows[~used].any():
        return math.inf
    return gram_norm(np.ascontiguousarray((rows[used] / np.sqrt(w[used])[:, None]).T))


def _basis_error(rows: Array, white: Array, L: Array, T: Array) -> Array:
    """A bound from the residual of the triangular solve and the rounding of L^T T.  (m,)"""
    sizes = np.array([frobenius(t) for t in T])
    product = np.abs(white) @ np.abs(L).T
    k = 2 * len(L) + 8
    off = np.abs(white @ L.T - rows) + k * UNIT * (product + np.abs(rows))
    error: Array = off @ sizes * (1 + 1e-9) + VANISHED
    return error


def plain_weights(rows: Array, T: Array) -> Array:
    """Weights proportional to ||A_i||_F, A_i = sum_a U_ia T_a: a fair start for every model."""
    flat = T.reshape(len(T), -1)
    w: Array = np.sqrt(np.maximum(np.einsum("ia,ab,ib->i", rows, flat @ flat.T, rows), 0.0))
    largest = w.max(initial=0.0)
    if largest > 0:
        # No weight far below the rest: 1 / w stays harmless.
        w = np.where((rows != 0).any(1), np.maximum(w, 1e-6 * largest), 0.0)
        return w / w.sum()
    used = (rows != 0).any(1)
    return used / max(used.sum(), 1)

"""The ellipsoid around the region, and coordinates in which it is a ball.

docs/theory/certificates.md, lemma 2. For weights w > 0 with sum 1, every step of the L-infinity ball of
radius eps has z = U^T delta = L y with |y| <= eps, where L L^T >= sum_i u_i u_i^T / w_i. For the L2 ball
L L^T >= U^T U. Any w is sound; a good one makes the ellipsoid tight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Added to the diagonal, relative to its mean: keeps L invertible and only enlarges the ellipsoid.
_RIDGE = 1e-11
# Relative increase of every constant that stands in for an eigenvalue or a norm: far above their
# rounding errors (docs/theory/certificates-rounding.md).
INFLATE = 1 + 1e-9
# Added to LAPACK's eigenvalues, times n max|lambda|: enough for the factorisation that proves them.
_EIGENVALUE_SLACK = 1e-11


@dataclass(frozen=True)
class Whitened:
    """Coordinates y in which the ellipsoid is the ball |y| <= radius.

    Attributes:
        w: (m,), weights of the inputs; all ones for L2.
        L: (d, d), z = L y.
        rows: (m, d), y = rows^T delta.
        T: (d, n, n), N = sum_a y_a T_a.
    """

    w: Array
    L: Array
    rows: Array
    T: Array


def whiten(rows: Array, T: Array, w: Array | None) -> Whitened:
    """Whiten for the weights w (L-infinity) or for the L2 ball (None)."""
    if w is None:
        Q = rows.T @ rows
    else:
        used = w > 0  # rows of zeros need no weight
        Q = rows[used].T @ (rows[used] / w[used, None])
    d = len(Q)
    mean = float(np.trace(Q)) / d
    Q = Q + (_RIDGE * mean if mean > 0 else 1.0) * np.eye(d)
    L: Array = np.linalg.cholesky(Q)  # type: ignore[assignment]
    return Whitened(
        np.ones(len(rows)) if w is None else w,
        L,
        np.ascontiguousarray(np.linalg.solve(L, rows.T).T),
        np.ascontiguousarray(np.tensordot(L.T, T, 1)),
    )


def plain_weights(rows: Array, T: Array) -> Array:
    """Weights proportional to ||A_i||_F, A_i = sum_a U_ia T_a: a fair start for every model."""
    flat = T.reshape(len(T), -1)
    w = np.sqrt(np.maximum(np.einsum("ia,ab,ib->i", rows, flat @ flat.T, rows), 0.0))
    largest = w.max(initial=0.0)
    if largest > 0:
        # No weight far below the rest: 1 / w stays harmless.
        w = np.where((rows != 0).any(1), np.maximum(w, 1e-6 * largest), 0.0)
        return w / w.sum()
    used = (rows != 0).any(1)
    return used / max(used.sum(), 1)


def top_eigenvalue(A: Array) -> Array:
    """Proved upper bounds of the largest eigenvalues of symmetric matrices, at least 0.  (...)

    LAPACK's value, a little enlarged, is proved by a Cholesky factorisation (`proves_positive`); should that
    fail, the Frobenius norm stands.
    """
    values = np.linalg.eigvalsh(A)
    size = np.abs(values).max(-1)
    top: Array = np.maximum(values[..., -1], 0.0) + _EIGENVALUE_SLACK * A.shape[-1] * size
    if proves_positive(-A, top):
        return top
    norm: Array = np.linalg.norm(A, axis=(-2, -1)) * INFLATE
    return norm


def power_of_two(size: float) -> float:
    """The one at or below a positive size: scaling by it is exact."""
    return math.ldexp(1.0, math.frexp(size)[1] - 1)


def gram_norm(flat: Array) -> float:
    """Proved upper bound of the spectral norm of a matrix, by the matrix of its rows' products; maybe inf.

    Scaled by a power of two first, which is exact: squares neither vanish nor overflow.
    """
    largest = float(np.abs(flat).max(initial=0.0))
    if largest == 0 or not math.isfinite(largest):
        return largest if largest == 0 else math.inf
    unit = power_of_two(largest)
    scaled = flat / unit
    return unit * math.sqrt(float(top_eigenvalue(scaled @ scaled.T))) * INFLATE


def proves_positive(A: Array, plus: float | Array = 0.0) -> bool:
    """Are the symmetric matrices A + plus certainly positive semidefinite? By Cholesky factorisations.

    Rump (BIT 46, 2006): if the factorisation of A - s with s >= n u trace(A) / (1 - n u) goes through
    in floating point, A is positive semidefinite. The shift taken is four times that, which is enough for the
    rounding of the sum on the diagonal too.
    """
    n, A = A.shape[-1], np.asarray(A, np.float64)  # the shift is for double precision
    if not (np.isfinite(A).all() and np.isfinite(plus).all()):  # not every LAPACK minds NaN
        return False
    diagonal = np.diagonal(A, axis1=-2, axis2=-1) + np.asarray(plus)[..., None]
    shift = 4 * (n + 2) * 2.0**-53 * np.abs(diagonal).sum(-1, keepdims=True)
    shifted, places = A.copy(), np.arange(n)
    shifted[..., places, places] = diagonal - shift
    failed = torch.linalg.cholesky_ex(torch.from_numpy(shifted)).info.numpy() != 0
    return not failed.any() or bool((~failed | ~shifted.any(axis=(-2, -1))).all())  # zeros have no factor

"""Eigenvalues and norms that are proved upper bounds, with the rounding of their matrices' entries.

docs/theory/certificates-rounding.md.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from mlayer.numerics.arrays import Array

# The unit roundoff of float64.
UNIT = 2.0**-53
# More than what underflow can take from a sum of products: smaller than any size that matters here.
VANISHED = 1e-290
# Added to the diagonal, relative to its mean: keeps L invertible and only enlarges the ellipsoid.
_RIDGE = 1e-11
# Relative increase of every constant that stands in for an eigenvalue or a norm: far above their
# rounding errors (docs/theory/certificates-rounding.md).
INFLATE = 1 + 1e-9
# Added to LAPACK's eigenvalues, times n max|lambda|: enough for the factorization that proves them.
_EIGENVALUE_SLACK = 1e-11
# Squarings between scalings in `norms_by_powers`: a matrix of norm 1/2 falls to no less than (1 / (4 n))^8,
# whose square is a number still.
_SCALED_EVERY = 4


def ridge(Q: Array, terms: int) -> float:
    """What, added to the diagonal of a computed Gram matrix, makes its factor's L L^T at least the true one.

    Rounding of a sum of ``terms`` products and of Cholesky's factorization, both relative to the trace.
    """
    d, trace = len(Q), float(np.trace(Q))
    return trace * (_RIDGE / d + 2 * (terms + d + 4) * UNIT) if trace > 0 else 1.0


def frobenius(A: Array) -> float:
    """The Frobenius norm, not below the true one by more than rounding, for entries of every size."""
    largest = float(np.abs(A).max(initial=0.0))
    if largest == 0 or not math.isfinite(largest):
        return largest if largest == 0 else math.inf
    unit = power_of_two(largest)
    return unit * float(np.linalg.norm(A / unit)) * INFLATE


def frobenius_each(A: Array) -> Array:
    """The same of each row.  (k, p) -> (k,)"""
    largest = np.abs(A).max(axis=1, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    unit = np.ldexp(1.0, np.frexp(np.where(usable, largest, 1.0))[1] - 1)
    norms = unit * np.linalg.norm(np.where(usable[:, None], A, 0.0) / unit[:, None], axis=1) * INFLATE
    result: Array = np.where(np.isfinite(largest), norms, math.inf)
    return result


def top_eigenvalue(A: Array) -> Array:
    """Proved upper bounds of the largest eigenvalues of symmetric matrices, at least 0.  (...)

    LAPACK's value, a little enlarged, is proved by a Cholesky factorization (`proves_positive`); should that
    fail, the Frobenius norm stands.
    """
    values = np.linalg.eigvalsh(A)
    size = np.abs(values).max(-1)
    top: Array = np.maximum(values[..., -1], 0.0) + _EIGENVALUE_SLACK * A.shape[-1] * size
    proved = are_positive(-A, top)
    if proved.all():
        return top
    norm: Array = np.where(proved, top, np.linalg.norm(A, axis=(-2, -1)) * INFLATE)
    return norm


def norms_by_powers(A: Array, squarings: int) -> Array:
    """Proved upper bounds of the spectral norms, ||A||_2 <= ||P||_F^(1 / p), P a product of p factors.  (...)

    P is A, A A^T, its square, ...: the larger p, the nearer, at the cost of a product for each doubling. The
    computed product of B with itself has an error of at most n u ||B||_F^2 <= n^2 u ||B||_2^2, which counts
    twice in the next square and of which the root at the end leaves 1 / p: 2 n^2 u in all. So the computed B
    need not be symmetric to the bit. Where A is not finite the bound is infinite.
    """
    n = A.shape[-1]
    B = A.reshape(-1, n, n)
    size, share = frobenius_each(B.reshape(len(B), -1)), 1.0
    total = np.zeros(len(B))  # the logarithm of what was divided by
    for k in range(squarings):
        if k % _SCALED_EVERY == 0:
            if k:
                size = _sizes(B, size)
            usable = np.isfinite(size) & (size > 0)
            exponent = np.frexp(np.where(usable, size, 1.0))[1]
            B = np.where(usable[:, None, None], B, 0.0) if not usable.all() else B
            B = B * np.ldexp(1.0, -exponent)[:, None, None]  # a power of two: exact
            total += share * exponent
        B, share = B @ B if k else B @ B.mT, share / 2
    if squarings:
        size = _sizes(B, size)
    result: Array = np.exp2(total) * size**share * (1 + 8 * n * n * UNIT) * INFLATE
    return result.reshape(A.shape[:-2])


def _sizes(B: Array, before: Array) -> Array:
    """The Frobenius norms; those that were not finite before stay infinite.  (k, n, n) -> (k,)"""
    flat = B.reshape(len(B), 1, -1)
    result: Array = np.where(np.isfinite(before), np.sqrt((flat @ flat.mT)[:, 0, 0]), math.inf)
    return result


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
    gram = scaled @ scaled.T
    # The errors of the Gram matrix are the rounding of its sums, together that of the trace.
    rounding = (flat.shape[1] + 4) * UNIT * float(np.trace(gram))
    return unit * math.sqrt(float(top_eigenvalue(gram)) + rounding) * INFLATE


def proves_positive(A: Array, plus: float | Array = 0.0) -> bool:
    """Whether all the symmetric matrices A + plus are certainly positive semidefinite."""
    return bool(are_positive(A, plus).all())


def are_positive(A: Array, plus: float | Array = 0.0) -> NDArray[np.bool_]:
    """A mask of the symmetric matrices A + plus that are certainly positive semidefinite, by Cholesky.  (...)

    Rump (BIT 46, 2006): if the factorization of A - s with s >= n u trace(A) / (1 - n u) goes through
    in floating point, A is positive semidefinite. The shift taken is four times that, which is enough for the
    rounding of the sum on the diagonal too.
    """
    n, A = A.shape[-1], np.asarray(A, np.float64)  # the shift is for double precision
    plus = np.asarray(plus)
    # Not every LAPACK minds NaN. A finite sum has finite terms.
    finite = np.asarray(np.isfinite(A.sum(axis=(-2, -1))) & np.isfinite(plus))
    if finite.all():
        shifted = np.array(np.broadcast_to(A, finite.shape + A.shape[-2:]))
    else:
        finite = np.asarray(np.isfinite(A).all(axis=(-2, -1)) & np.isfinite(plus))
        shifted, plus = np.where(finite[..., None, None], A, 0.0), np.where(finite, plus, 0.0)
    places = np.arange(n)
    diagonal = np.diagonal(shifted, axis1=-2, axis2=-1) + plus[..., None]
    shift = 4 * (n + 2) * 2.0**-53 * np.abs(diagonal).sum(-1, keepdims=True)
    shifted[..., places, places] = diagonal - shift
    went_through = torch.linalg.cholesky_ex(torch.from_numpy(shifted)).info.numpy() == 0
    if not went_through.all():
        went_through = went_through | ~shifted.any(axis=(-2, -1))  # zeros have no factor
    proved: NDArray[np.bool_] = finite & went_through
    return proved

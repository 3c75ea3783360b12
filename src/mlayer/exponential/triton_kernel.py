"""exp(A) and its derivative as one Triton program per matrix: float32, n <= 32.

The same mathematics as the other paths (schedule.py, docs/theory/expm.md): degree and squarings are decided
on the device, so nothing waits for the host. A matrix is padded with zeros to 16 or 32 rows, stays in
registers and shared memory from load to store, and is multiplied in IEEE float32 (no TF32). The derivative at
the adjoint is the same program with the strides of A exchanged.

A program that meets NaN, an infinity or a norm whose square may overflow, or whose result is not finite,
raises its flag and leaves the matrix to the caller.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mlayer.exponential.schedule import EIGHT, FOUR, SINGLE, SINGLE_DERIVATIVE, SIXTEEN, Schedule

F0, F1 = (tl.constexpr(c) for c in FOUR)
E0, E1, E2, E3, E4, E5 = (tl.constexpr(c) for c in EIGHT)
C0, C1, C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13, C14 = (tl.constexpr(c) for c in SIXTEEN)
LARGEST = tl.constexpr(SINGLE.largest_norm)


def _table(schedule: Schedule) -> list[tl.constexpr]:
    # A threshold that never holds compares false; -1 does so for every norm, and compiles where NaN does not.
    thetas = (*schedule.theta, *schedule.norm_theta)
    return [tl.constexpr(-1.0 if theta != theta else theta) for theta in thetas]  # noqa: PLR0124


T2, T4, T8, T16, _, _, _, _ = _table(SINGLE)
_, D4, D8, D16, B2, B4, B8, B16 = _table(SINGLE_DERIVATIVE)


@triton.jit
def _sum(x):
    # NaN stays NaN in a sum; a maximum on a GPU drops it.
    return tl.sum(tl.sum(x, axis=1), axis=0)


@triton.jit
def _one_norm(x):
    return tl.max(tl.sum(tl.abs(x), axis=0), axis=0)


@triton.jit
def _dot(x, y):
    return tl.dot(x, y, input_precision="ieee")


@triton.jit
def _strictly_triangular(a, i, j):
    lower = tl.max(tl.max(tl.where(i >= j, tl.abs(a), 0.0), axis=1), axis=0)
    upper = tl.max(tl.max(tl.where(i <= j, tl.abs(a), 0.0), axis=1), axis=0)
    return (lower == 0.0) | (upper == 0.0)


@triton.jit
def expm_kernel(A, X, FLAGS, n, batch_stride, row_stride, column_stride, exact, N: tl.constexpr):
    """X = exp(A).

    ``exact`` is the degree of the finite series of a strictly triangular matrix, 16 if there is none.
    """
    b = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    inside = (i < n) & (j < n)
    a = tl.load(A + b * batch_stride + i * row_stride + j * column_stride, mask=inside, other=0.0)
    usable = _sum(tl.abs(a)) <= LARGEST
    a = tl.where(usable, a, 0.0)
    a2 = _dot(a, a)
    d = tl.sqrt(tl.minimum(_one_norm(a2), tl.sqrt(_sum(a2 * a2))))
    degree = tl.where(d <= T2, 2, tl.where(d <= T4, 4, tl.where(d <= T8, 8, 16)))
    finite_series = (exact < 16) & _strictly_triangular(a, i, j)
    degree = tl.where(finite_series, tl.minimum(degree, exact), degree)
    limit = tl.where(finite_series, d, T16)
    squarings = 0
    sigma = 1.0
    while d * sigma > limit:
        squarings += 1
        sigma *= 0.5
    a *= sigma
    a2 = (a2 * sigma) * sigma
    x = 0.5 * a2 + a
    if degree == 4:
        x += _dot(a2, a2 * F0 + a * F1)
    if degree == 8:
        y = _dot(a2, a2 * E0 + a * E1)
        x += _dot(y + a2 * E2 + a * E3, y + a2 * E4) + y * E5
    if degree == 16:
        y = _dot(a2, a2 * C0 + a * C1)
        w = _dot(y + a2 * C2 + a * C3, y + a2 * C4) + (y * C5 + a2 * C6)
        x = _dot(w + a2 * C7 + a * C8, w + y * C9 + a * C10) + (w * C11 + y * C12 + a2 * C13 + a * C14)
    x += tl.where(i == j, 1.0, 0.0)
    for _ in range(squarings):
        x = _dot(x, x)
    total = _sum(tl.abs(tl.where(inside, x, 0.0)))
    tl.store(FLAGS + b, tl.where(usable & (total < float("inf")), 0, 1))
    tl.store(X + b * n * n + i * n + j, x, mask=inside)


@triton.jit
def frechet_kernel(A, E, H, FLAGS, n, batch_stride, row_stride, column_stride, exact, N: tl.constexpr):
    """H = L(A, E); E is contiguous. ``exact`` as above, for the derivative."""
    b = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    inside = (i < n) & (j < n)
    a = tl.load(A + b * batch_stride + i * row_stride + j * column_stride, mask=inside, other=0.0)
    e = tl.load(E + b * n * n + i * n + j, mask=inside, other=0.0)
    usable = (_sum(tl.abs(a)) <= LARGEST) & (_sum(tl.abs(e)) <= LARGEST)
    a, e = tl.where(usable, a, 0.0), tl.where(usable, e, 0.0)
    a2, e2 = _dot(a, a), _dot(a, e) + _dot(e, a)
    d = tl.sqrt(tl.minimum(_one_norm(a2), tl.sqrt(_sum(a2 * a2))))
    norm = _one_norm(a)
    degree = tl.where((d <= D8) | (norm <= B8), 8, 16)
    degree = tl.where((d <= D4) | (norm <= B4), 4, degree)
    degree = tl.where(norm <= B2, 2, degree)
    finite_series = (exact < 16) & _strictly_triangular(a, i, j)
    degree = tl.where(finite_series, tl.minimum(degree, exact), degree)
    limit = tl.where(finite_series | (norm <= B16), d, D16)
    squarings = 0
    sigma = 1.0
    while d * sigma > limit:
        squarings += 1
        sigma *= 0.5
    a, e = a * sigma, e * sigma
    a2, e2 = (a2 * sigma) * sigma, (e2 * sigma) * sigma
    x, h = 0.5 * a2 + a, 0.5 * e2 + e
    if degree == 4:
        right, dright = a2 * F0 + a * F1, e2 * F0 + e * F1
        h += _dot(a2, dright) + _dot(e2, right)
        x += _dot(a2, right)
    if degree == 8:
        right, dright = a2 * E0 + a * E1, e2 * E0 + e * E1
        y, z = _dot(a2, right), _dot(a2, dright) + _dot(e2, right)
        left, dleft = y + a2 * E2 + a * E3, z + e2 * E2 + e * E3
        right, dright = y + a2 * E4, z + e2 * E4
        h += _dot(left, dright) + _dot(dleft, right) + z * E5
        x += _dot(left, right) + y * E5
    if degree == 16:
        right, dright = a2 * C0 + a * C1, e2 * C0 + e * C1
        y, z = _dot(a2, right), _dot(a2, dright) + _dot(e2, right)
        left, dleft = y + a2 * C2 + a * C3, z + e2 * C2 + e * C3
        right, dright = y + a2 * C4, z + e2 * C4
        w = _dot(left, right) + (y * C5 + a2 * C6)
        v = _dot(left, dright) + _dot(dleft, right) + (z * C5 + e2 * C6)
        left, dleft = w + a2 * C7 + a * C8, v + e2 * C7 + e * C8
        right, dright = w + y * C9 + a * C10, v + z * C9 + e * C10
        x = _dot(left, right) + (w * C11 + y * C12 + a2 * C13 + a * C14)
        h = _dot(left, dright) + _dot(dleft, right) + (v * C11 + z * C12 + e2 * C13 + e * C14)
    x += tl.where(i == j, 1.0, 0.0)
    for _ in range(squarings):
        h = _dot(x, h) + _dot(h, x)
        x = _dot(x, x)
    total = _sum(tl.abs(tl.where(inside, h, 0.0)))
    tl.store(FLAGS + b, tl.where(usable & (total < float("inf")), 0, 1))
    tl.store(H + b * n * n + i * n + j, h, mask=inside)

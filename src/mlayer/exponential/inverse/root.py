"""The principal square root by the product form of Denman and Beavers' iteration, refined.

    M_0 = X_0 = A,   X_(k+1) = X_k (mu I + M_k^-1 / mu) / 2,   M_(k+1) = (2 I + mu^2 M_k + mu^-2 M_k^-1) / 4

M_k tends to I and X_k to A^(1/2), quadratically; mu = |det M_k|^(-1/2n) speeds up the start (S. Cheng,
N. Higham, C. Kenney, A. Laub, "Approximating the logarithm of a matrix to specified accuracy", SIAM J. Matrix
Anal. Appl. 22, 2001). Where A is ill conditioned the error of X exceeds rounding. A correction Delta with
X Delta + Delta X = A - X^2 removes it: it is the derivative of the root in the direction A - X^2, which the
same iteration gives. Where A is too ill conditioned for that, its eigenvectors are used if they are well
conditioned (docs/theory/inverse.md).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mlayer.exponential.inverse.pairs import MatrixPair

_MOST_ITERATIONS = 60
_MOST_CORRECTIONS = 3
# Residuals beyond this many times what is enough are worth the eigenvectors.
_FAR_OFF = 4
# From here on the iteration converges by itself.
_NEAR = 0.1


def square_root(a: MatrixPair) -> tuple[MatrixPair, Tensor]:
    """A^(1/2), and its relative residual ||A - X^2|| / ||A||, 0 for triangular matrices.  -> , (b,)"""
    unscaled, scale = a, _power_of_four(a.x)
    a = (1 / scale) * a
    root = _denman_beavers(a)
    residual = _residual(a, root)
    enough = 4 * torch.finfo(a.x.dtype).eps
    for _ in range(_MOST_CORRECTIONS):
        if bool((residual <= enough).all()):
            break
        corrected = _corrected(a, root)
        remaining = _residual(a, corrected)
        better = remaining < residual
        if not bool(better.any()):
            break
        root, residual = corrected.where(better, root), torch.where(better, remaining, residual)
    bad = residual > _FAR_OFF * enough
    hermitian = (a.x == a.x.mH).flatten(1).all(1)
    for chosen, method in ((bad & hermitian, _hermitian), (bad & ~hermitian, _eigenvectors)):
        if bool(chosen.any()):
            root = _spectral(a, root, chosen.nonzero().squeeze(1), method)
    remaining = torch.nan_to_num(_norm(a.x - root.x @ root.x) / _norm(a.x), torch.inf)
    # Of the matrix as it came: scaled, the small eigenvalues of a wide spectrum would underflow.
    root, exact = _triangular(unscaled, scale.sqrt() * root)
    return root, torch.where(exact, 0.0, remaining)


Spectrum = tuple[Tensor, Tensor, Tensor]  # eigenvalues, eigenvectors, their inverse


def _hermitian(a: Tensor) -> Spectrum:
    values, vectors = torch.linalg.eigh(a)
    # What is not positive was refused, or is zero to rounding.
    return values.clamp(min=torch.finfo(values.dtype).tiny).to(a.dtype), vectors, vectors.mH


def _eigenvectors(a: Tensor) -> Spectrum:
    values, vectors = torch.linalg.eig(a)
    return values, vectors, torch.linalg.inv_ex(vectors).inverse


def _spectral(
    a: MatrixPair, root: MatrixPair, index: Tensor, method: Callable[[Tensor], Spectrum]
) -> MatrixPair:
    """V Lambda^(1/2) V^-1 in those of the matrices where it leaves a smaller residual."""
    part, before = a.select(index), root.select(index)
    values, vectors, inverse = method(part.x)
    roots = values.sqrt()
    x = (vectors * roots[:, None, :]) @ inverse
    h = None
    if part.h is not None:
        # Divided differences of the root, without cancellation in the right half plane.
        tangent = (inverse @ part.h.to(vectors.dtype) @ vectors) / (roots[:, :, None] + roots[:, None, :])
        h = vectors @ tangent @ inverse
    found = MatrixPair(x, h) if a.x.is_complex() else MatrixPair(x.real, None if h is None else h.real)
    better = _residual(part, found) < _residual(part, before)
    return root.replaced(index, found.where(better, before))


def _triangular(a: MatrixPair, root: MatrixPair) -> tuple[MatrixPair, Tensor]:
    """Triangular matrices have triangular roots, which follow diagonal by diagonal, entry by entry stable.

    A. Bjorck and S. Hammarling, "A Schur method for the square root of a matrix" (1983). The tangent
    follows in the same way, triangular or not. Also says which matrices they are.  -> , (b,)
    """
    upper, lower = ((part == 0).flatten(1).all(1) for part in (a.x.tril(-1), a.x.triu(1)))
    for chosen, turned in ((upper, False), (lower & ~upper, True)):
        if bool(chosen.any()):
            index = chosen.nonzero().squeeze(1)
            part = a.select(index).transposed() if turned else a.select(index)
            x = _upper_root(part.x)
            found = MatrixPair(x, None if part.h is None else _upper_tangent(x, part.h))
            root = root.replaced(index, found.transposed() if turned else found)
    return root, upper | lower


def _upper_root(a: Tensor) -> Tensor:
    n = a.shape[-1]
    diagonal = a.diagonal(dim1=1, dim2=2).sqrt()
    x = torch.diag_embed(diagonal)
    for k in range(1, n):
        # x_ij (x_ii + x_jj) = a_ij - sum over i < l < j of x_il x_lj, for all j = i + k at once.
        sums = diagonal[:, : n - k] + diagonal[:, k:]
        inner = (x @ x).diagonal(k, 1, 2) if k > 1 else 0.0
        x = x + torch.diag_embed((a.diagonal(k, 1, 2) - inner) / sums, k)
    return x


def _upper_tangent(x: Tensor, e: Tensor) -> Tensor:
    """H with X H + H X = E for upper triangular X: diagonal by diagonal, from the lower left corner."""
    n = x.shape[-1]
    diagonal, strict = x.diagonal(dim1=1, dim2=2), x.triu(1)
    h = torch.zeros_like(e)
    for k in range(1 - n, n):
        rest = (e - strict @ h - h @ strict).diagonal(k, 1, 2)
        rows, columns = diagonal[:, max(0, -k) : n - max(0, k)], diagonal[:, max(0, k) : n - max(0, -k)]
        h = h + torch.diag_embed(rest / (rows + columns), k)
    return h


def _power_of_four(a: Tensor) -> Tensor:
    """Near the size of each matrix, so that no square over- or underflows.  -> (b, 1, 1)"""
    size = largest_entry(a)
    return torch.exp2(2 * (torch.log2(size) / 2).round().clamp(-500, 500))


def largest_entry(a: Tensor) -> Tensor:
    """The largest entry, of complex ones the larger part: their size may overflow.  -> (b, 1, 1)"""
    parts = torch.view_as_real(a.resolve_conj()) if a.is_complex() else a[..., None]
    return parts.abs().amax((1, 2, 3)).view(-1, 1, 1)


def _denman_beavers(a: MatrixPair) -> MatrixPair:
    n = a.x.shape[-1]
    m = root = a
    limit = n * torch.finfo(a.x.dtype).eps
    distance = torch.full((len(a.x),), torch.inf, dtype=a.x.real.dtype, device=a.x.device)
    active = torch.ones_like(distance, dtype=torch.bool)
    for _ in range(_MOST_ITERATIONS):
        inverse, log_det = m.inverse()
        mu = torch.where(distance > _NEAR, torch.exp(-log_det / (2 * n)), 1.0)[:, None, None]
        # Not beyond the roots of the largest numbers.
        mu = mu.clamp(2.0**-200, 2.0**200)
        next_root = root @ ((0.5 / mu) * inverse + _identity(m, 0.5 * mu))
        next_m = (0.25 * mu**2) * m + (0.25 / mu**2) * inverse + _identity(m, 0.5)
        next_distance = (next_m.plus_identity(-1.0)).x.abs().sum(1).amax(1)
        root, m = next_root.where(active, root), next_m.where(active, m)
        # Done, or as near as rounding lets it come, or lost.
        stalled = (next_distance < 1e-6) & (next_distance >= 0.5 * distance)
        active = active & ~((next_distance <= limit) | stalled | ~next_distance.isfinite())
        distance = next_distance
        if not bool(active.any()):
            break
    return root


def _identity(like: MatrixPair, scale: float | Tensor) -> MatrixPair:
    eye = torch.eye(like.x.shape[-1], dtype=like.x.dtype, device=like.x.device)
    return MatrixPair(scale * eye.expand_as(like.x), None if like.h is None else torch.zeros_like(like.x))


def _residual(a: MatrixPair, root: MatrixPair) -> Tensor:
    """Residual of value or tangent, the larger, relative to their rounding errors.  -> (b,)"""
    size = _norm(root.x)
    found = _norm(a.x - root.x @ root.x) / size**2
    if a.h is not None and root.h is not None:
        tangent = a.h - root.x @ root.h - root.h @ root.x
        largest = torch.maximum(size * _norm(root.h), _norm(a.h))
        found = torch.maximum(found, torch.where(largest > 0, _norm(tangent) / largest, 0.0))
    return torch.nan_to_num(found, torch.inf)


def _corrected(a: MatrixPair, root: MatrixPair) -> MatrixPair:
    x = root.x + _solve(a.x, a.x - root.x @ root.x)
    if a.h is None or root.h is None:
        return MatrixPair(x)
    h = root.h + _solve(a.x, a.h - x @ root.h - root.h @ x)
    return MatrixPair(x, h)


def _solve(a: Tensor, right: Tensor) -> Tensor:
    """Delta with X Delta + Delta X = right, X the root of A: the derivative of the root."""
    size = _norm(right)[:, None, None]
    size = torch.where(size > 0, size, 1.0)
    tangent = _denman_beavers(MatrixPair(a, right / size)).h
    assert tangent is not None
    return size * tangent


def _norm(x: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(x)

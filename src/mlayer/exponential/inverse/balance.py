"""Exact balancing: a diagonal D of powers of two such that D^-1 A D has rows and columns of like size.

f(A) = D f(D^-1 A D) D^-1 for logarithm and root, and their derivatives follow the same rule. A matrix that is
large only because of its scaling would otherwise lose the small entries that decide its eigenvalues
(docs/theory/inverse.md). `small_balance` has its own search: it counts squarings, in NumPy, for matrices so
small that calls of torch would take longer than the work; this one runs on every device, all indices at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

# A row and a column that differ by less are left alone: a matrix of ordinary scaling keeps its bits.
_WORTH_BALANCING = 64.0
_SWEEPS = 40
# Beyond these exponents D itself, or the products with it, would leave the range.
_LARGEST_EXPONENT = 250.0


def balancing(a: Tensor) -> Tensor:
    """The diagonal of D for each matrix, ones where balancing gains nothing.  (b, n, n) -> (b, n)"""
    off = (a - torch.diag_embed(a.diagonal(dim1=1, dim2=2))).abs()
    rows, columns = off.amax(2), off.amax(1)
    coupled = (rows > 0) & (columns > 0)
    ones = torch.ones_like(rows)
    ratio = torch.where(coupled, torch.where(coupled, rows, ones) / torch.where(coupled, columns, ones), ones)
    if not bool((torch.maximum(ratio, 1 / ratio) > _WORTH_BALANCING).any()):
        return ones
    exponents = _exponents(off.log2())
    scale = torch.exp2(exponents)
    balanced = _norm(a / scale[:, :, None] * scale[:, None, :])
    kappa = torch.exp2(exponents.amax(1) - exponents.amin(1))
    # An error of eps ||A'|| in every entry of f(A') becomes at most kappa eps ||A'|| in f(A). It is more than
    # eps ||A|| by the factor kappa ||A'|| / ||A||, which must not exceed the gain, ||A|| / ||A'||.
    gain = _norm(a) / balanced  # NaN of a zero matrix, which gains nothing
    gains = (gain >= 2) & (kappa / gain <= gain)  # no squares: they overflow
    triangular = (off.triu(1) == 0).flatten(1).all(1) | (off.tril(-1) == 0).flatten(1).all(1)
    back = (a / scale[:, :, None] * scale[:, None, :]) * scale[:, :, None] / scale[:, None, :]
    exact = (back == a).flatten(1).all(1)
    return torch.where((gains & exact & ~triangular)[:, None], scale, ones)


def _exponents(logarithms: Tensor) -> Tensor:
    """Whole numbers e that even out rows and columns of 2^(l_ij - e_i + e_j), all indices at once.

    Half of the step that would make one row equal to its column: both ends of every entry move.
    """
    e = torch.zeros_like(logarithms[:, 0])
    for _ in range(_SWEEPS):
        moved = logarithms - e[:, :, None] + e[:, None, :]
        step = (moved.amax(2) - moved.amax(1)) / 4
        e = e + torch.nan_to_num(step, 0.0, 0.0, 0.0)  # an empty row or column says nothing
    centered = e - (e.amax(1, keepdim=True) + e.amin(1, keepdim=True)) / 2
    return centered.round().clamp(-_LARGEST_EXPONENT, _LARGEST_EXPONENT)


def _norm(x: Tensor) -> Tensor:
    return x.abs().amax((1, 2))

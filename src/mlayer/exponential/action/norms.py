"""Estimates of ||A^p||_1 from products with A and its adjoint alone.

N. Higham and F. Tisseur, "A block algorithm for matrix 1-norm estimation" (SIAM J. Matrix Anal. Appl. 21,
2000), with two columns. The estimate is a lower bound, in practice nearly always exact; of few rows it is the
norm, from all unit vectors. The random vector comes from its own generator with a fixed seed: the same matrix
always gets the same estimate, and the global generators are left alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]  # (b, n, c) -> (b, n, c)

_COLUMNS = 2
_ROUNDS = 3


def products_for(power: int) -> int:
    """The largest number of columns that are multiplied for one estimate."""
    return _COLUMNS * (2 * _ROUNDS + 1) * power


def estimate_norm(apply: Product, adjoint: Product, power: int, start: Tensor) -> Tensor:
    """A lower bound of ||A^p||_1 of each matrix.  start: `first_columns` -> (b,)"""
    probe, best = start, start.new_zeros(start.shape[0], dtype=start.real.dtype)
    seen = torch.zeros(start.shape[:2], dtype=torch.bool, device=start.device)
    for round_ in range(_ROUNDS + 1):
        image = _repeat(apply, probe, power)
        sizes = image.abs().sum(1)  # (b, c)
        found = sizes.amax(1)
        improved = ~(found <= best)
        best = torch.maximum(best, found)
        if round_ == _ROUNDS or start.shape[1] == start.shape[2] or not bool(improved.any()):
            break
        slope = _repeat(adjoint, _signs(image), power).abs().amax(2)  # (b, n)
        chosen = slope.masked_fill(seen, -1.0).topk(min(_COLUMNS, slope.shape[1]), 1).indices
        seen = seen.scatter(1, chosen, True)
        probe = torch.zeros_like(probe[:, :, : chosen.shape[1]])
        probe.scatter_(1, chosen[:, None, :], 1.0)
    return best


def first_columns(batch: int, n: int, like: Tensor) -> Tensor:
    """The vectors an estimate starts from: `probes`, or all unit vectors of few rows.  -> (b, n, c)"""
    if n <= products_for(1):
        return torch.eye(n, dtype=like.dtype, device=like.device).expand(batch, n, n)
    return probes(batch, n, like)


def probes(batch: int, n: int, like: Tensor) -> Tensor:
    """Two vectors of 1-norm 1: all alike, and random.  -> (b, n, 2)

    The second has no two equal sizes: a matrix with few entries, or one whose rows add up to 0, may map
    vectors of signs to 0, and an estimate of 0 would end the series.
    """
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (n,), generator=generator) * 2 - 1
    sizes = 0.75 + 0.25 * torch.rand(n, generator=generator, dtype=torch.float64)
    columns = torch.stack([torch.full_like(sizes, 1.0 / max(n, 1)), signs * sizes / sizes.sum()], 1)
    return columns.to(like).expand(batch, n, 2)


def _repeat(apply: Product, x: Tensor, power: int) -> Tensor:
    for _ in range(power):
        x = apply(x)
    return x


def _signs(image: Tensor) -> Tensor:
    signs = torch.sgn(image)
    return torch.where(signs == 0, torch.ones_like(signs), signs)

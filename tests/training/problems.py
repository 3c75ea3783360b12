"""Small problems, the same in the tests and in the processes that they start and kill."""

from __future__ import annotations

import torch
from torch import Tensor

import mlayer


def product(rows: int = 96, seed: int = 0) -> tuple[Tensor, Tensor]:
    """y = x0 x1."""
    x = torch.rand(rows, 2, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :1] * x[:, 1:]


def quadrants(rows: int = 96, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Four classes."""
    x = 2 * torch.rand(rows, 2, generator=torch.Generator().manual_seed(seed)) - 1
    return x, 2 * (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def layer(out_features: int = 1, seed: int = 0, **options: object) -> mlayer.MLayer:
    """A small M-layer with repeatable weights."""
    generator = torch.Generator().manual_seed(seed)
    return mlayer.MLayer(2, out_features, 4, 3, init="balanced", generator=generator, **options)  # type: ignore[arg-type]


def with_dropout(seed: int = 0) -> torch.nn.Sequential:
    """An M-layer whose inputs are dropped at random: needs torch's own generator."""
    return torch.nn.Sequential(torch.nn.Dropout(0.2), layer(seed=seed))


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Whether two models have equal weights, to the bit."""
    a, b = one.state_dict(), other.state_dict()
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)

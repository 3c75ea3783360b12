"""Structures that fix which entries of a matrix are free: full, strictly triangular, skew-symmetric."""

from __future__ import annotations

import torch
from torch import Tensor

from mlayer.checks import positive_integer
from mlayer.nn.structures.structure import Structure


class Full(Structure):
    """Every matrix."""

    name = "full"
    similarities = "any invertible matrix"
    exact = True

    def dense(self, free: Tensor) -> Tensor:
        """The parameters are the matrices."""
        return free

    def free(self, matrices: Tensor) -> Tensor:
        """The matrices themselves, whatever they are."""
        return matrices

    def balancing_mask(self) -> Tensor:
        """Every entry."""
        return torch.ones(self.size, self.size, dtype=torch.bool)


class Scattered(Structure):
    """Free parameters at fixed positions of an n x n matrix, zeros elsewhere."""

    exact = True
    places: Tensor  # (k,): positions in the flattened matrix

    def __init__(self, size: int, mask: Tensor) -> None:
        super().__init__(size)
        self.register_buffer("places", mask.flatten().nonzero().squeeze(1), persistent=False)

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        """(k,), k the number of places."""
        return (len(self.places),)

    def dense(self, free: Tensor) -> Tensor:
        """Scatter.  (..., k) -> (..., n, n)"""
        n = self.size
        places = self.places.to(free.device)  # they stay on the CPU where the parameters are on meta
        flat = free.new_zeros(*free.shape[:-1], n * n).index_copy(-1, places, free)
        return flat.reshape(*free.shape[:-1], n, n)

    def _free(self, matrices: Tensor) -> Tensor:
        return matrices.flatten(-2).index_select(-1, self.places.to(matrices.device))


class StrictlyUpper(Scattered):
    """Free parameters above the diagonal."""

    def __init__(self, size: int) -> None:
        super().__init__(size, torch.ones(positive_integer("size", size), size, device="cpu").triu(1))


class Nilpotent(StrictlyUpper):
    """Strictly upper triangular: exp is a polynomial of degree n - 1. n (n - 1) / 2 parameters per matrix."""

    name = "nilpotent"
    similarities = "an upper triangular matrix"

    def balancing_mask(self) -> Tensor:
        """The diagonal."""
        return torch.eye(self.size, dtype=torch.bool)


class Skew(StrictlyUpper):
    """Skew-symmetric: exp is orthogonal. n (n - 1) / 2 parameters per matrix."""

    name = "skew"
    similarities = "an orthogonal matrix"

    def dense(self, free: Tensor) -> Tensor:
        """The upper triangle less its transpose."""
        upper = super().dense(free)
        return upper - upper.mT

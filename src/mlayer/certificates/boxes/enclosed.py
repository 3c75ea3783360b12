"""Float64 matrices with a bound of their error in Frobenius norm, batched.

docs/theory/certificates-boxes.md, "Rounding". The computed product of two n x n matrices is within
gamma(n) ||A||_F ||B||_F of the exact one; incoming errors are multiplied by spectral norms, which are bounded
by (||A||_1 ||A||_inf)^(1/2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mlayer.certificates.linalg import UNIT, VANISHED, top_eigenvalue

_MORE = 1 + 1e-9  # for the rounding of the error bounds themselves


def gamma(terms: int) -> float:
    """Relative error of a sum of this many products in any order, with room for a few more roundings."""
    return 1.01 * (terms + 4) * UNIT


def largest(A: Tensor) -> Tensor:
    """The largest absolute entry of each matrix, at least `VANISHED`."""
    return A.abs().amax((-2, -1)).clamp_min(VANISHED)


def frobenius(A: Tensor) -> Tensor:
    """An upper bound of the Frobenius norm; only entries of size at most 1 are squared."""
    unit = largest(A)
    return unit * torch.linalg.matrix_norm(A / unit[..., None, None]) * _MORE + VANISHED


def spectral(A: Tensor) -> Tensor:
    """A cheap upper bound of the spectral norm."""
    size = A.abs()
    return size.sum(-1).amax(-1).sqrt() * size.sum(-2).amax(-1).sqrt() * _MORE + VANISHED


def top(A: Tensor) -> Tensor:
    """Proved upper bounds of the largest eigenvalues, at least 0; infinite where A is not finite."""
    fine = A.flatten(-2).isfinite().all(-1)
    safe = torch.where(fine[..., None, None], A, 0.0)
    if not safe.numel():
        return torch.zeros(fine.shape, dtype=torch.float64)
    found = torch.from_numpy(np.asarray(top_eigenvalue(safe.numpy())))
    return torch.where(fine, found, torch.inf)


def top_singular(A: Tensor) -> Tensor:
    """Proved upper bounds of the largest singular values, from A A^T, scaled so that no square vanishes."""
    unit = largest(A)
    scaled = A / unit[..., None, None]
    gram = scaled @ scaled.mT
    off = gamma(A.shape[-1]) * frobenius(scaled) ** 2
    return unit * (top((gram + gram.mT) / 2) + off).sqrt() * _MORE + VANISHED


@dataclass(frozen=True)
class Enclosed:
    """A matrix within ``error`` of ``mid`` in Frobenius norm.  (..., n, n), (...)"""

    mid: Tensor
    error: Tensor

    @cached_property
    def frobenius(self) -> Tensor:
        """An upper bound of the Frobenius norm of ``mid``; a matrix is a factor of several products."""
        return frobenius(self.mid)

    @cached_property
    def spectral(self) -> Tensor:
        """A cheap upper bound of the spectral norm of ``mid``."""
        return spectral(self.mid)

    def __add__(self, other: Enclosed) -> Enclosed:
        total = self.mid + other.mid
        return Enclosed(total, (self.error + other.error + 2 * UNIT * frobenius(total)) * _MORE)

    def __matmul__(self, other: Enclosed) -> Enclosed:
        n = self.mid.shape[-1]
        rounding = gamma(n) * self.frobenius * other.frobenius
        carried = self.spectral * other.error + self.error * other.spectral + self.error * other.error
        return Enclosed(self.mid @ other.mid, (carried + rounding) * _MORE + VANISHED)

    def times(self, factor: float | Tensor) -> Enclosed:
        """Times a number for each matrix, or one for all of them."""
        size = abs(factor) if isinstance(factor, float) else factor.abs()
        mid = self.mid * (factor if isinstance(factor, float) else factor[..., None, None])
        return Enclosed(mid, (self.error * size + 2 * UNIT * frobenius(mid)) * _MORE + VANISHED)

    def widened(self, by: Tensor | float) -> Enclosed:
        """The same matrix with a larger error."""
        return Enclosed(self.mid, self.error + by)

    def where(self, condition: Tensor, other: Enclosed) -> Enclosed:
        """This where the condition holds, else the other.  Condition: (rows,)"""
        shape = (len(condition), *([1] * (self.error.dim() - 1)))
        mask = condition.reshape(shape)
        return Enclosed(
            torch.where(mask[..., None, None], self.mid, other.mid),
            torch.where(mask, self.error, other.error),
        )

    def inner(self) -> Enclosed:
        """(rows, k, n, n) as (rows, k, 1, n, n)"""
        return Enclosed(self.mid[:, :, None], self.error[:, :, None])


def exact(A: Tensor) -> Enclosed:
    """A matrix without error."""
    return Enclosed(A, torch.zeros(A.shape[:-2], dtype=A.dtype))

"""The matmul path for batches that need care: each matrix by its own schedule.

`matmul` sends a batch here if one of its matrices is not finite, might overflow, or is strictly triangular
with a finite series. The same mathematics as the kernel (schedule.py, docs/theory/expm.md). A `Jet` carries a
batch of matrices and, for the derivative, their tangents; its product is the product rule. Matrices with the
same schedule are computed together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from mlayer.exponential.precision import full_precision
from mlayer.exponential.schedule import (
    DEGREES,
    EIGHT,
    FOUR,
    SIXTEEN,
    exact_degree,
    one_norm,
    root_of_square_norm,
    schedule_for,
    squarings_without_identity,
)
from mlayer.exponential.wide_exponents import careful


@dataclass(frozen=True)
class GroupedJet:
    """X and, where a derivative is wanted, its tangent H; both (b, n, n)."""

    x: Tensor
    h: Tensor | None = None

    def __matmul__(self, other: GroupedJet) -> GroupedJet:
        x = self.x @ other.x
        if self.h is None or other.h is None:
            return GroupedJet(x)
        return GroupedJet(x, torch.baddbmm(self.x @ other.h, self.h, other.x))

    def __add__(self, other: GroupedJet) -> GroupedJet:
        return GroupedJet(self.x + other.x, None if self.h is None or other.h is None else self.h + other.h)

    def __rmul__(self, scale: float | Tensor) -> GroupedJet:
        return GroupedJet(scale * self.x, None if self.h is None else scale * self.h)

    def plus_identity(self) -> GroupedJet:
        return GroupedJet(
            self.x + torch.eye(self.x.shape[-1], dtype=self.x.dtype, device=self.x.device), self.h
        )

    def select(self, index: Tensor) -> GroupedJet:
        return GroupedJet(self.x[index], None if self.h is None else self.h[index])


Matrices = TypeVar("Matrices", GroupedJet, Tensor)


def _degree_2(a: GroupedJet, a2: GroupedJet) -> GroupedJet:
    return 0.5 * a2 + a


def _degree_4(a: GroupedJet, a2: GroupedJet) -> GroupedJet:
    return a2 @ (FOUR[0] * a2 + FOUR[1] * a) + (0.5 * a2 + a)


def _degree_8(a: GroupedJet, a2: GroupedJet) -> GroupedJet:
    e = EIGHT
    y = a2 @ (e[0] * a2 + e[1] * a)
    return (y + e[2] * a2 + e[3] * a) @ (y + e[4] * a2) + (e[5] * y + 0.5 * a2 + a)


def degree_16(a: Matrices, a2: Matrices, c: Sequence[float | Tensor] = SIXTEEN) -> Matrices:
    y = a2 @ (c[0] * a2 + c[1] * a)
    w = (y + c[2] * a2 + c[3] * a) @ (y + c[4] * a2) + (c[5] * y + c[6] * a2)
    rest = c[11] * w + c[12] * y + c[13] * a2 + c[14] * a
    return (w + c[7] * a2 + c[8] * a) @ (w + c[9] * y + c[10] * a) + rest


_POLYNOMIALS: dict[int, Callable[[GroupedJet, GroupedJet], GroupedJet]] = {
    2: _degree_2,
    4: _degree_4,
    8: _degree_8,
    16: degree_16,
}


def _plan(a: Tensor, a2: Tensor, derivative: bool) -> Tensor:
    """Degree and squarings of every matrix, as integers.  (b, n, n) twice -> (b, 2)"""
    schedule = schedule_for(a.dtype, derivative)
    norm = one_norm(a).to("cpu", torch.float64)
    d = root_of_square_norm(a2).to("cpu", torch.float64)
    degree = torch.full_like(d, DEGREES[-1], dtype=torch.int64)
    squarings = torch.log2(d / schedule.theta[-1]).ceil().clamp(min=0).to(torch.int64)
    for m, theta, norm_theta in reversed(
        list(zip(DEGREES, schedule.theta, schedule.norm_theta, strict=True))
    ):
        within = (d <= theta) | (norm <= norm_theta)
        degree, squarings = torch.where(within, m, degree), torch.where(within, 0, squarings)
    triangular = strictly_triangular(a).cpu()
    exact = exact_degree(a.shape[-1] - 1, derivative)
    if exact is not None and triangular.any():
        degree = torch.where(triangular, degree.clamp(max=exact), degree)
        squarings = torch.where(triangular, 0, squarings)
    return torch.stack([degree, squarings], dim=1)


def strictly_triangular(a: Tensor) -> Tensor:
    """Above or below the diagonal.  (b, n, n) -> (b,)"""
    return (a.tril() == 0).flatten(1).all(1) | (a.triu() == 0).flatten(1).all(1)


def _common_plan(a: Tensor, a2: Tensor, derivative: bool) -> tuple[int, int] | None:
    """Degree and squarings if all matrices share them, with few operations; else None.

    Both grow with d and with the norm, so the smallest and the largest tell. A strictly triangular
    matrix has an empty diagonal.
    """
    schedule = schedule_for(a.dtype, derivative)
    d, norm = root_of_square_norm(a2), one_norm(a)
    sizes = torch.stack([d.amin(), d.amax(), norm.amin().to(d), norm.amax().to(d)]).tolist()
    empty = (a.diagonal(dim1=-2, dim2=-1) == 0).all(-1).any()
    plans = {
        (schedule.degree(x, y), 0 if y <= schedule.norm_theta[-1] else schedule.squarings(x))
        for x, y in (sizes[0::2], sizes[1::2])
    }
    return plans.pop() if len(plans) == 1 and not empty else None


def _evaluate(matrices: Tensor, direction: Tensor | None) -> Tensor:
    shape = matrices.shape
    jet = GroupedJet(
        matrices.reshape(-1, *shape[-2:]), None if direction is None else direction.reshape(-1, *shape[-2:])
    )
    out = torch.empty_like(jet.x, memory_format=torch.contiguous_format)
    if out.numel() == 0:
        return out.reshape(shape)
    with full_precision(matrices):
        ordinary = one_norm(jet.x) <= schedule_for(matrices.dtype).largest_norm  # False for NaN
        if ordinary.all():
            out = _ordinary(jet, derivative=direction is not None)
            if out.isfinite().all():
                return out.contiguous().reshape(shape)
            rare = ~out.isfinite().flatten(1).all(1)
        else:
            index = ordinary.nonzero().squeeze(1)
            rare = ~ordinary
            if len(index):
                out[index] = _ordinary(jet.select(index), derivative=direction is not None)
                rare |= ~out.isfinite().flatten(1).all(1) & ordinary
        index = rare.nonzero().squeeze(1)
        out = out.contiguous()
        out[index] = careful(jet.x[index], None if jet.h is None else jet.h[index])
    return out.reshape(shape)


def _ordinary(a: GroupedJet, derivative: bool) -> Tensor:
    if a.x.shape[-1] == 1:  # no squarings, which would lose digits
        return torch.exp(a.x) if a.h is None else torch.exp(a.x) * a.h
    a2 = a @ a
    common = _common_plan(a.x, a2.x, derivative)
    if common is not None:
        return _finish(a, a2, *common)
    groups, members = torch.unique(_plan(a.x, a2.x, derivative), dim=0, return_inverse=True)
    out = torch.empty_like(a.x)
    for group, (degree, squarings) in enumerate(groups.tolist()):
        index = (members == group).nonzero().squeeze(1).to(a.x.device)
        out[index] = _finish(a.select(index), a2.select(index), degree, squarings)
    return out


def _finish(a: GroupedJet, a2: GroupedJet, degree: int, squarings: int) -> Tensor:
    """exp(A), or the derivative where there is a tangent, for matrices with one schedule."""
    if squarings:
        sigma = 2.0**-squarings
        a, a2 = sigma * a, sigma * (sigma * a2)
    x = _POLYNOMIALS[degree](a, a2)
    without = min(squarings, squarings_without_identity(a.x.dtype))
    for _ in range(without):
        x = 2.0 * x + x @ x
    x = x.plus_identity()
    for _ in range(squarings - without):
        x = x @ x
    return x.x if x.h is None else x.h


def expm(matrices: Tensor) -> Tensor:
    """exp(A).  (..., n, n) -> (..., n, n), n >= 1"""
    return _evaluate(matrices, None)


def frechet(matrices: Tensor, direction: Tensor) -> Tensor:
    """L(A, E), the derivative of exp at A in direction E; both (..., n, n)."""
    return _evaluate(matrices, direction)

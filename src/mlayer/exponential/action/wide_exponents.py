"""exp(t B) V where it overflows: every entry is a double with its own exponent.

An entry of the result is then infinite only where its true value is too large, and its neighbors are correct.
Slow, and only for the columns that need it; exponential/wide_exponents.py does the same for the exponential
itself.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import NamedTuple

import torch
from torch import Tensor

from mlayer.exponential.action.plan import ActionPlan
from mlayer.exponential.wide_exponents import careful_action

# Matrices that are exponentiated together have at most this many entries.
_TOGETHER = 1 << 20
# Exponents are kept within this; values beyond are infinite or zero in every dtype.
_FAR = 2.0**50


class WideVectors(NamedTuple):
    """Numbers fraction 2^exponent with 1/2 <= |fraction| < 1, or 0 and a very small exponent; (n, c)."""

    fraction: Tensor
    exponent: Tensor  # whole numbers, in double precision

    def plus(self, other: WideVectors) -> WideVectors:
        top = torch.maximum(self.exponent, other.exponent)
        parts = (x.fraction * torch.exp2((x.exponent - top).clamp(min=-2000)) for x in (self, other))
        return _wide(sum(parts, torch.zeros_like(self.fraction)), top)

    def times(self, factor: complex, power: float = 0.0) -> WideVectors:
        """Times factor 2^power."""
        return _wide(self.fraction * factor, self.exponent + power)

    def narrow(self, dtype: torch.dtype) -> Tensor:
        """Convert to ordinary numbers, in steps because a factor of 2^1100 would be infinite."""
        result, exponent = self.fraction, self.exponent.clamp(-4000, 4000)
        for _ in range(5):
            step = exponent.clamp(-1000, 1000)
            # Part by part: as a complex product, infinity times i 0 would be NaN.
            parts = torch.view_as_real(result) if result.is_complex() else result[..., None]
            parts = parts * torch.exp2(step)[..., None]
            result = torch.view_as_complex(parts) if result.is_complex() else parts.squeeze(-1)
            exponent = exponent - step
        return result.to(dtype)


def _wide(value: Tensor, exponent: Tensor) -> WideVectors:
    shift = torch.frexp(value.abs()).exponent.to(torch.float64)
    power = torch.where(value == 0, -_FAR, (shift + exponent).clamp(-_FAR, _FAR))
    return WideVectors(value * torch.exp2(-shift), power)


class Entries(NamedTuple):
    """A matrix by its entries."""

    rows: Tensor
    columns: Tensor
    values: Tensor  # (nnz,)

    def apply(self, x: WideVectors) -> WideVectors:
        product = self.values[:, None] * x.fraction[self.columns]
        power = torch.where(product == 0, -_FAR, x.exponent[self.columns])
        top = torch.full_like(x.exponent, -_FAR)
        top = top.scatter_reduce(0, self.rows[:, None].expand_as(power), power, "amax")
        relative = torch.exp2((power - top[self.rows]).clamp(min=-2000))
        total = torch.zeros_like(x.fraction).index_add(0, self.rows, product * relative)
        return _wide(total, top)


def careful_sweep(matrix: Entries, v: Tensor, times: list[float], plan: ActionPlan, shift: complex) -> Tensor:
    """exp(t (B + shift I)) V for times of one sign, nearest first.  (n, c) -> (q, n, c)"""
    dtype = v.dtype
    wider = torch.complex128 if v.is_complex() else torch.float64
    state = _wide(v.to(wider), torch.zeros(v.shape, dtype=torch.float64, device=v.device))
    matrix = matrix._replace(values=matrix.values.to(wider))
    h, position, sizes = times[-1] / plan.steps, 0.0, [abs(t) for t in times]
    found: list[Tensor] = []
    for step in range(1, plan.steps + 1):
        goal = times[-1] if step == plan.steps else step * h
        reached = times[len(found) : bisect_right(sizes, abs(goal))]
        found += [_taylor(matrix, state, t - position, plan.degree, shift).narrow(dtype) for t in reached]
        if step < plan.steps:
            state, position = _taylor(matrix, state, goal - position, plan.degree, shift), goal
    return torch.stack(found)


def form_and_multiply(matrix: Entries, v: Tensor, times: list[float], shift: complex) -> Tensor:
    """The same by the exponentials themselves: squarings, where the steps would be too many."""
    n, values = len(v), matrix.values.cpu()
    wider = torch.complex128 if v.is_complex() else torch.float64
    dense = torch.zeros(n, n, dtype=wider)
    dense.index_put_((matrix.rows.cpu(), matrix.columns.cpu()), values.to(wider), accumulate=True)
    found = []
    for some in torch.tensor(times, dtype=torch.float64).split(max(1, _TOGETHER // n**2)):
        growth = some * shift if shift.imag else some * shift.real
        found.append(careful_action(some[:, None, None] * dense, v.cpu(), growth))
    return torch.cat(found).to(v.device)


def _taylor(matrix: Entries, v: WideVectors, tau: float, degree: int, shift: complex) -> WideVectors:
    total = x = v
    for k in range(1, degree + 1):
        x = matrix.apply(x).times(tau / k)
        total = total.plus(x)
    growth = shift * tau
    power, rest = growth.real / math.log(2), 1.0
    if abs(power) < _FAR:
        power = math.floor(power)
        rest = math.exp(growth.real - power * math.log(2))
    else:  # infinite or zero in the end, whatever the digits
        power = math.copysign(_FAR, power)
    turn = complex(math.cos(growth.imag), math.sin(growth.imag)) if growth.imag else 1.0
    return total.times(turn * rest, power)

"""The rare cases of the matmul path: NaN, infinities, norms whose square overflows, overflowing results.

Each entry is a double with its own exponent, so that nothing over- or underflows in between: an
entry of the result is infinite only where its true value is too large, and the others are
right. Slow, and only for the matrices that need it; kernel/wide_exponents.h does the same for the kernel.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

# Taylor's polynomial of this degree is below rounding where ||A^2||^(1/2) <= 1.
_DEGREE = 20
# Exponents are kept within this; values beyond are infinite or zero in every dtype.
_FAR = 2.0**50
_ZERO = -(2.0**51)


class Wide(NamedTuple):
    """Entries fraction 2^exponent with 1/2 <= |fraction| < 1, or 0 and a very small exponent; (b, n, n)."""

    fraction: Tensor
    exponent: Tensor  # whole numbers, in double precision

    def where(self, condition: Tensor, other: Wide) -> Wide:
        """This in the matrices where the condition holds, the other elsewhere."""
        mask = condition[:, None, None]
        return Wide(*(torch.where(mask, mine, theirs) for mine, theirs in zip(self, other, strict=True)))


def _wide(value: Tensor, exponent: Tensor | float) -> Wide:
    shift = torch.frexp(value.abs()).exponent.to(torch.float64)
    power = torch.where(value == 0, _ZERO, (shift + exponent).clamp(-_FAR, _FAR))
    # Two steps: 2^1074 would be infinite.
    half = (shift / 2).round()
    return Wide(value * torch.exp2(-half) * torch.exp2(half - shift), power)


def _times(value: Tensor, factor: Tensor) -> Tensor:
    """Part by part: as a complex product, infinity times i 0 would be NaN."""
    if value.is_complex():
        return torch.complex(value.real * factor, value.imag * factor)
    return value * factor


def _narrow(matrix: Wide, dtype: torch.dtype) -> Tensor:
    """Back to ordinary numbers, in steps because a factor of 2^1100 would be infinite."""
    exponent = matrix.exponent.clamp(-4000, 4000)
    result = matrix.fraction
    for _ in range(5):
        step = exponent.clamp(-1000, 1000)
        result, exponent = _times(result, torch.exp2(step)), exponent - step
    return result.to(dtype)


def _sum(pairs: list[tuple[Wide, Wide]], scale: float = 1.0, plus_identity: bool = False) -> Wide:
    """Sum over the pairs of left right, times scale, plus the identity if wanted."""
    left = Wide(*(torch.cat(parts, 2) for parts in zip(*(p[0] for p in pairs), strict=True)))
    right = Wide(*(torch.cat(parts, 1) for parts in zip(*(p[1] for p in pairs), strict=True)))
    fractions, exponents = [], []
    for i in range(left.fraction.shape[1]):  # row by row: b n^2 numbers at a time, not b n^3
        power = left.exponent[:, i, :, None] + right.exponent
        top = power.amax(1)
        if plus_identity:
            top[:, i] = top[:, i].clamp(min=0)
        relative = torch.exp2((power - top[:, None]).clamp(min=-2000))
        total = (left.fraction[:, i, :, None] * right.fraction * relative).sum(1) * scale
        if plus_identity:
            total[:, i] += torch.exp2(-top[:, i])
        fractions.append(total)
        exponents.append(top)
    return _wide(torch.stack(fractions, 1), torch.stack(exponents, 1))


def _ceil_log2_norm(matrix: Wide) -> Tensor:
    """log2 of the largest absolute column sum, rounded up to within 1.  -> (b,)"""
    top = matrix.exponent.amax(1)
    relative = torch.exp2((matrix.exponent - top[:, None]).clamp(min=-2000))
    sums = (matrix.fraction.abs() * relative).sum(1)
    return (top + torch.frexp(sums).exponent).amax(1)


def careful(matrices: Tensor, direction: Tensor | None) -> Tensor:
    """exp(A), or L(A, E).  (b, n, n) -> (b, n, n)"""
    result = torch.full_like(matrices, torch.nan)
    finite = matrices.isfinite().flatten(1).all(1)
    if direction is not None:
        finite &= direction.isfinite().flatten(1).all(1)
    index = finite.nonzero().squeeze(1)
    if len(index):
        # On the CPU: not every device has double precision.
        value = _finite(matrices[index].cpu(), None if direction is None else direction[index].cpu())
        result[index] = value.to(result.device)
    return result


def careful_action(matrices: Tensor, vectors: Tensor, growth: Tensor) -> Tensor:
    """exp(A + growth I) V, everything finite and on the CPU.  (b, n, n), (n, c), (b,) -> (b, n, c)"""
    wider = torch.complex128 if matrices.is_complex() else torch.float64
    v = _wide(vectors.to(wider).expand(len(matrices), *vectors.shape), 0.0)
    result = _sum([(_finite_wide(matrices, None), v)])
    power = (growth.real / math.log(2)).floor()
    factor = torch.exp(growth - power * math.log(2)).to(wider)[:, None, None]
    result = _wide(result.fraction * factor, result.exponent + power[:, None, None])
    return _narrow(result, vectors.dtype)


def _finite(matrices: Tensor, direction: Tensor | None) -> Tensor:
    return _narrow(_finite_wide(matrices, direction), matrices.dtype)


def _finite_wide(matrices: Tensor, direction: Tensor | None) -> Wide:
    wider = torch.complex128 if matrices.is_complex() else torch.float64
    b = _wide(matrices.to(wider), 0.0)
    # ||A^2|| decides as in the fast paths; in the derivative ||A|| does.
    size = 2 * _ceil_log2_norm(b) if direction is not None else _ceil_log2_norm(_sum([(b, b)]))
    s = ((size + 1) / 2).floor().clamp(min=0)
    b = _wide(b.fraction, b.exponent - s[:, None, None])
    d = None if direction is None else _wide(direction.to(wider), -s[:, None, None])
    x = _wide(torch.eye(matrices.shape[-1], dtype=wider).expand_as(matrices), 0.0)
    h = _wide(torch.zeros_like(x.fraction), 0.0)
    for k in range(_DEGREE, 0, -1):  # Horner: X <- I + B X / k
        if d is not None:
            h = _sum([(b, h), (d, x)], 1 / k)
        x = _sum([(b, x)], 1 / k, plus_identity=True)
    active = s > 0
    for k in range(int(s.max())):
        before = x.exponent if d is None else torch.cat([x.exponent, h.exponent], 1)
        if d is not None:
            h = _sum([(x, h), (h, x)]).where(active, h)
        x = _sum([(x, x)]).where(active, x)
        # Once every entry is infinite or zero for good, more squarings change nothing: a norm of 1e300
        # asks for a thousand of them, and about fifty are enough.
        after = x.exponent if d is None else torch.cat([x.exponent, h.exponent], 1)
        settled = ((after == before) & (after.abs() >= _FAR)).flatten(1).all(1)
        active = (s > k + 1) & active & ~settled
        if not active.any():
            break
    return x if d is None else h

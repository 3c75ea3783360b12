"""The exponential in torch's own matrix products, in few operations: every device and dtype.

The same mathematics as the kernel (schedule.py, docs/theory/expm.md), arranged for devices where each
operation is a launch. One look at the norms (the only synchronization) fixes one polynomial and the number of
squarings for the whole batch; matrices that need fewer squarings keep their value by `where`. A bound from
the norms proves that nothing overflows, so the result is not checked; where it proves nothing the result is
looked at, and a batch that is not finite goes to `grouped`. On a GPU, where it was asked for, the Triton
kernel takes over (`triton_path`).

Norms are Frobenius norms, which are the same for A and its adjoint: the backward pass reuses the plan of the
forward pass and synchronizes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch._guards import detect_fake_mode

from mlayer.exponential import grouped, large_balance, paths, small, small_beside_overflow, triton_path
from mlayer.exponential.first_squarings import SumAndError
from mlayer.exponential.precision import full_precision
from mlayer.exponential.schedule import (
    DEGREES,
    EIGHT,
    FOUR,
    LARGE,
    SIXTEEN,
    frobenius_norms,
    schedule_for,
    square_norms,
    squarings_without_identity,
)

_Rows = tuple[tuple[float, ...], ...]

# Linear combinations that one polynomial needs, as rows over (A, A2, Y) and (A, A2, Y, W): left factor, right
# factor, remainder. One small product forms all three.
_EIGHT_ROWS = ((EIGHT[3], EIGHT[2], 1.0), (0.0, EIGHT[4], 1.0), (1.0, 0.5, EIGHT[5]))
_SIXTEEN_ROWS_W = (
    (SIXTEEN[3], SIXTEEN[2], 1.0),
    (0.0, SIXTEEN[4], 1.0),
    (0.0, SIXTEEN[6], SIXTEEN[5]),
)
_SIXTEEN_FACTORS = ((SIXTEEN[8], SIXTEEN[7], 0.0, 1.0), (SIXTEEN[10], 0.0, SIXTEEN[9], 1.0))
_SIXTEEN_ROWS = (*_SIXTEEN_FACTORS, (SIXTEEN[14], SIXTEEN[13], SIXTEEN[12], SIXTEEN[11]))
_SIXTEEN_ROWS_WITHOUT_A = (*_SIXTEEN_FACTORS, (0.0, SIXTEEN[13], SIXTEEN[12], SIXTEEN[11]))
# What is kept free below the largest number, in units of log: rounding and the constants of the bound.
_MARGIN = 3.0
# Squarings without the identity where rounding errors are kept: in the third Y is not much larger than X.
LARGE_WITHOUT_IDENTITY = 3
# Sums of which A^2 is made; more of them cost more time than they gain digits. Measured.
_PARTS = 4


@dataclass(frozen=True)
class ProductSchedule:
    """One polynomial for a batch; how often its matrices are squared, at most and at least."""

    degree: int
    squarings: int
    fewest: int
    sure: bool  # whether an overflow is ruled out; otherwise the result is looked at


@dataclass(frozen=True)
class ProductsPlan:
    """The plan of a batch after one look at it; a schedule is None where `grouped` must compute it."""

    squares: Tensor  # ||A^2|| of each matrix, (b,)
    value: ProductSchedule | None
    derivative: ProductSchedule | None


class TritonPlan:
    """The forward pass ran in the Triton kernel, which makes its own plan for the backward pass."""


Plan = ProductsPlan | TritonPlan | small.Findings


def expm(matrices: Tensor) -> Tensor:
    """exp(A).  (..., n, n) -> (..., n, n), n >= 1"""
    return expm_with_plan(matrices)[0]


def expm_with_plan(matrices: Tensor) -> tuple[Tensor, Plan | None]:
    """exp(A), and the plan with which :func:`frechet` needs no synchronization at A and at its adjoint."""
    if paths.uses_triton(matrices):
        return triton_path.expm(matrices), TritonPlan()
    shape = matrices.shape
    a = matrices if len(shape) == 3 else matrices.reshape(-1, *shape[-2:])
    if a.numel() == 0:
        return torch.empty_like(matrices, memory_format=torch.contiguous_format), None
    if small.takes(matrices):
        small_value, found = small.expm(a)
        if small_value is None and len(a) > 1:
            small_value, found = small_beside_overflow.expm(a), None
        if small_value is not None:
            return (small_value if len(shape) == 3 else small_value.reshape(shape)), found
    with full_precision(a):
        value, plan = _computed(a, None, None)
    return value.reshape(shape), plan


def frechet(matrices: Tensor, direction: Tensor, plan: Plan | None = None) -> Tensor:
    """L(A, E), the derivative of exp at A in direction E; both (..., n, n).

    ``plan`` is that of the adjoint of A, if there is one, or of A itself if it is a `ProductsPlan`.
    """
    if isinstance(plan, TritonPlan) or (plan is None and paths.uses_triton(matrices)):
        return triton_path.frechet(matrices, direction)
    shape = matrices.shape
    a, e = matrices, direction
    if len(shape) != 3:
        a, e = a.reshape(-1, *shape[-2:]), e.reshape(-1, *shape[-2:])
    if a.numel() == 0:
        return torch.empty_like(matrices, memory_format=torch.contiguous_format)
    if small.takes(matrices):
        tangent = small.frechet(a, e, plan if isinstance(plan, small.Findings) else None)
        if tangent is None and len(a) > 1:
            tangent = small_beside_overflow.frechet(a, e)
        if tangent is not None:
            return tangent if len(shape) == 3 else tangent.reshape(shape)
    if isinstance(plan, small.Findings):  # the value was finite, the derivative is not
        plan = None
    if plan is not None and plan.derivative is None:
        return grouped.frechet(matrices, direction)
    with full_precision(a):
        return _computed(a, e, plan)[0].reshape(shape)


def _computed(
    a: Tensor, e: Tensor | None, plan: ProductsPlan | None, *, balance: bool = True
) -> tuple[Tensor, ProductsPlan | None]:
    """exp(A), or L(A, E) with a direction, and the plan.  (b, n, n)

    Matrices with a plan have been looked at. The plan is None where some were balanced: the adjoint has
    another scaling.
    """
    size = None
    if e is not None:
        # L is linear in E: at the size of 1 it overflows only where the result does.
        size = _power_of_two(e)
        e = e / size
    powers = _start(a, e)
    found = None
    if plan is None:
        plan = _look(powers)
        schedule = plan.value if e is None else plan.derivative
        squarings = None if schedule is None else schedule.squarings
        if balance and large_balance.is_worth_a_look(a, squarings):
            found = large_balance.find(a, e, powers, plan.squares)
    schedule = plan.value if e is None else plan.derivative
    result = None
    if found is not None:
        result = large_balance.evaluate(a, e, found, _without_balancing)
    elif schedule is not None:
        result = evaluate(powers, schedule, plan.squares, derivative=e is not None)
        if not (schedule.sure or result.isfinite().all()):
            result = None
    if result is None:
        result = grouped.expm(a) if e is None else grouped.frechet(a, e)
    return result if size is None else result.mul_(size), plan if found is None else None


def _without_balancing(a: Tensor, e: Tensor | None) -> Tensor:
    return _computed(a, e, None, balance=False)[0]


def _power_of_two(direction: Tensor) -> Tensor:
    """A power of two near the largest entry of each matrix.  (b, n, n) -> (b, 1, 1)"""
    tiny = torch.finfo(direction.dtype).tiny
    largest = torch.linalg.vector_norm(direction, math.inf, (-2, -1), keepdim=True)
    return torch.exp2(torch.log2(largest.clamp(min=tiny)).floor())


def _start(a: Tensor, e: Tensor | None) -> Tensor:
    """A and A^2 as the first of four matrices, each with its tangent where there is a direction.

    (b, n, n) -> (4, b, n, n or 2 n). A tangent stands to the right of its matrix, so that one operation
    serves both.
    """
    b, n, _ = a.shape
    powers = torch.empty((4, b, n, n if e is None else 2 * n), dtype=a.dtype, device=a.device)
    first, square, _, _ = powers.unbind(0)
    torch.cat([a] if e is None else [a, e], -1, out=first)
    if n >= LARGE and a.dtype == torch.float64:  # of complex ones torch's is about as fast as ours
        _product_in_parts(first, first, square)
    else:
        _product(first, first, out=square)
    return powers


def _product_in_parts(left: Tensor, right: Tensor, out: Tensor) -> None:
    """The same as _product without a plus term, from sums of a quarter of the terms each.

    Terms that are alike, as in A^2 of a graph's Laplacian, are all rounded in the same direction.
    """
    n = left.shape[-2]
    length = -(-n // _PARTS)
    for k in range(0, n, length):
        terms = min(length, n - k)
        factors = left.narrow(-1, k, terms), right.narrow(-2, k, terms)
        if k:
            out.add_(torch.bmm(*factors))
        else:
            torch.bmm(*factors, out=out)
    if left.shape[-1] > n:
        out.narrow(-1, n, n).baddbmm_(left.narrow(-1, n, n), right.narrow(-1, 0, n))


def _look(powers: Tensor) -> ProductsPlan:
    """The plan for a batch; the one place where the host waits for the device."""
    n = powers.shape[-2]
    a, a2, _, _ = powers.unbind(0)
    if a.shape[-1] > n:
        a, a2 = a.narrow(-1, 0, n), a2.narrow(-1, 0, n)
    norms, squares = frobenius_norms(a), square_norms(a2)
    # A strictly triangular A has an empty diagonal in A^2.
    diagonals = torch.linalg.vector_norm(a2.diagonal(dim1=-2, dim2=-1), math.inf, -1)
    least, largest = torch.stack(torch.aminmax(torch.stack([norms, squares, diagonals]), dim=1)).tolist()
    if not (math.isfinite(largest[0]) and math.isfinite(largest[1])):
        return ProductsPlan(squares, None, None)
    size, d = largest[0], math.sqrt(largest[1])
    limit = math.log(torch.finfo(a.dtype).max) - _MARGIN

    def schedule(derivative: bool) -> ProductSchedule | None:
        # ||exp(A)|| <= e^d (1 + ||A||); the derivative has the last factor twice, and ||E|| <= n.
        sure = d + math.log1p(size) * (2 if derivative else 1) + math.log(n) <= limit
        table = schedule_for(a.dtype, derivative)
        most = _squarings(largest[1], table.theta[-1])
        if most == 0:
            return ProductSchedule(table.degree(d, size), 0, 0, sure)
        # The finite series of a strictly triangular matrix needs no squarings: `grouped` knows.
        if least[2] == 0 and ((diagonals == 0) & (squares > table.theta[-1] ** 2)).any():
            return None
        return ProductSchedule(DEGREES[-1], most, _squarings(least[1], table.theta[-1]), sure)

    return ProductsPlan(squares, schedule(False), schedule(True))


def _squarings(square: float, theta: float) -> int:
    """The least s >= 0 with 2^-s ||A^2||^(1/2) <= theta."""
    return max(0, math.ceil(math.log2(square) / 2 - math.log2(theta))) if square > 0 else 0


def evaluate(powers: Tensor, schedule: ProductSchedule, squares: Tensor, *, derivative: bool) -> Tensor:
    """exp(A), or its derivative; uses up ``powers``.  -> (b, n, n)"""
    times, n = schedule.squarings, powers.shape[-2]
    if n == 1:  # no squarings, which would lose digits
        x = torch.exp(powers[0, :, :, :1])
        return x * powers[0, :, :, 1:] if derivative else x
    active = None
    if times:
        scale: float | Tensor = 2.0**-times
        if schedule.fewest < times:
            # As _squarings, on the device. A little more near a power of two, for the logarithm is rounded;
            # never more than the loop has turns.
            theta = schedule_for(powers.dtype, derivative).theta[-1]
            slack = 8 * torch.finfo(squares.dtype).eps - math.log2(theta)
            each = torch.add(slack, squares.log2(), alpha=0.5).ceil_().clamp_(0, times).view(-1, 1, 1)
            scale = torch.exp2(-each)
            active = each > torch.arange(times, dtype=each.dtype, device=each.device).view(-1, 1, 1, 1)
        a, a2, _, _ = powers.unbind(0)
        a.mul_(scale)
        a2.mul_(scale * scale)
    if times and n >= LARGE and squarings_without_identity(powers.dtype):
        return _squared_with_errors(powers, times, active, derivative=derivative)
    without = min(times, squarings_without_identity(powers.dtype))
    x = _polynomial(powers, schedule.degree)
    for k in range(times):
        if k == without:
            _plus_identity(x, n)
        if derivative and k == times - 1:  # of the last square only the tangent is wanted
            squared, tangent = _tangent_of_square(x, 2.0 if k < without else 0.0), x.narrow(-1, n, n)
            return squared if active is None else torch.where(active.select(0, k), squared, tangent)
        squared = _product(x, x, x, beta=2) if k < without else _product(x, x)
        x = squared if active is None else torch.where(active.select(0, k), squared, x)
    if times == without and not derivative:
        _plus_identity(x, n)
    return torch.clone(x.narrow(-1, n, n), memory_format=torch.contiguous_format) if derivative else x


def _squared_with_errors(powers: Tensor, times: int, active: Tensor | None, *, derivative: bool) -> Tensor:
    """exp(2^times A), or its derivative, of large matrices in double precision."""
    n = powers.shape[-2]
    y = SumAndError.of(powers[0], _polynomial(powers, DEGREES[-1], with_a=False))
    without = min(times, LARGE_WITHOUT_IDENTITY)
    for k in range(without):
        if k:
            y.include_identity_where_it_cancels()
        doubled = y.doubled(_product(y.rounded, y.rounded), last=active is None)
        y = doubled if active is None else doubled.where(active.select(0, k), y)
    x = y.whole()
    for k in range(without, times):
        if derivative and k == times - 1:
            squared, x = _tangent_of_square(x), x.narrow(-1, n, n)
        else:
            squared = _product(x, x)
        x = squared if active is None else torch.where(active.select(0, k), squared, x)
    if derivative and times == without:
        x = torch.clone(x.narrow(-1, n, n), memory_format=torch.contiguous_format)
    return x


def _tangent_of_square(x: Tensor, more: float = 0.0) -> Tensor:
    """X H + H X + more H.  (b, n, 2 n) -> (b, n, n)"""
    matrix, tangent = x.tensor_split(2, -1)
    squared = torch.baddbmm(tangent, matrix, tangent, beta=more)  # with beta = 0 the first is not read
    return squared.baddbmm_(tangent, matrix)


def _polynomial(powers: Tensor, degree: int, *, with_a: bool = True) -> Tensor:
    """T(A) - I of schedule.py, or of degree 16 without A, from A and A^2; overwrites the other ``powers``."""
    a, a2, y, w = powers.unbind(0)
    if degree == DEGREES[0]:
        return torch.add(a, a2, alpha=0.5)
    if degree == DEGREES[1]:
        rest = torch.add(a, a2, alpha=0.5)
        return _product(a2, torch.add(a2, a, alpha=FOUR[1] / FOUR[0]), rest, alpha=FOUR[0])
    first = EIGHT if degree == DEGREES[2] else SIXTEEN
    _product(a2, torch.add(a2, a, alpha=first[1] / first[0]), alpha=first[0], out=y)
    if degree == DEGREES[2]:
        left, right, rest = _combinations(powers.narrow(0, 0, 3), _EIGHT_ROWS)
    else:
        left, right, rest = _combinations(powers.narrow(0, 0, 3), _SIXTEEN_ROWS_W)
        _product(left, right, rest, out=w)
        left, right, rest = _combinations(powers, _SIXTEEN_ROWS if with_a else _SIXTEEN_ROWS_WITHOUT_A)
    return _product(left, right, rest)


def _product(
    left: Tensor,
    right: Tensor,
    plus: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    out: Tensor | None = None,
) -> Tensor:
    """Alpha left right + beta plus, by the product rule where there are tangents.

    (b, n, m) -> (b, n, m), m = n or 2 n.
    """
    n = left.shape[-2]
    matrix, tangent = left, None
    if left.shape[-1] > n:
        matrix, tangent = left.narrow(-1, 0, n), left.narrow(-1, n, n)
    # Libraries on CPUs add products to the plus term one by one, which rounds at its size each time.
    late = plus if n >= LARGE and squarings_without_identity(left.dtype) else None
    if plus is not None and late is None:
        result = torch.baddbmm(plus, matrix, right, beta=beta, alpha=alpha, out=out)
    elif alpha == 1.0:
        result = torch.bmm(matrix, right, out=out)
    else:
        out = torch.empty_like(right) if out is None else out  # with beta = 0 it is not read
        result = torch.baddbmm(out, matrix, right, beta=0, alpha=alpha, out=out)
    if tangent is not None:
        result.narrow(-1, n, n).baddbmm_(tangent, right.narrow(-1, 0, n), alpha=alpha)
    return result if late is None else result.add_(late, alpha=beta)


def _plus_identity(x: Tensor, n: int) -> Tensor:
    (x if x.shape[-1] == n else x.narrow(-1, 0, n)).diagonal(dim1=-2, dim2=-1).add_(1)
    return x


def _combinations(terms: Tensor, rows: _Rows) -> tuple[Tensor, ...]:
    """All linear combinations of the terms at once.  (k, b, n, m) -> rows x (b, n, m)"""
    # The coefficients are real: complex terms are combined as pairs of real ones.
    parts = torch.view_as_real(terms) if terms.is_complex() else terms
    coefficients = _coefficients(rows, parts.dtype, terms.device)
    combined = (coefficients @ parts.flatten(1)).view(len(rows), *parts.shape[1:])
    return (torch.view_as_complex(combined) if terms.is_complex() else combined).unbind(0)


def _coefficients(rows: _Rows, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The coefficients on the device, kept there so that nothing is uploaded between two products."""
    if detect_fake_mode() is not None:  # a fake tensor must not stay, nor meet a real one
        return torch.tensor(rows, dtype=dtype, device=device)
    return _kept_coefficients(rows, dtype, device)


@lru_cache(maxsize=64)
def _kept_coefficients(rows: _Rows, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(rows, dtype=dtype, device=device)

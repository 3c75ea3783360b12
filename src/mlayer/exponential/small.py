"""The matmul path for small matrices on the CPU: the same mathematics in NumPy.

A call of NumPy costs a third of a call of torch, and its product of a batch of small matrices is several
times faster than `torch.bmm`. NaN and results that overflow are left to `grouped`. Badly scaled
matrices of double precision that need many squarings are balanced and triangular ones get exact diagonals, as
in the kernel; strictly triangular ones with a finite series are not squared.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mlayer.exponential import small_balance, small_triangular, two_rows
from mlayer.exponential.arguments import materialized
from mlayer.exponential.schedule import DEGREES, exact_degree, schedule_for, squarings_without_identity
from mlayer.exponential.small_polynomial import by_entry, empty, polynomial, product

if TYPE_CHECKING:
    from mlayer.numerics.arrays import AnyArray

# Beyond this n^3 b torch is as fast, because its products run on all threads: up to a medium size, and above.
_MEDIUM, _LARGEST = 32, 96
_MOST_OPERATIONS, _MOST_ABOVE = 1 << 22, 1 << 20
_FEW = 32  # matrices whose norms are compared in Python
# As in `matmul`: kept free below the largest number, in units of log.
_MARGIN = 3.0
_DOUBLE = 64  # bits of a real number
_FINFO = {d: torch.finfo(d) for d in (torch.float32, torch.float64, torch.complex64, torch.complex128)}
_PLAIN = (Tensor, torch.nn.Parameter)


class _SmallBatch(NamedTuple):
    """Matrices, and where derivatives are wanted directions, (b, n, n) each."""

    a: AnyArray
    e: AnyArray | None
    dtype: torch.dtype

    def at(self, places: AnyArray) -> _SmallBatch:
        return _SmallBatch(self.a[places], None if self.e is None else self.e[places], self.dtype)

    def times(self, factors: AnyArray) -> _SmallBatch:
        return _SmallBatch(self.a * factors, None if self.e is None else self.e * factors, self.dtype)

    def transposed(self) -> _SmallBatch:
        a, e = self.a.transpose(0, 2, 1), None if self.e is None else self.e.transpose(0, 2, 1)
        return _SmallBatch(a, e, self.dtype)


class _SmallPlan(NamedTuple):
    """One polynomial for a batch, and squarings."""

    degree: int
    most: int  # squarings of the matrix that needs most
    each: AnyArray | None  # squarings of each matrix where they differ by more than one, (b, 1, 1)
    sure: bool  # whether an overflow is ruled out
    squares: AnyArray  # ||A^2||^2 in the Frobenius norm, (b,)


def takes(matrices: Tensor) -> bool:
    """Whether NumPy is the faster way for these."""
    n = matrices.shape[-1]
    return (
        n <= _LARGEST
        and matrices.numel() * n <= (_MOST_OPERATIONS if n <= _MEDIUM else _MOST_ABOVE)
        and matrices.is_cpu
        and matrices.dtype in _FINFO
        and type(matrices) in _PLAIN
    )


@np.errstate(all="ignore")
def evaluate(matrices: Tensor, direction: Tensor | None) -> Tensor | None:
    """exp(A), or L(A, E) with a direction, of (b, n, n); None where `grouped` must decide."""
    a, dtype = _array(matrices), matrices.dtype
    if direction is None:
        y = two_rows.value(a) if a.shape[1] == 2 else _best(_SmallBatch(a, None, dtype))
        return None if y is None else torch.from_numpy(np.ascontiguousarray(y))
    e = _array(direction)
    # L is linear in E: at the size of 1 it overflows only where the result does.
    largest = np.abs(e).max((1, 2), keepdims=True)
    if not np.isfinite(largest).all():
        return None
    size = np.exp2(np.floor(np.log2(np.maximum(largest, _FINFO[dtype].tiny))))
    y = two_rows.derivative(a, e / size) if a.shape[1] == 2 else _best(_SmallBatch(a, e / size, dtype))
    return None if y is None else torch.from_numpy(np.ascontiguousarray(y * size))


def _best(batch: _SmallBatch) -> AnyArray | None:
    """exp(A), or L(A, E), balanced where that is better, with exact diagonals if triangular."""
    a, e, dtype = batch
    powers = _start(batch)
    plan = _plan(powers, dtype)
    double = _FINFO[dtype].bits == _DOUBLE
    if plan is None:  # perhaps not so large once they are balanced
        worth_a_look = double and bool(np.isfinite(a).all())
    else:
        if plan.most and small_triangular.may_be_strict(powers[1, :, :, : a.shape[1]]):
            strict = small_triangular.find(a, strictly=True)
            degree = exact_degree(a.shape[1] - 1, e is not None)
            if strict is not None and degree is not None:
                if len(strict) < len(a):
                    return _apart(batch, strict)
                plan = plan._replace(degree=degree, most=0, each=None, sure=False)  # a finite series
        worth_a_look = double and plan.most >= small_balance.WORTH_A_LOOK
    sums = small_balance.look(a) if worth_a_look else None
    if sums is not None:
        return _imbalanced(batch, sums, powers, plan)
    return None if plan is None else _evaluated(powers, plan, dtype)


def _imbalanced(
    batch: _SmallBatch, sums: small_balance.Sums, powers: AnyArray, plan: _SmallPlan | None
) -> AnyArray | None:
    """The same, of matrices of which some have a row far larger than its column."""
    a, e, _ = batch
    if not sums[0].any():
        return small_triangular.of_diagonal(a, e)
    triangle = small_triangular.triangle(a)
    if triangle is None:
        places = small_triangular.find(a)
        if places is not None:
            return _apart(batch, places)
        places = small_balance.find(sums)
        if plan is not None:
            places = places[_may_save(powers[1], plan, places)]
        found = small_balance.balance(a, e, places) if len(places) else None
        return _balanced(batch, found, powers, plan, triangular=False)
    if triangle == "lower":  # exp(A^T) = exp(A)^T
        batch = batch.transposed()
        powers = _start(batch)
    strong = small_triangular.strongly_coupled(a, sums)
    found = small_balance.balance_triangular(batch.a, batch.e, strong) if len(strong) else None
    y = _balanced(batch, found, powers, plan, triangular=True)
    return y if y is None or triangle == "upper" else y.transpose(0, 2, 1)


def _balanced(
    batch: _SmallBatch,
    found: small_balance.Balancing | None,
    powers: AnyArray,
    plan: _SmallPlan | None,
    *,
    triangular: bool,
) -> AnyArray | None:
    """The same, of balanced matrices where squarings are saved; those that lose digits by it once more."""
    if found is not None:
        places, factors, kappa = found
        after = batch.at(places).times(factors)
        other = _start(after)
        squares = _squares(other[:2, :, :, : factors.shape[1]])[1]
        derivative = batch.e is not None
        count = np.inf if plan is None else _count(plan.squares[places], batch.dtype, derivative)
        saved = count - _count(squares, batch.dtype, derivative)
        good = saved >= small_balance.WORTH_BALANCING
        if not good.all():
            places, factors, kappa, saved = places[good], factors[good], kappa[good], saved[good]
            other, after = other[:, good], after.at(good)
        if len(places):
            powers[:2, places] = other[:2]
            upper = None
            if triangular:
                upper = batch.a.copy()
                upper[places] = after.a
            mixed = _plan(powers, batch.dtype)
            y = None if mixed is None else _evaluated(powers, mixed, batch.dtype, upper)
            if y is not None:
                back = y[places] / factors
                worse = places[~small_balance.is_better(back, y[places], kappa, saved)]
                y[places] = back
                if len(worse):
                    rest = _plain(batch.at(worse), triangular)
                    if rest is None:
                        return None
                    y[worse] = rest
                return y
            return None if plan is None else _plain(batch, triangular)
    return None if plan is None else _evaluated(powers, plan, batch.dtype, batch.a if triangular else None)


def _may_save(square: AnyArray, plan: _SmallPlan, places: AnyArray) -> AnyArray:
    """Whether balancing may save more than one squaring; it does not change the diagonal of A^2."""
    least = (np.abs(square.diagonal(0, 1, 2)[places]) ** 2).sum(1)
    found: AnyArray = plan.squares[places] > 2.0 ** (4 * (small_balance.WORTH_BALANCING - 1)) * least
    return found


def _plain(batch: _SmallBatch, triangular: bool) -> AnyArray | None:
    """The same without balancing."""
    powers = _start(batch)
    plan = _plan(powers, batch.dtype)
    return None if plan is None else _evaluated(powers, plan, batch.dtype, batch.a if triangular else None)


def _apart(batch: _SmallBatch, special: AnyArray) -> AnyArray | None:
    """The same of a batch in which matrices at these places are triangular; some above, some below."""
    result = np.empty_like(batch.a)
    others = np.setdiff1d(np.arange(len(result)), special)
    is_lower = small_triangular.is_lower(batch.a[special])
    for places in (special[is_lower], special[~is_lower], others):
        if len(places):
            part = _best(batch.at(places))
            if part is None:
                return None
            result[places] = part
    return result


def _count(squares: AnyArray, dtype: torch.dtype, derivative: bool) -> AnyArray:
    """Squarings of each matrix from ||A^2||^2.  -> (b,)"""
    theta = schedule_for(dtype, derivative).theta[-1]
    count: AnyArray = np.ceil(np.log2(np.maximum(squares, theta**4)) / 4 - math.log2(theta))
    return count


def _array(matrices: Tensor) -> AnyArray:
    array: AnyArray = materialized(matrices).detach().numpy()
    return array


def _start(batch: _SmallBatch) -> AnyArray:
    """A and A^2, and room for two more, each with its tangent.  -> (4, b, n, n or 2 n)"""
    a, e, _ = batch
    b, n, _ = a.shape
    powers = empty(b, n, n if e is None else 2 * n, a.dtype)
    powers[0, :, :, :n] = a
    if e is not None:
        powers[0, :, :, n:] = e
    product(powers[0], powers[0], powers[1])
    return powers


def _evaluated(
    powers: AnyArray, plan: _SmallPlan, dtype: torch.dtype, upper: AnyArray | None = None
) -> AnyArray | None:
    """exp(A), or its derivative where there are tangents, from A and A^2; None if it overflows.

    ``upper`` is A if it is triangular, to put the exact diagonals into all powers.
    """
    n, m = powers.shape[2:]
    if n == 1:  # no squarings, which would lose digits
        y = np.exp(powers[0, :, :, :1])
        if m > n:
            y = powers[0, :, :, 1:] * y
        return y if plan.sure or np.isfinite(y).all() else None
    most, each = plan.most, plan.each
    without = min(most, squarings_without_identity(dtype))
    diagonals = None
    if upper is not None and most:
        diagonals = small_triangular.Diagonals.of(upper, _times(most, each), without)
    if each is not None:
        scale = np.exp2(-each)
        powers[0] *= scale
        powers[1] *= scale * scale
    elif most:
        powers[0] *= 0.5**most
        powers[1] *= 0.25**most
    y = polynomial(powers, plan.degree)
    for k in range(most):
        if k == without:
            small_triangular.diagonal(y, 0)[...] += 1
        if diagonals is not None:
            diagonals.put(y, k)
        squared = product(y, y)
        if k < without:
            squared += 2 * y
        y = squared if each is None else np.where(each > k, squared, y)
    if most == without:
        small_triangular.diagonal(y, 0)[...] += 1
    if m > n:
        y = y[:, :, n:]
    elif diagonals is not None:
        diagonals.put(y, most)
    return y if plan.sure or np.isfinite(y).all() else None


def _times(most: int, squarings: AnyArray | None) -> AnyArray:
    """The t of exp(t A) before the first squaring and after each.  -> (most + 1, 1 or b, 1)"""
    each = np.full((1, 1), float(most)) if squarings is None else squarings[:, :, 0]
    times: AnyArray = np.exp2(np.minimum(np.arange(most + 1.0)[:, None, None], each) - each)
    return times


def _plan(powers: AnyArray, dtype: torch.dtype) -> _SmallPlan | None:
    """One degree, the most squarings, and each matrix's own where they differ; see `matmul._look`.

    None if norms are not finite.
    """
    n = powers.shape[-2]
    derivative = powers.shape[-1] > n
    squares = _squares(powers[:2, :, :, :n])
    size2, norm2, least2 = _extremes(squares)
    if not (math.isfinite(norm2) and math.isfinite(size2)):
        return None
    d, size = norm2**0.25, math.sqrt(size2)
    sure = d + math.log1p(size) * (2 if derivative else 1) <= _limit(dtype, n)
    table = schedule_for(dtype, derivative)
    theta = table.theta[-1]
    if d <= theta or n == 1:
        return _SmallPlan(table.degree(d, size), 0, None, sure, squares[1])
    most, fewest = _squarings(norm2, theta, dtype), _squarings(least2, theta, dtype)
    if most <= fewest + 1:  # one squaring more than needed costs less than separate numbers for the matrices
        return _SmallPlan(DEGREES[-1], most, None, sure, squares[1])
    excess = np.log2(np.maximum(squares[1], _FINFO[dtype].tiny).astype(np.float64)) / 4 - math.log2(theta)
    each = np.ceil(excess + 8 * _FINFO[dtype].eps).clip(0, most)
    return _SmallPlan(DEGREES[-1], most, each.astype(squares.dtype)[:, None, None], sure, squares[1])


def _extremes(squares: AnyArray) -> tuple[float, float, float]:
    """The largest of both rows and the least of the second; infinite if there is a NaN."""
    if squares.shape[1] > _FEW:
        largest = squares.max(1).tolist()
        return largest[0], largest[1], float(squares[1].min())
    first, second = squares.tolist()  # faster than three reductions
    if math.isnan(sum(second)):
        return math.inf, math.inf, math.inf
    return max(first), max(second), min(second)


def _squares(values: AnyArray) -> AnyArray:
    """||A||^2 and ||A^2||^2 in the Frobenius norm.  (2, b, n, n) -> (2, b)"""
    _, b, n, _ = values.shape
    if by_entry(b, n):
        entries = values * values.conj() if values.dtype.kind == "c" else values * values
        sums: AnyArray = entries.sum((2, 3)).real
        return sums
    flat = values.reshape(2, b, n * n).view(values.real.dtype)
    total: AnyArray = np.matmul(flat[:, :, None, :], flat[:, :, :, None])[:, :, 0, 0]
    return total


@lru_cache(maxsize=256)
def _limit(dtype: torch.dtype, n: int) -> float:
    """The upper limit of d + log(1 + ||A||) below which nothing overflows."""
    return math.log(_FINFO[dtype].max) - _MARGIN - math.log(n)


def _squarings(square: float, theta: float, dtype: torch.dtype) -> int:
    """The least s >= 0 with 2^-s ||A^2||^(1/2) <= theta, from ||A^2||^2; one more in doubt."""
    if square <= theta**4:
        return 0
    return max(0, math.ceil(math.log2(square) / 4 - math.log2(theta) + 8 * _FINFO[dtype].eps))

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


class _SmallPlan(NamedTuple):
    """One polynomial for a batch, and squarings."""

    degree: int
    most: int  # squarings of the matrix that needs most
    each: AnyArray | None  # squarings of each matrix where they differ by more than one, (b,)
    sure: bool  # whether an overflow is ruled out


class Findings(NamedTuple):
    """Norms, triangle and balancing of A, which hold at its adjoint, for the backward pass."""

    squares: AnyArray  # ||A||^2 and ||A^2||^2 in the Frobenius norm, after balancing, (2, b)
    looked: bool = False  # for matrices to balance
    triangle: str | None = (
        None  # of all of them: "upper" or "lower", which is transposed before it is balanced
    )
    balancing: small_balance.Balancing | None = None
    gain: AnyArray | None = None  # by balancing


_OTHER = {"upper": "lower", "lower": "upper"}
_Result = tuple["AnyArray | None", Findings | None]


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
def expm(matrices: Tensor) -> tuple[Tensor | None, Findings | None]:
    """exp(A) of (b, n, n), None where `grouped` must decide; and what :func:`frechet` need not seek again."""
    a = _array(matrices)
    y, found = (two_rows.value(a), None) if a.shape[1] == 2 else _best(_SmallBatch(a, None, matrices.dtype))
    return None if y is None else torch.from_numpy(np.ascontiguousarray(y)), found


@np.errstate(all="ignore")
def frechet(matrices: Tensor, direction: Tensor, found: Findings | None = None) -> Tensor | None:
    """L(A, E) of (b, n, n), None where `grouped` must decide."""
    a, e, dtype = _array(matrices), _array(direction), matrices.dtype
    # L is linear in E: at the size of 1 it overflows only where the result does.
    largest = np.abs(e).max((1, 2), keepdims=True)
    if not np.isfinite(largest).all():
        return None
    size = np.ldexp(largest.dtype.type(1), np.frexp(largest)[1] - 1)
    e = e / size
    y = two_rows.derivative(a, e) if a.shape[1] == 2 else _best(_SmallBatch(a, e, dtype), found)[0]
    return None if y is None else torch.from_numpy(np.ascontiguousarray(y * size))


def _best(batch: _SmallBatch, found: Findings | None = None) -> _Result:
    """exp(A), or L(A, E), balanced where that is better, with exact diagonals if triangular."""
    a, e, dtype = batch
    n, derivative = a.shape[1], e is not None
    powers = _start(batch)
    if found is None:
        found = Findings(_squares(powers[:2, :, :, :n]))
    elif found.balancing is not None:
        return _balanced(batch, found.balancing.adjoint(), powers, found, None)
    plan = _plan(found.squares, n, derivative, dtype)
    if found.triangle is not None and plan is not None:
        return _triangular(batch, _OTHER[found.triangle], powers, plan), None
    double = _FINFO[dtype].bits == _DOUBLE
    if plan is None:  # perhaps not so large once they are balanced
        worth_a_look = bool(np.isfinite(a).all())
    else:
        if plan.most and small_triangular.may_be_strict(powers[1, :, :, :n]):
            strict = small_triangular.find(a, strictly=True)
            degree = exact_degree(n - 1, derivative)
            if strict is not None and degree is not None:
                if len(strict) < len(a):
                    return _apart(batch, strict), None
                plan = plan._replace(degree=degree, most=0, each=None, sure=False)  # a finite series
        from_squarings = small_balance.WORTH_A_LOOK if double else small_balance.WORTH_A_LATE_LOOK
        worth_a_look = not found.looked and plan.most >= from_squarings
        if worth_a_look and not double:
            may_save = small_balance.may_save(
                powers[1, :, :, :n], found.squares, small_balance.WORTH_MUCH - 1
            )
            worth_a_look = bool(may_save.any())
    if worth_a_look:
        sums = small_balance.look(a)
        if sums is not None:
            if not double:
                return _in_double(batch), None
            return _imbalanced(batch, sums, powers, found.squares, plan)
        found = found._replace(looked=True)
    return (None, None) if plan is None else (_evaluated(powers, plan, dtype), found)


def _in_double(batch: _SmallBatch) -> AnyArray | None:
    """The same of matrices of single precision that would lose digits to their scaling."""
    single = batch.a.dtype
    wider, dtype = (np.complex128, torch.complex128) if single.kind == "c" else (np.float64, torch.float64)
    e = None if batch.e is None else batch.e.astype(wider)
    y, _ = _best(_SmallBatch(batch.a.astype(wider), e, dtype))
    y = None if y is None else y.astype(single)
    return y if y is not None and np.isfinite(y).all() else None


def _imbalanced(
    batch: _SmallBatch,
    sums: small_balance.Sums,
    powers: AnyArray,
    squares: AnyArray,
    plan: _SmallPlan | None,
) -> _Result:
    """The same, of matrices of which some have a row far larger than its column."""
    a, e, dtype = batch
    found = Findings(squares, True)
    if not small_triangular.have_corners(a):
        if not sums[0].any():
            return small_triangular.of_diagonal(a, e), None
        triangle = small_triangular.triangle(a)
        if triangle is not None:
            found = found._replace(triangle=triangle)
            return (None if plan is None else _triangular(batch, triangle, powers, plan)), found
        places = small_triangular.find(a)
        if places is not None:
            return _apart(batch, places), None
    balancing = small_balance.find(a, sums, powers[1], squares[1])
    if balancing is not None:
        return _balanced(batch, balancing, powers, found, plan)
    return (None if plan is None else _evaluated(powers, plan, dtype)), found


def _triangular(batch: _SmallBatch, triangle: str, powers: AnyArray, plan: _SmallPlan) -> AnyArray | None:
    """The same of triangular matrices."""
    if triangle == "upper":
        return _evaluated(powers, plan, batch.dtype, batch.a)
    b, n, m = powers.shape[1:]  # exp(A^T) = exp(A)^T
    parts = powers[:2].reshape(2, b, n, m // n, n)
    powers[:2] = parts.transpose(0, 1, 4, 3, 2).reshape(2, b, n, m)
    y = _evaluated(powers, plan, batch.dtype, batch.a.transpose(0, 2, 1))
    return None if y is None else y.transpose(0, 2, 1)


def _balanced(
    batch: _SmallBatch,
    balancing: small_balance.Balancing,
    powers: AnyArray,
    found: Findings,
    plan: _SmallPlan | None,
) -> _Result:
    """The same with as few squarings as D^-1 A D needs; with all once more where digits are lost by that.

    Scaling by powers of two changes no rounding: A itself gives D exp(D^-1 A D) D^-1 to the last bit.
    """
    n, derivative, dtype = batch.a.shape[1], batch.e is not None, batch.dtype
    squares, gain, factors = found.squares, found.gain, balancing.factors
    where: AnyArray | slice = balancing.places if len(balancing.places) < len(batch.a) else slice(None)
    if gain is None:
        after = _squares(powers[:2, where, :, :n] * factors)
        earlier = np.where(np.isfinite(squares[1, where]), squares[1, where], np.inf)
        gain = small_balance.gain(earlier, after[1], schedule_for(dtype, derivative).theta[-1])
        good = gain >= 2.0**small_balance.WORTH_BALANCING
        if not good.all():
            balancing = balancing.at(good)
            if not len(balancing.places):
                return (None if plan is None else _evaluated(powers, plan, dtype)), found
            where, gain, factors, after = balancing.places, gain[good], factors[good], after[:, good]
        squares = squares.copy()
        squares[:, where] = after
    plan = _plan(squares, n, derivative, dtype)
    y = None if plan is None else _evaluated(powers, plan._replace(sure=False), dtype)
    if y is None:
        return _plain(batch), None
    better = small_balance.is_better(y[where], factors, gain)
    if better.all():
        return y, Findings(squares, True, None, balancing, gain)
    worse = balancing.places[~better]
    rest = _plain(batch.at(worse))
    if rest is None:
        return None, None
    y[worse] = rest
    return y, None


def _plain(batch: _SmallBatch) -> AnyArray | None:
    """The same without balancing."""
    powers, n = _start(batch), batch.a.shape[1]
    plan = _plan(_squares(powers[:2, :, :, :n]), n, batch.e is not None, batch.dtype)
    return None if plan is None else _evaluated(powers, plan, batch.dtype)


def _apart(batch: _SmallBatch, special: AnyArray) -> AnyArray | None:
    """The same of a batch in which matrices at these places are triangular; some above, some below."""
    result = np.empty_like(batch.a)
    others = np.setdiff1d(np.arange(len(result)), special)
    is_lower = small_triangular.is_lower(batch.a[special])
    for places in (special[is_lower], special[~is_lower], others):
        if len(places):
            part, _ = _best(batch.at(places))
            if part is None:
                return None
            result[places] = part
    return result


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
    if each is not None:
        scale = np.exp2(-each)[:, None, None]
        powers[0] *= scale
        powers[1] *= scale * scale
    elif most:
        powers[0] *= 0.5**most
        powers[1] *= 0.25**most
    y = polynomial(powers, plan.degree)
    order, counts = None, [len(y)] * most
    if each is not None:  # those with the most squarings first
        order = np.argsort(-each)
        y, each = y[order], each[order]
        counts = np.searchsorted(-each, -np.arange(most)).tolist()
    diagonals = None
    if upper is not None and most:
        upper = upper if order is None else upper[order]
        diagonals = small_triangular.Diagonals.of(upper, _times(most, each), without)
    for k, count in enumerate(counts):
        if k == without:
            small_triangular.diagonal(y, 0)[...] += 1
        active = y[:count]
        if diagonals is not None:
            diagonals.put(active, k)
        squared = product(active, active)
        if k < without:
            squared += 2 * active
        if order is None:
            y = squared
        else:
            active[...] = squared
    if most == without:
        small_triangular.diagonal(y, 0)[...] += 1
    if m > n:
        y = y[:, :, n:]
    elif diagonals is not None:
        diagonals.put(y, most)
    if order is not None:
        y, sorted_y = np.empty_like(y), y
        y[order] = sorted_y
    return y if plan.sure or np.isfinite(y).all() else None


def _times(most: int, squarings: AnyArray | None) -> AnyArray:
    """The t of exp(t A) before the first squaring and after each.  -> (most + 1, 1 or b, 1)"""
    if squarings is None:
        return _same_times(most)
    each = squarings[:, None]
    times: AnyArray = np.exp2(np.minimum(np.arange(most + 1.0)[:, None, None], each) - each)
    return times


@lru_cache(maxsize=64)
def _same_times(most: int) -> AnyArray:
    return np.exp2(np.arange(-most, 1.0)[:, None, None])


def _plan(squares: AnyArray, n: int, derivative: bool, dtype: torch.dtype) -> _SmallPlan | None:
    """One degree, the most squarings, and each matrix's own where they differ; see `matmul._look`.

    From ||A||^2 and ||A^2||^2, (2, b); None if they are not finite.
    """
    size2, norm2, least2 = _extremes(squares)
    if not (math.isfinite(norm2) and math.isfinite(size2)):
        return None
    d, size = norm2**0.25, math.sqrt(size2)
    sure = d + math.log1p(size) * (2 if derivative else 1) <= _limit(dtype, n)
    table = schedule_for(dtype, derivative)
    theta = table.theta[-1]
    if d <= theta or n == 1:
        return _SmallPlan(table.degree(d, size), 0, None, sure)
    most, fewest = _squarings(norm2, theta, dtype), _squarings(least2, theta, dtype)
    if most <= fewest + 1:  # one squaring more than needed costs less than separate numbers for the matrices
        return _SmallPlan(DEGREES[-1], most, None, sure)
    excess = np.log2(np.maximum(squares[1], _FINFO[dtype].tiny).astype(np.float64)) / 4 - math.log2(theta)
    each = np.ceil(excess + 8 * _FINFO[dtype].eps).clip(0, most)
    return _SmallPlan(DEGREES[-1], most, each.astype(squares.dtype), sure)


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

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


class Findings(NamedTuple):
    """What was found at A and holds at its adjoint, for the backward pass."""

    squares: AnyArray  # ||A||^2 and ||A^2||^2 in the Frobenius norm, after balancing, (2, b)
    looked: bool  # for matrices to balance
    balancing: small_balance.Balancing | None = None
    gain: AnyArray | None = None  # by balancing


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
    """exp(A) of (b, n, n), None where `grouped` must decide; and what :func:`frechet` at the adjoint need not seek."""
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
    if found is not None and found.balancing is not None:
        y, _ = _balanced(batch, found.balancing.adjoint(), powers, found, triangular=False)
        return (y, None) if y is not None else _best(batch)
    if found is None:
        found = Findings(_squares(powers[:2, :, :, :n]), False)
    plan = _plan(found.squares, n, derivative, dtype)
    double = _FINFO[dtype].bits == _DOUBLE
    if plan is None:  # perhaps not so large once they are balanced
        worth_a_look = double and bool(np.isfinite(a).all())
    else:
        if plan.most and small_triangular.may_be_strict(powers[1, :, :, :n]):
            strict = small_triangular.find(a, strictly=True)
            degree = exact_degree(n - 1, derivative)
            if strict is not None and degree is not None:
                if len(strict) < len(a):
                    return _apart(batch, strict), None
                plan = plan._replace(degree=degree, most=0, each=None, sure=False)  # a finite series
        worth_a_look = double and not found.looked and plan.most >= small_balance.WORTH_A_LOOK
    if worth_a_look:
        sums = small_balance.look(a)
        if sums is not None:
            return _imbalanced(batch, sums, powers, found.squares)
        found = found._replace(looked=True)
    return (None, None) if plan is None else (_evaluated(powers, plan, dtype), found)


def _imbalanced(
    batch: _SmallBatch,
    sums: small_balance.Sums,
    powers: AnyArray,
    squares: AnyArray,
) -> _Result:
    """The same, of matrices of which some have a row far larger than its column."""
    a, e, _ = batch
    triangle = None
    if not small_triangular.have_corners(a):
        if not sums[0].any():
            return small_triangular.of_diagonal(a, e), None
        triangle = small_triangular.triangle(a)
        places = None if triangle else small_triangular.find(a)
        if places is not None:
            return _apart(batch, places), None
    if triangle is None:
        found = small_balance.find(a, sums, powers[1], squares[1])
        return _balanced(batch, found, powers, Findings(squares, True), triangular=False)
    if triangle == "lower":  # exp(A^T) = exp(A)^T
        batch = batch.transposed()
        powers = _start(batch)
    strong = small_triangular.strongly_coupled(a, sums)
    found = small_balance.find_triangular(batch.a, strong) if len(strong) else None
    y, _ = _balanced(batch, found, powers, Findings(squares, True), triangular=True)
    return y if y is None or triangle == "upper" else y.transpose(0, 2, 1), None


def _balanced(
    batch: _SmallBatch,
    balancing: small_balance.Balancing | None,
    powers: AnyArray,
    found: Findings,
    *,
    triangular: bool,
) -> _Result:
    """The same, of balanced matrices where squarings are saved; those that lose digits by it once more.

    What was found with another balancing is its adjoint's; the result is None then if this one rounds.
    """
    a, e, dtype = batch
    n, derivative = a.shape[1], e is not None
    if balancing is None:
        plan = _plan(found.squares, n, derivative, dtype)
        y = None if plan is None else _evaluated(powers, plan, dtype, a if triangular else None)
        return y, found
    squares, gain = found.squares, found.gain
    factors = balancing.factors
    both = np.concatenate([factors, factors], 2) if derivative else factors
    where: AnyArray | slice = balancing.places if len(balancing.places) < len(a) else slice(None)
    before = powers[:2, where]
    scaled = before * both
    exact = (scaled[0] / both == before[0]).all((1, 2))  # nothing underflows
    if gain is not None:
        if not exact.all():
            return None, None
    else:
        if not np.isfinite(squares).all():  # of A^2 at least
            product(scaled[0], scaled[0], scaled[1])
        after = _squares(scaled[:, :, :, :n])
        earlier = np.where(np.isfinite(squares[1, where]), squares[1, where], np.inf)
        gain = small_balance.gain(earlier, after[1], schedule_for(dtype, derivative).theta[-1])
        good = exact & (gain >= 2.0**small_balance.WORTH_BALANCING)
        if not good.all():
            balancing = balancing.at(good)
            if not len(balancing.places):
                return _balanced(batch, None, powers, found, triangular=triangular)
            where, gain, factors = balancing.places, gain[good], factors[good]
            scaled, after = scaled[:, good], after[:, good]
        squares = squares.copy()
        squares[:, where] = after
    powers[:2, where] = scaled
    upper = None
    if triangular:
        upper = a.copy()
        upper[where] = scaled[0, :, :, :n]
    plan = _plan(squares, n, derivative, dtype)
    y = None if plan is None else _evaluated(powers, plan, dtype, upper)
    if y is None:
        return _plain(batch, triangular), None
    back = y[where] / factors
    better = small_balance.is_better(y[where], factors, back, gain)
    y[where] = back
    if better.all():
        return y, Findings(squares, True, balancing, gain)
    worse = balancing.places[~better]
    rest = _plain(batch.at(worse), triangular)
    if rest is None:
        return None, None
    y[worse] = rest
    return y, None


def _plain(batch: _SmallBatch, triangular: bool) -> AnyArray | None:
    """The same without balancing."""
    powers, n = _start(batch), batch.a.shape[1]
    plan = _plan(_squares(powers[:2, :, :, :n]), n, batch.e is not None, batch.dtype)
    return None if plan is None else _evaluated(powers, plan, batch.dtype, batch.a if triangular else None)


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
    return _SmallPlan(DEGREES[-1], most, each.astype(squares.dtype)[:, None, None], sure)


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

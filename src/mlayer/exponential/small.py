"""The matmul path for small matrices on the CPU: the same mathematics in NumPy.

A call of NumPy costs a third of a call of torch, and its product of a batch of small matrices is several
times faster than `torch.bmm`. Many tiny matrices stand entry by entry in memory, so that one multiplication
serves the same entry of all of them. What `matmul` would send to `grouped` is left to it: NaN, results that
might overflow, strictly triangular matrices with a finite series. Badly scaled matrices of double precision
that need many squarings are balanced, as in the kernel.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mlayer.exponential import small_balance, small_triangular
from mlayer.exponential.arguments import materialized
from mlayer.exponential.schedule import (
    DEGREES,
    EIGHT,
    FOUR,
    SIXTEEN,
    schedule_for,
    squarings_without_identity,
)

if TYPE_CHECKING:
    from mlayer.numerics.arrays import AnyArray

# Beyond this n^3 b torch is as fast, because its products run on all threads: up to a medium size, and above.
_MEDIUM, _LARGEST = 32, 96
_MOST_OPERATIONS, _MOST_ABOVE = 1 << 22, 1 << 20
# Up to this size, from this many matrices on, products are made entry by entry; measured.
_TINY, _MANY = 3, 128
# As in `matmul`: kept free below the largest number, in units of log.
_MARGIN = 3.0
_DOUBLE = 64  # bits of a real number
_FINFO = {d: torch.finfo(d) for d in (torch.float32, torch.float64, torch.complex64, torch.complex128)}
_PLAIN = (Tensor, torch.nn.Parameter)
# Rows over (A, A2, Y) and (A, A2, Y, W): left factor, right factor, remainder of a product.
_EIGHT_ROWS = np.array(((EIGHT[3], EIGHT[2], 1.0), (0.0, EIGHT[4], 1.0), (1.0, 0.5, EIGHT[5])))
_W_ROWS = np.array(((SIXTEEN[3], SIXTEEN[2], 1.0), (0.0, SIXTEEN[4], 1.0), (0.0, SIXTEEN[6], SIXTEEN[5])))
_SIXTEEN_ROWS = np.array(
    (
        (SIXTEEN[8], SIXTEEN[7], 0.0, 1.0),
        (SIXTEEN[10], 0.0, SIXTEEN[9], 1.0),
        (SIXTEEN[14], SIXTEEN[13], SIXTEEN[12], SIXTEEN[11]),
    )
)


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
        y = _best(a, dtype)
        return None if y is None else torch.from_numpy(np.ascontiguousarray(y))
    e = _array(direction)
    # L is linear in E: at the size of 1 it overflows only where the result does.
    largest = np.abs(e).max((1, 2), keepdims=True)
    if not np.isfinite(largest).all():
        return None
    size = np.exp2(np.floor(np.log2(np.maximum(largest, _FINFO[dtype].tiny))))
    y = _best(a, dtype, e / size)
    return None if y is None else torch.from_numpy(np.ascontiguousarray(y * size))


def _value(
    a: AnyArray, dtype: torch.dtype, e: AnyArray | None = None, *, triangular: bool = False
) -> tuple[AnyArray | None, small_balance.Sums | None]:
    """exp(A), or L(A, E), and where squarings are many what `small_balance.look` found."""
    b, n, _ = a.shape
    powers = _empty(b, n, n if e is None else 2 * n, a.dtype)  # A, A2, Y and W, each with its tangent
    powers[0, :, :, :n] = a
    if e is not None:
        powers[0, :, :, n:] = e
    y, sums = _exponential(powers, a, dtype, triangular)
    return (y if y is None or e is None else y[:, :, n:]), sums


def _best(
    a: AnyArray, dtype: torch.dtype, e: AnyArray | None = None, *, triangular: bool = False
) -> AnyArray | None:
    """exp(A), or L(A, E), of balanced matrices where that is better, with exact diagonals if triangular."""
    y, sums = _value(a, dtype, e, triangular=triangular)
    if y is None and sums is None and _FINFO[dtype].bits == _DOUBLE and np.isfinite(a).all():
        sums = small_balance.look(a)
    if sums is None:
        return y
    places = None if triangular or y is not None else small_triangular.find(a)
    if places is not None:
        return _apart(a, dtype, e, places)
    if triangular and y is not None and not small_triangular.strongly_coupled(a, sums).any():
        return y  # exact diagonals suffice
    found = small_balance.balance(a, e, sums)
    if found is None:
        return y
    index, factors = found.places, found.factors
    after = a[index] * factors
    if y is None:  # large matrices: perhaps not so large once they are balanced
        whole, direction = a.copy(), None if e is None else e.copy()
        whole[index] = after
        if direction is not None:
            direction[index] *= factors
        y, _ = _value(whole, dtype, direction, triangular=triangular)
        if y is None:
            return None
        other, plain = y[index], None
    else:
        balanced, _ = _value(after, dtype, None if e is None else e[index] * factors, triangular=triangular)
        if balanced is None:
            return y
        other, plain = balanced, y[index]
    saved = _count(a[index], dtype, e is not None) - _count(after, dtype, e is not None)
    back = other / factors
    better = small_balance.is_better(back, found.kappa * other, plain, saved)
    if plain is None and not better.all():
        return None
    y = y.copy()
    y[index] = back if plain is None else np.where(better[:, None, None], back, plain)
    return y


def _apart(a: AnyArray, dtype: torch.dtype, e: AnyArray | None, triangular: AnyArray) -> AnyArray | None:
    """The same of a batch in which some matrices, at these places, are triangular."""
    if len(triangular) == len(a):
        return _best(a, dtype, e, triangular=True)
    result = np.empty_like(a)
    others = np.setdiff1d(np.arange(len(a)), triangular)
    for places in (triangular, others):
        if len(places):
            direction = None if e is None else e[places]
            part = _best(a[places], dtype, direction, triangular=places is triangular)
            if part is None:
                return None
            result[places] = part
    return result


def _count(a: AnyArray, dtype: torch.dtype, derivative: bool) -> AnyArray:
    """Squarings of each matrix.  -> (b,)"""
    square = np.linalg.norm(_multiply(a, a), axis=(1, 2))
    theta = schedule_for(dtype, derivative).theta[-1]
    count: AnyArray = np.ceil(np.log2(np.maximum(square, theta**2)) / 2 - math.log2(theta))
    return count


def _by_entry(b: int, n: int) -> bool:
    return n <= _TINY and b >= _MANY


def _empty(b: int, n: int, m: int, dtype: Any) -> AnyArray:
    """(4, b, n, m), the matrices last in memory where they are multiplied entry by entry."""
    if _by_entry(b, n):
        return np.empty((4, n, m, b), dtype).transpose(0, 3, 1, 2)
    return np.empty((4, b, n, m), dtype)


def _array(matrices: Tensor) -> AnyArray:
    array: AnyArray = materialized(matrices).detach().numpy()
    return array


def _exponential(
    powers: AnyArray, a: AnyArray, dtype: torch.dtype, triangular: bool
) -> tuple[AnyArray | None, small_balance.Sums | None]:
    """exp(A), with its derivative where there are tangents, from A in ``powers[0]``; the rest as `_value`.

    None, before the work is done, if some matrices are triangular, with many squarings, and nobody knew.
    """
    n = a.shape[1]
    _product(powers[0], powers[0], powers[1])
    derivative = powers.shape[-1] > n
    plan = _plan(powers[:2, :, :, :n], dtype, derivative=derivative, bounded=not triangular)
    if plan is None:
        return None, None
    if n == 1:  # no squarings, which would lose digits
        powers[0, :, :, :1] = np.exp(powers[0, :, :, :1])
        powers[0, :, :, 1:] *= powers[0, :, :, :1]
        return powers[0], None
    degree, most, squarings = plan
    many = most >= small_balance.WORTH_A_LOOK and _FINFO[dtype].bits == _DOUBLE
    sums = small_balance.look(a) if many else None
    if sums is not None and not triangular and small_triangular.find(a) is not None:
        return None, sums
    without = min(most, squarings_without_identity(dtype))
    diagonals = small_triangular.Diagonals.of(a, _times(most, squarings), without) if triangular else None
    if squarings is not None:
        scale = np.exp2(-squarings)
        powers[0] *= scale
        powers[1] *= scale * scale
    elif most:
        powers[0] *= 0.5**most
        powers[1] *= 0.25**most
    y = _polynomial(powers, degree)
    for k in range(most):
        if k == without:
            _plus_identity(y, n)
        if diagonals is not None:
            diagonals.put(y[:, :, :n], k)
        squared = _product(y, y)
        if k < without:
            squared += 2 * y
        y = squared if squarings is None else np.where(squarings > k, squared, y)
    if most == without:
        _plus_identity(y, n)
    if diagonals is not None:
        diagonals.put(y[:, :, :n], most)
        if not np.isfinite(y).all():
            return None, sums
    return y, sums


def _times(most: int, squarings: AnyArray | None) -> AnyArray:
    """The t of exp(t A) before the first squaring and after each.  -> (most + 1, 1 or b, 1)"""
    each = np.full((1, 1), float(most)) if squarings is None else squarings[:, :, 0]
    times: AnyArray = np.exp2(np.minimum(np.arange(most + 1.0)[:, None, None], each) - each)
    return times


def _plus_identity(y: AnyArray, n: int) -> None:
    diagonal = np.einsum("bii->bi", y[:, :, :n])  # a view
    diagonal += 1


def _product(left: AnyArray, right: AnyArray, out: AnyArray | None = None) -> AnyArray:
    """Product; tangents, to the right, by the product rule.  (b, n, m) -> (b, n, m), m = n or 2 n"""
    n = left.shape[1]
    if left.shape[2] == n:
        return _multiply(left, right, out)
    result = _multiply(left[:, :, :n], right, out)
    result[:, :, n:] += _multiply(left[:, :, n:], right[:, :, :n])
    return result


def _multiply(left: AnyArray, right: AnyArray, out: AnyArray | None = None) -> AnyArray:
    b, n, _ = left.shape
    if not _by_entry(b, n):
        return np.matmul(left, right, out=out)
    total = np.multiply(left[:, :, :1], right[:, :1], out=out)
    for k in range(1, n):
        total += left[:, :, k : k + 1] * right[:, k : k + 1]
    return total


def _plan(
    values: AnyArray, dtype: torch.dtype, *, derivative: bool, bounded: bool
) -> tuple[int, int, AnyArray | None] | None:
    """One degree, the most squarings, and each matrix's own where they differ; see `matmul._look`.

    ``values`` are A and A^2, (2, b, n, n). None if they are ``bounded`` and an overflow cannot be ruled out.
    """
    n = values.shape[-1]
    entries = values * values.conj() if values.dtype.kind == "c" else values * values
    squares = entries.sum((2, 3)).real  # ||A||^2 and ||A^2||^2 in the Frobenius norm, (2, b)
    size2, norm2 = squares.max(1).tolist()
    if not (math.isfinite(norm2) and math.isfinite(size2)):
        return None
    d, size = norm2**0.25, math.sqrt(size2)
    if bounded and d + math.log1p(size) * (2 if derivative else 1) > _limit(dtype, n):
        return None
    table = schedule_for(dtype, derivative)
    theta = table.theta[-1]
    if d <= theta or n == 1:
        return table.degree(d, size), 0, None
    # A strictly triangular A has an empty diagonal in A^2.
    if not values[1, :, 0, 0].all() and not np.diagonal(values[1], axis1=1, axis2=2).any(1).all():
        return None
    most, fewest = _squarings(norm2, theta, dtype), _squarings(float(squares[1].min()), theta, dtype)
    if most <= fewest + 1:  # one squaring more than needed costs less than separate numbers for the matrices
        return DEGREES[-1], most, None
    excess = np.log2(np.maximum(squares[1], _FINFO[dtype].tiny).astype(np.float64)) / 4 - math.log2(theta)
    each = np.ceil(excess + 8 * _FINFO[dtype].eps).clip(0, most)
    return DEGREES[-1], most, each.astype(squares.dtype)[:, None, None]


@lru_cache(maxsize=256)
def _limit(dtype: torch.dtype, n: int) -> float:
    """The upper limit of d + log(1 + ||A||) below which nothing overflows."""
    return math.log(_FINFO[dtype].max) - _MARGIN - math.log(n)


def _squarings(square: float, theta: float, dtype: torch.dtype) -> int:
    """The least s >= 0 with 2^-s ||A^2||^(1/2) <= theta, from ||A^2||^2; one more in doubt."""
    if square <= theta**4:
        return 0
    return max(0, math.ceil(math.log2(square) / 4 - math.log2(theta) + 8 * _FINFO[dtype].eps))


def _polynomial(powers: AnyArray, degree: int) -> AnyArray:
    """T(A) of schedule.py without its identity; Y and W are written."""
    a, a2, y, w = powers
    if degree == DEGREES[0]:
        rest: AnyArray = a + 0.5 * a2
        return rest
    if degree == DEGREES[1]:
        rest = a + 0.5 * a2
        rest += _product(a2, FOUR[0] * a2 + FOUR[1] * a)
        return rest
    first = EIGHT if degree == DEGREES[2] else SIXTEEN
    _product(a2, first[0] * a2 + first[1] * a, y)
    if degree == DEGREES[2]:
        left, right, rest = _combinations(powers[:3], _EIGHT_ROWS)
    else:
        left, right, rest = _combinations(powers[:3], _W_ROWS)
        np.add(_product(left, right), rest, out=w)
        left, right, rest = _combinations(powers, _SIXTEEN_ROWS)
    rest += _product(left, right)
    return rest


def _combinations(terms: AnyArray, rows: AnyArray) -> AnyArray:
    """All linear combinations of the terms at once; the coefficients are real, so real numbers suffice."""
    k, b, n, m = terms.shape
    if _by_entry(b, n):
        flat = terms.transpose(0, 2, 3, 1).reshape(k, -1).view(terms.real.dtype)
        combined: AnyArray = (rows.astype(flat.dtype) @ flat).view(terms.dtype)
        return combined.reshape(len(rows), n, m, b).transpose(0, 3, 1, 2)
    flat = terms.reshape(k, -1).view(terms.real.dtype)
    combined = (rows.astype(flat.dtype) @ flat).view(terms.dtype)
    return combined.reshape(len(rows), b, n, m)

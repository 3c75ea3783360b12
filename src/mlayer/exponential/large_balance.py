"""Balancing by powers of two where the matmul path computes in torch: large matrices, on CPUs all.

As in the kernel, exp(A) = D exp(D^-1 A D) D^-1 without rounding, where that saves squarings and scaling back
does no harm (docs/theory/expm.md). Rows are compared with columns on the device; D is sought on the CPU, for
the few matrices in which they differ much (`small_balance`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mlayer.exponential import small_balance, small_triangular
from mlayer.exponential.arguments import materialized
from mlayer.exponential.grouped import strictly_triangular
from mlayer.exponential.schedule import LARGE, real_parts, row_and_column_sums, schedule_for, square_norms

if TYPE_CHECKING:
    from mlayer.numerics.arrays import AnyArray

_PLAIN = (Tensor, torch.nn.Parameter)
_APART = 16.0  # as in the kernel
# Squarings from which on a matrix is looked at, and how far exponents of D may go, by bits of a number.
_WORTH_A_LOOK = {64: small_balance.WORTH_A_LOOK, 32: 2}
_FURTHEST = {64: 256, 32: 32}
_STRONG = 64.0  # triangular matrices with couplings up to this many times the diagonal gain nothing; measured
_SMALL = 4.0  # couplings up to this size need few squarings, whatever the diagonal is


class Scaling(NamedTuple):
    """Matrices of a batch that need fewer squarings after a scaling, which is exact."""

    places: Tensor  # in the batch, (k,)
    factors: Tensor  # D_j / D_i of each, (k, n, n): D^-1 A D is the product entry by entry
    saved: list[float]  # squarings; infinite where there was no number before


def is_worth_a_look(a: Tensor, squarings: int | None) -> bool:
    """Whether matrices with this many squarings may gain; None if nobody knows how many.  (b, n, n)"""
    least = _WORTH_A_LOOK.get(torch.finfo(a.dtype).bits)
    if type(a) not in _PLAIN or least is None:
        return False
    if a.shape[-1] < LARGE:
        least = small_balance.WORTH_A_LATE_LOOK
        if not a.is_cpu:  # a look at these would take longer than their products
            return False
    return squarings is None or squarings >= least


def find(a: Tensor, e: Tensor | None, powers: Tensor, squares: Tensor) -> Scaling | None:
    """The matrices to balance, or None; overwrites the third of ``powers``.

    (b, n, n), A^2 as the second of (4, b, n, n or 2 n), ||A^2|| of each (b,).
    """
    apart = _rows_and_columns_apart(a, powers[2])
    if apart is None:
        return None
    a2 = powers[1].narrow(-1, 0, a.shape[-1])
    # D^-1 A^2 D has the diagonal of A^2: more than one squaring can be saved only where that is small.
    diagonals = torch.linalg.vector_norm(a2.diagonal(dim1=-2, dim2=-1), math.inf, dim=-1)
    large = a.shape[-1] >= LARGE
    worth = small_balance.WORTH_BALANCING if large else small_balance.WORTH_MUCH
    small = diagonals * 4.0 ** (worth - 1) < squares
    may_gain = apart & (small | ~squares.isfinite()) & a.isfinite().flatten(1).all(1)
    places = may_gain.nonzero().squeeze(1)
    if not large and len(places):  # the strictly triangular ones have a short series, or few squarings
        places = places[~strictly_triangular(a[places])]
    if not len(places):  # a second look, at the few batches that come so far
        return None
    part = a[places]
    exponents = _exponents(part)
    if not exponents.any():
        return None
    steps = torch.from_numpy(exponents).to(a.device, part.abs().dtype)
    factors = torch.exp2(steps[:, None, :] - steps[:, :, None])
    scaled = part * factors
    exact = (scaled / factors == part).flatten(1).all(1)
    if e is not None:
        exact &= (e[places] * factors / factors == e[places]).flatten(1).all(1)
    derivative = e is not None
    before = _squarings(squares[places].tolist(), a.dtype, derivative)
    after = _squarings(square_norms(scaled @ scaled).tolist(), a.dtype, derivative)
    saved = [s - t if math.isfinite(t) else 0.0 for s, t in zip(before, after, strict=True)]
    good = [
        k
        for k, (fits, number) in enumerate(zip(exact.tolist(), saved, strict=True))
        if fits and number >= small_balance.WORTH_BALANCING
    ]
    if not good:
        return None
    return Scaling(places[good], factors[good], [saved[k] for k in good])


def evaluate(
    a: Tensor, e: Tensor | None, found: Scaling, compute: Callable[[Tensor, Tensor | None], Tensor]
) -> Tensor:
    """exp(A), or L(A, E), balanced where found; ``compute`` does the same without balancing.  -> (b, n, n)"""
    places, factors, saved = found
    balanced = compute(a[places] * factors, None if e is None else e[places] * factors)
    back = balanced / factors
    # Errors of a balanced result, scaled back, must stay below those of the squarings saved: an entry has
    # errors of the size of the largest entry of its row, or of its column if that is smaller.
    size = balanced.abs()
    error = torch.minimum(size.amax(2, keepdim=True), size.amax(1, keepdim=True)) / factors
    pairs = zip(error.amax((1, 2)).tolist(), back.abs().amax((1, 2)).tolist(), saved, strict=True)
    harmless = [math.isfinite(x) and x <= 2.0 ** min(gain, 1000) * y for x, y, gain in pairs]
    rest = torch.ones(len(a), dtype=torch.bool, device=a.device)
    rest[places[harmless]] = False
    result = torch.empty_like(a, memory_format=torch.contiguous_format)
    result[places] = back
    index = rest.nonzero().squeeze(1)
    if len(index):
        result[index] = compute(a[index], None if e is None else e[index])
    return result


def _rows_and_columns_apart(a: Tensor, unused: Tensor) -> Tensor | None:
    """Whether a row and its column, off the diagonal, differ much; None if nowhere.  (b, n, n) -> (b,)

    ``unused`` is memory that the products use anyway: a page of new memory takes longer than the comparison.
    """
    parts = real_parts(materialized(a))
    size = torch.abs(parts, out=real_parts(unused.view(-1).narrow(0, 0, a.numel()).view(a.shape)))
    size.diagonal(dim1=1, dim2=2).zero_()
    row, column = row_and_column_sums(size)
    least, largest = torch.stack(torch.aminmax(row / column)).tolist()
    if least * _APART >= 1 and largest <= _APART:  # False for NaN, of an empty row and column
        return None
    return (torch.maximum(row, column) > _APART * torch.minimum(row, column)).any(1)


def _squarings(squares: list[float], dtype: torch.dtype, derivative: bool) -> list[float]:
    """The number of squarings from ||A^2||; infinite if that is not finite."""
    theta = schedule_for(dtype, derivative).theta[-1]
    return [
        max(0.0, math.ceil(math.log2(max(x, theta**2)) / 2 - math.log2(theta)))
        if math.isfinite(x)
        else math.inf
        for x in squares
    ]


@np.errstate(all="ignore")
def _exponents(a: Tensor) -> AnyArray:
    """Exponents of D for finite matrices.  (k, n, n) -> (k, n)"""
    wider = torch.complex128 if a.is_complex() else torch.float64
    array: AnyArray = materialized(a).detach().cpu().to(wider).numpy()
    found = np.zeros(array.shape[:2])
    upper, lower = small_triangular.triangles(array)
    found[upper] = _of_triangular(array[upper])
    found[lower] = -_of_triangular(array[lower].transpose(0, 2, 1))
    full = ~(upper | lower)
    if full.any():
        found[full] = small_balance.equalizing_exponents(array[full])
    furthest = _FURTHEST[torch.finfo(a.dtype).bits]
    clipped: AnyArray = np.clip(found, -furthest, furthest)
    return clipped


def _of_triangular(a: AnyArray) -> AnyArray:
    """The same of upper triangular ones: zeros unless couplings are far larger than the diagonal.

    D_i / D_j is at least |a_ij| over the largest diagonal entry, or over 4 if that is larger, for all i < j:
    the longest path from i.
    """
    size = np.abs(a)
    largest = size.diagonal(0, 1, 2).max(1)
    exponents = np.zeros(a.shape[:2])
    strong = size.max((1, 2), initial=0.0) > _STRONG * largest
    if not strong.any():
        return exponents
    length = np.ceil(np.log2(size / np.maximum(largest, _SMALL)[:, None, None]))
    for j in range(a.shape[1] - 1, 0, -1):  # the exponent of row j is final
        before = exponents[:, :j]
        np.maximum(before, length[:, :j, j] + exponents[:, j : j + 1], out=before)
    exponents *= strong[:, None]
    # D matters up to a factor: half of the way down, so that neither end leaves the range.
    exponents -= np.rint(exponents.max(1, keepdims=True) / 2)
    return exponents

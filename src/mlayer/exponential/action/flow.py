"""exp(t A) V of ordinary tensors, dense or sparse: what is not finite is set aside, the trace taken out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.exponential.action.maps import Dense, Matrix, Sparse
from mlayer.exponential.action.norms import estimate_norm, first_columns
from mlayer.exponential.action.plan import Growth
from mlayer.exponential.action.sparse import Pattern
from mlayer.exponential.action.sweep import SweepProblem, sweep, sweep_carefully
from mlayer.exponential.action.thresholds import precision_for

# Kept free between the norm of A and the largest number, for sums and for vectors that grow.
_ROOM = 2.0**20


class SparseMatrix(NamedTuple):
    """An (n, n) matrix by its entries, row by row."""

    n: int
    rows: Tensor  # (nnz,)
    columns: Tensor
    values: Tensor


def flow(A: Tensor | SparseMatrix, v: Tensor, times: Tensor, max_products: int) -> Tensor:
    """exp(t A) V for every t.  (n, n) or (b, n, n), (b, n, c), (q,) -> (q, b, n, c)

    Times may also be given for each matrix, (q, b); they are then equal in all columns, and their gradients
    are not summed over the matrices.
    """
    # What is not finite is set aside here and brought back at the end, into the gradient too.
    good = _finite(v, 1)
    mapping, shift, growth, usable = _form(A)
    if growth.norm > torch.finfo(v.dtype).max / _ROOM and _divides(A):
        # Products with A would overflow where exp(t A) V does not: exp(t A) = exp((t c) (A / c)).
        mapping, shift, growth, usable = _form(A, 1 / _ROOM**2)
        times = times * _ROOM**2
    v = _SetAside.apply(v, good)
    differentiable = torch.is_grad_enabled() and any(x.requires_grad for x in (mapping.entries, v, times))
    problem = SweepProblem(mapping, growth, shift, precision_for(v.dtype), max_products, differentiable)
    value = sweep(problem, v, times)
    overflown = ~value.detach().isfinite().all(2).all(0)  # (b, c)
    if bool(overflown.any()):
        value = _Overflown.apply(value, sweep_carefully(problem, v, times, overflown), overflown[:, None, :])
    good = good & usable
    return value if bool(good.all()) else value * torch.where(good, 1.0, torch.nan).to(value.real.dtype)


def _form(A: Tensor | SparseMatrix, scale: float = 1.0) -> tuple[Matrix, Tensor, Growth, Tensor]:
    """The shifted matrices (times scale), their shifts, their sizes, and which are finite."""
    return _sparse(A, scale) if isinstance(A, SparseMatrix) else _dense(A, scale)


def _divides(A: Tensor | SparseMatrix) -> bool:
    """Whether division by c loses nothing: no entry, nor a fraction of it, becomes subnormal."""
    entries = (A.values if isinstance(A, SparseMatrix) else A).detach()
    parts = (torch.view_as_real(entries.resolve_conj()) if entries.is_complex() else entries).abs()
    info = torch.finfo(parts.dtype)
    return not bool(((parts > 0) & (parts < _ROOM**2 * info.tiny / info.eps)).any())


class _SetAside(torch.autograd.Function):
    """Zero where something is not finite. The gradient, NaN there, passes unchanged."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, finite: Tensor) -> Tensor:
        return torch.where(finite, x, 0.0)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g, None


class _Overflown(torch.autograd.Function):
    """Columns that overflow, computed again. Their gradient is NaN at every time."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, again: Tensor, where: Tensor) -> Tensor:
        ctx.save_for_backward(where)
        return torch.where(where, again, value)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (where,) = ctx.saved_tensors
        return g * torch.where(where, torch.nan, 1.0).to(g.real.dtype), None, None


def _finite(x: Tensor, *dims: int) -> Tensor:
    """Whether everything along these dimensions is finite."""
    finite = x.detach().isfinite()
    for dim in dims:
        finite = finite.all(dim, keepdim=True)
    return finite


def _dense(A: Tensor, scale: float) -> tuple[Matrix, Tensor, Growth, Tensor]:
    if A.dim() == 2:
        A = A[None]
    b, n, _ = A.shape
    finite = _finite(A, 1, 2)
    A = _SetAside.apply(A, finite)
    if scale != 1.0:
        A = A * scale
    with torch.no_grad():
        mean = A.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
        eye = torch.eye(n, dtype=A.dtype, device=A.device)
        # The trace is taken out where that makes the norm smaller.
        helps = _one_norm(A - mean * eye) < _one_norm(A)
        shift = torch.where(helps[:, None, None], mean, 0.0)
        B = A - shift * eye
    mapping = Dense(A - shift * eye if A.requires_grad else B)
    fixed = Dense(B)

    def estimate(power: int) -> float:
        start = first_columns(b, n, A)
        with torch.no_grad():
            return float(estimate_norm(fixed.apply, fixed.adjoint, power, start).amax())

    return mapping, shift, Growth(float(_one_norm(B).amax()), estimate), finite


def _one_norm(A: Tensor) -> Tensor:
    return A.abs().sum(1).amax(1)


def entries_of(A: Tensor) -> SparseMatrix:
    """A sparse tensor by its entries, whose places are checked."""
    _check_places(A)
    if A.layout == torch.sparse_coo:
        A = A.coalesce()
        rows, columns = A.indices()
        return SparseMatrix(A.shape[0], rows, columns, A.values())
    counts = A.crow_indices().diff()
    rows = torch.repeat_interleave(torch.arange(A.shape[0], device=A.device), counts)
    return SparseMatrix(A.shape[0], rows, A.col_indices().long(), A.values())


def _check_places(A: Tensor) -> None:
    """Torch looks at indices only if asked to, and its products then read and write where they point."""
    n = A.shape[0]
    if A.layout == torch.sparse_coo:
        places = {"rows and columns": A._indices()}
    else:
        starts = A.crow_indices()
        if int(starts[0]) != 0 or int(starts[-1]) != len(A.col_indices()) or bool((starts.diff() < 0).any()):
            must_be = f"a matrix whose crow_indices rise from 0 to its {len(A.col_indices())} entries"
            raise ArgumentError("A", must_be, "others", "Make it with check_invariants=True.")
        places = {"columns": A.col_indices()}
    for name, index in places.items():
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < n:
            hint = "Make it with check_invariants=True."
            raise ArgumentError("A", f"a matrix with {name} from 0 to {n - 1}", "others", hint)


def _sparse(A: SparseMatrix, scale: float) -> tuple[Matrix, Tensor, Growth, Tensor]:
    n, rows, columns, values = A
    finite = _finite(values, 0)
    values = _SetAside.apply(values, finite)
    if scale != 1.0:
        values = values * scale
    with torch.no_grad():
        on_diagonal = rows == columns
        diagonal = values.new_zeros(n).index_add_(0, rows[on_diagonal], values[on_diagonal])
        sums = values.real.new_zeros(n).index_add_(0, columns, values.abs())
        mean = diagonal.mean()
        shifted = sums - diagonal.abs() + (diagonal - mean).abs()
        helps = bool(shifted.amax() < sums.amax())
    shift = mean if helps else torch.zeros_like(mean)
    mapping = Sparse(Pattern(n, rows, columns), values, shift.item()).ready()

    def estimate(power: int) -> float:
        with torch.no_grad():
            adjoint = mapping.adjoint_map()
            found = estimate_norm(mapping.product, adjoint.product, power, first_columns(1, n, values))
            return float(found.amax())

    norm = float((shifted if helps else sums).amax())
    return mapping, shift.reshape(1, 1, 1), Growth(norm, estimate), finite.reshape(1, 1, 1)

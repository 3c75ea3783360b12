"""`mlayer.expm_action`: input is checked and brought into one form here, once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from math import isfinite
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from mlayer.checks import brief, function, number, positive_integer
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.exponential.action.maps import Dense, Function, Matrix, Sparse
from mlayer.exponential.action.norms import estimate_norm, probes
from mlayer.exponential.action.plan import Growth
from mlayer.exponential.action.sparse import Pattern
from mlayer.exponential.action.sweep import SweepProblem, sweep, sweep_carefully
from mlayer.exponential.action.thresholds import precision_for
from mlayer.exponential.arguments import HALVES, check_dtype, check_matrices, check_not_nested

Linear = Callable[[Tensor], Tensor]
_SPARSE = (torch.sparse_coo, torch.sparse_csr)
# Kept free between the norm of A and the largest number, for sums and for vectors that grow.
_ROOM = 2.0**20


def expm_action(
    A: Tensor | Linear,
    V: Tensor,
    t: Tensor | float = 1.0,
    *,
    adjoint: Linear | None = None,
    norm: float | None = None,
    max_products: int = 1_000_000,
) -> Tensor:
    """exp(t A) V for every t, without the exponential: products of A with blocks of vectors are all it takes.

    The method of Al-Mohy and Higham (docs/theory/action.md). The cost grows with the norm of t A; all times
    together cost little more than the largest. Differentiable in A, V and t to every order, in reverse mode
    (``torch.func`` and forward mode are refused); the gradient of a sparse A has the entries of A. The
    backward pass keeps V at every step. float16 and bfloat16 are computed in float32. NaN or infinity in one
    matrix or column gives NaN there and nowhere else. An entry too large for the dtype is infinite and its
    neighbors are correct; the gradient of such a column is NaN. A function that overflows spoils the whole
    result.

    Args:
        A: a dense tensor (..., n, n), a sparse one (n, n), COO or CSR, or a linear function that maps tensors
            of the shape of V to the same shape.
        V: (..., n, k), or one vector (n,). Batches of A and V broadcast. For a function any shape.
        t: real times of any sign and shape.
        adjoint: for a function, x -> A^H x. Without it torch's autograd takes its place.
        norm: for a function, a bound of its 1-norm. Without it the norm is estimated, with the adjoint.
        max_products: more products than this are an error rather than a long wait.

    Returns:
        (..., *t.shape, n, k), or (..., *t.shape, n) for one vector; for a function (*t.shape, *V.shape).

    >>> import math, torch, mlayer
    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> states = mlayer.expm_action(turn, torch.tensor([1.0, 0.0]), torch.tensor([0.0, math.pi / 2]))
    >>> torch.allclose(states, torch.tensor([[1.0, 0.0], [0.0, 1.0]]), atol=1e-6)
    True
    """
    if torch.compiler.is_compiling():  # steps that depend on values make no graph
        outside = torch.compiler.disable(expm_action)
        return outside(A, V, t, adjoint=adjoint, norm=norm, max_products=max_products)
    _refuse_transforms()
    _check_vectors(V)
    max_products = positive_integer("max_products", max_products)
    if not isinstance(A, Tensor):
        _check_function(A, V, adjoint, norm)
        times = _times(t, V, V.dtype)
        if V.is_meta:
            return _nothing(V.new_empty(*times.shape, *V.shape), V, times)
        return _of_function(Function(A, adjoint, V.shape), V, times, norm, max_products)
    for name, value in (("adjoint", adjoint), ("norm", norm)):
        if value is not None:
            raise ArgumentError(name, "None for a matrix A", brief(value), "Leave it out.")
    _check_sizes(A, V)
    dtype = torch.result_type(A, V) if A.dtype != V.dtype else V.dtype
    if dtype in HALVES:
        return expm_action(A.float(), V.float(), t, max_products=max_products).to(dtype)
    times = _times(t, V, dtype)
    A, V = A.to(dtype), V.to(dtype)
    with nullcontext() if V.is_meta else torch.autocast(V.device.type, enabled=False):
        if V.dim() == 1:
            return _of_matrix(A, V[:, None], times, max_products).squeeze(-1)
        return _of_matrix(A, V, times, max_products)


def _refuse_transforms() -> None:
    """The number of steps depends on norms, which a transform hides; its steps have no forward derivative."""
    if torch._C._are_functorch_transforms_active():
        raise ArgumentError(
            "expm_action",
            "called outside torch.func (vmap, grad, jvp, jacrev, jacfwd)",
            "inside",
            "Use torch.autograd for derivatives and the batch dimensions of A and V instead of vmap, or "
            "mlayer.expm(A) @ V.",
        )
    if forward_ad._current_level >= 0:
        raise ArgumentError(
            "expm_action",
            "called outside torch.autograd.forward_ad.dual_level",
            "inside, where its tangents would be lost",
            "Use reverse mode (torch.autograd.grad), or mlayer.expm(A) @ V.",
        )


# ---- Dense and sparse matrices. --------------------------------------------------------------------


def _of_matrix(A: Tensor, V: Tensor, times: Tensor, max_products: int) -> Tensor:
    n, k = V.shape[-2:]
    folded = A.dim() == 2  # one matrix: everything in V is its columns
    batch = V.shape[:-2] if folded else torch.broadcast_shapes(A.shape[:-2], V.shape[:-2])
    if V.is_meta or not n * k * batch.numel() * times.numel():
        sparse = A.layout != torch.strided and not A.is_meta
        entries = _entries(A)[2] if sparse else A
        return _nothing(V.new_empty(*batch, *times.shape, n, k), entries, V, times)
    if folded:
        v = V.movedim(-2, 0).reshape(1, n, -1)
    else:
        A = A.expand(*batch, n, n).reshape(-1, n, n)
        v = V.expand(*batch, n, k).reshape(-1, n, k)
    flat = times.reshape(-1)
    result = _flow(A, v, flat, max_products)  # (q, b, n, c)
    if folded:
        result = result.reshape(len(flat), n, *batch, k).movedim(1, -2)
    else:
        result = result.reshape(len(flat), *batch, n, k)
    return result.movedim(0, len(batch)).reshape(*batch, *times.shape, n, k)


def _nothing(empty: Tensor, *arguments: Tensor) -> Tensor:
    """A result without values as a function of its arguments: their gradients are 0 rather than missing."""
    for argument in arguments:
        empty = empty + argument.sum()
    return empty


def _flow(A: Tensor, v: Tensor, times: Tensor, max_products: int) -> Tensor:
    # What is not finite is set aside here and brought back at the end, into the gradient too.
    good = _finite(v, 1)
    form = _sparse if A.layout != torch.strided else _dense
    mapping, shift, growth, usable = form(A)
    if growth.norm > torch.finfo(v.dtype).max / _ROOM and _divides(A):
        # Products with A would overflow where exp(t A) V does not: exp(t A) = exp((t c) (A / c)).
        mapping, shift, growth, usable = form(A, 1 / _ROOM**2)
        times = times * _ROOM**2
    v = _SetAside.apply(v, good)
    differentiable = torch.is_grad_enabled() and any(x.requires_grad for x in (mapping.entries, v, times))
    problem = SweepProblem(mapping, growth, shift, precision_for(v.dtype), max_products, differentiable)
    value = sweep(problem, v, times)
    overflown = ~value.detach().isfinite().all(2).all(0)  # (b, c)
    if bool(overflown.any()):
        value = torch.where(overflown[:, None, :], sweep_carefully(problem, v, times, overflown), value)
    good = good & usable
    return value if bool(good.all()) else value * torch.where(good, 1.0, torch.nan).to(value.real.dtype)


def _divides(A: Tensor) -> bool:
    """Whether division by c loses nothing: no entry, nor a fraction of it, becomes subnormal."""
    entries = (A if A.layout == torch.strided else _entries(A)[2]).detach()
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


def _finite(x: Tensor, *dims: int) -> Tensor:
    """Whether everything along these dimensions is finite."""
    finite = x.detach().isfinite()
    for dim in dims:
        finite = finite.all(dim, keepdim=True)
    return finite


def _dense(A: Tensor, scale: float = 1.0) -> tuple[Matrix, Tensor, Growth, Tensor]:
    """The shifted matrices (times scale), their shifts, their sizes, and which are finite.  (b, n, n)"""
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
        start = probes(b, n, A)
        with torch.no_grad():
            return float(estimate_norm(fixed.apply, fixed.adjoint, power, start).amax())

    return mapping, shift, Growth(float(_one_norm(B).amax()), estimate), finite


def _one_norm(A: Tensor) -> Tensor:
    return A.abs().sum(1).amax(1)


def _entries(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and values of a sparse matrix."""
    _check_places(A)
    if A.layout == torch.sparse_coo:
        A = A.coalesce()
        rows, columns = A.indices()
        return rows, columns, A.values()
    counts = A.crow_indices().diff()
    rows = torch.repeat_interleave(torch.arange(A.shape[0], device=A.device), counts)
    return rows, A.col_indices().long(), A.values()


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


def _sparse(A: Tensor, scale: float = 1.0) -> tuple[Matrix, Tensor, Growth, Tensor]:
    """The same of one sparse matrix."""
    n = A.shape[0]
    rows, columns, values = _entries(A)
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
            found = estimate_norm(mapping.product, adjoint.product, power, probes(1, n, values))
            return float(found.amax())

    norm = float((shifted if helps else sums).amax())
    return mapping, shift.reshape(1, 1, 1), Growth(norm, estimate), finite.reshape(1, 1, 1)


# ---- Functions. ------------------------------------------------------------------------------------


def _check_function(A: object, V: Tensor, adjoint: object, norm: float | None) -> None:
    if not callable(A):
        must_be = "a tensor (..., n, n), a sparse tensor (n, n) or a linear function"
        raise ArgumentTypeError("A", must_be, brief(A), "Convert it with torch.as_tensor(A).")
    function("adjoint", adjoint, "x -> A^H x")
    if norm is not None:
        number("norm", norm, least=0.0)
    if V.dtype in HALVES:
        must_be = "float32, float64 or complex for a function A"
        raise ArgumentTypeError("V", must_be, str(V.dtype), "Use V.float().")


def _of_function(
    mapping: Function, V: Tensor, times: Tensor, norm: float | None, max_products: int
) -> Tensor:
    flat = times.reshape(-1)
    v = V.reshape(1, -1, 1)
    mapping.check_linear(v)
    if V.numel() == 0 or not len(flat):
        # What the function is made of belongs to the graph too.
        return _nothing(V.new_empty(*times.shape, *V.shape), mapping.apply(v), V, times)

    def estimate(power: int) -> float:
        start = probes(1, v.shape[1], v)
        with torch.no_grad():
            found = estimate_norm(
                lambda x: mapping.columns(x, False), lambda x: mapping.columns(x, True), power, start
            )
        return float(found.amax())

    # Powers of a function are looked at only where its norm was not given: they need the adjoint.
    growth = Growth(float(norm), None) if norm is not None else Growth(estimate(1), estimate)
    if not isfinite(growth.norm):
        raise ArgumentError(
            "A", "finite on finite vectors", "NaN or infinity", "Look at A(torch.ones_like(V))."
        )
    differentiable = torch.is_grad_enabled() and (
        v.requires_grad or times.requires_grad or mapping.apply(v).requires_grad
    )
    good = bool(v.detach().isfinite().all())
    shift = torch.zeros(1, 1, 1, dtype=v.dtype, device=v.device)
    problem = SweepProblem(mapping, growth, shift, precision_for(v.dtype), max_products, differentiable)
    result = sweep(problem, v if good else torch.where(v.isfinite(), v, 0.0), flat)
    return (result if good else result * torch.nan).reshape(*times.shape, *V.shape)


# ---- The entry point. -------------------------------------------------------------------------------------


def _check_vectors(V: Tensor) -> None:
    if not isinstance(V, Tensor):
        raise ArgumentTypeError("V", "a torch.Tensor", brief(V), "Convert it with torch.as_tensor(V).")
    check_not_nested(V, "V")
    check_dtype(V, "V")
    if V.layout != torch.strided:
        raise ArgumentTypeError("V", "a dense tensor", str(V.layout), "Convert it with V.to_dense().")
    if V.dim() == 0:
        raise ArgumentError("V", "(..., n, k) or one vector (n,)", "a number", "Use V.reshape(1).")


def _check_sizes(A: Tensor, V: Tensor) -> None:
    check_not_nested(A, "A")
    if A.layout == torch.strided:
        check_matrices(A)
    else:
        if A.layout not in _SPARSE:
            raise ArgumentTypeError(
                "A", "dense, COO or CSR", str(A.layout), "Convert it with A.to_sparse_csr()."
            )
        if A.layout == torch.sparse_coo and A.dense_dim():
            hint = "Convert it with A.to_dense().to_sparse()."
            raise ArgumentError("A", "sparse in both dimensions", f"{A.dense_dim()} of them dense", hint)
        if A.dim() != 2 or A.shape[0] != A.shape[1]:
            hint = "For several sparse matrices call it for each."
            raise ArgumentError("A", "a square matrix if it is sparse", f"shape {tuple(A.shape)}", hint)
        check_matrices(torch.empty(1, 1, dtype=A.dtype))
    n = A.shape[-1]
    if V.shape[-2 if V.dim() > 1 else -1] != n:
        must_be = f"of shape (..., {n}, k) or ({n},), as A is {n} x {n}"
        raise ArgumentError("V", must_be, f"shape {tuple(V.shape)}", "Write one vector as V[:, None].")
    if V.dim() > 2 and A.dim() > 2:
        try:
            torch.broadcast_shapes(A.shape[:-2], V.shape[:-2])
        except RuntimeError:
            came = f"batches {tuple(A.shape[:-2])} and {tuple(V.shape[:-2])}"
            hint = "Make them equal, or one of them 1."
            raise ArgumentError("A and V", "of batches that broadcast", came, hint) from None
    if A.device != V.device:
        raise ArgumentError("V", f"on the device of A, {A.device}", str(V.device), f"Use V.to('{A.device}').")


def _times(t: Tensor | float, V: Tensor, dtype: torch.dtype) -> Tensor:
    """The times as a real tensor of the precision of the result."""
    real = dtype.to_real()
    if isinstance(t, Tensor):
        if t.is_complex() or t.dtype == torch.bool:
            raise ArgumentTypeError("t", "real times", str(t.dtype), "Put a complex factor into A: 1j * A.")
        if t.is_meta and not V.is_meta:
            raise ArgumentError("t", "times with values", "a tensor on meta", "Move it with t.to('cpu').")
        times = t.to(device=V.device, dtype=real)
    else:
        times = torch.tensor(_real_number(t), dtype=real, device=V.device)
    if not times.is_meta and not bool(times.isfinite().all()):
        raise ArgumentError("t", "finite", "NaN or infinity among the times", "Leave those times out.")
    return times


def _real_number(t: object) -> float:
    """A number, numpy's too, because times often come from arrays."""
    if isinstance(t, bool) or not isinstance(t, Real):
        hint = "Put a complex factor into A: 1j * A." if isinstance(t, complex) else "Use torch.linspace."
        raise ArgumentTypeError("t", "a number or a tensor of real times", brief(t), hint)
    return float(t)

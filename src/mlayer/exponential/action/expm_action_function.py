"""`mlayer.expm_action`: input is checked and brought into one form here, once."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from numbers import Real

import torch
from torch import Tensor
from torch.autograd import forward_ad

from mlayer.checks import brief, function, number, positive_integer
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.exponential.action.flow import SparseMatrix, entries_of, flow
from mlayer.exponential.action.maps import Function
from mlayer.exponential.action.norms import estimate_norm, first_columns
from mlayer.exponential.action.operator import action
from mlayer.exponential.action.plan import Growth
from mlayer.exponential.action.sweep import SweepProblem, sweep
from mlayer.exponential.action.thresholds import precision_for
from mlayer.exponential.arguments import (
    HALVES,
    check_dtype,
    check_matrices,
    check_not_nested,
    conversion,
    is_plain,
    transforms_active,
)
from mlayer.exponential.sharding import refuse_sharded

Linear = Callable[[Tensor], Tensor]
_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
_SPARSE = (torch.sparse_coo, torch.sparse_csr)
_NO_GRAPH = (
    "mlayer.expm_action of a sparse A or of a function makes no graph: its steps depend on values. Leave "
    "fullgraph=True out, or give A as a dense tensor."
)


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
    together cost little more than the largest. Differentiable in A, V and t to every order, in reverse and
    forward mode, under ``torch.func``, and for a dense A under ``torch.compile(fullgraph=True)``,
    ``torch.export`` and ``torch.jit.trace``; functions in reverse mode of ``torch.autograd`` only. The
    gradient of a sparse A has the entries of A. The backward pass keeps V at every step. float16 and bfloat16
    are computed in float32. NaN or infinity in one matrix or column gives NaN there and nowhere else. An
    entry too large for the dtype is infinite and its neighbors are correct; the gradient of such a column is
    NaN. A function that overflows spoils the whole result.

    Args:
        A: a dense tensor (..., n, n), a sparse one (n, n), COO or CSR, or a linear function that maps tensors
            of the shape of V to the same shape.
        V: (..., n, k), or one vector (n,). Batches of A and V broadcast. For a function any shape.
        t: real times of any sign and shape.
        adjoint: for a function, x -> A^H x. Without it torch's autograd takes its place.
        norm: for a function, a bound of its 1-norm. Without it the norm is estimated, from more than a few
            rows on with the adjoint.
        max_products: more products than this are an error rather than a long wait.

    Returns:
        `(..., *t.shape, n, k)`, or `(..., *t.shape, n)` for one vector; for a function
        `(*t.shape, *V.shape)`.

    >>> import math, torch, mlayer
    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> states = mlayer.expm_action(turn, torch.tensor([1.0, 0.0]), torch.tensor([0.0, math.pi / 2]))
    >>> torch.allclose(states, torch.tensor([[1.0, 0.0], [0.0, 1.0]]), atol=1e-6)
    True
    """
    call = _expm_action
    is_dense = isinstance(A, Tensor) and A.layout == torch.strided
    if not is_dense and (torch.compiler.is_compiling() or "torch._dynamo" in sys.modules):
        # Torch would compile what it can of the steps, and compile it again for other values.
        call = torch.compiler.disable(_expm_action, reason=_NO_GRAPH)
    return call(A, V, t, adjoint, norm, max_products=max_products)


def _expm_action(
    A: Tensor | Linear,
    V: Tensor,
    t: Tensor | float,
    adjoint: Linear | None,
    norm: float | None,
    *,
    max_products: int,
) -> Tensor:
    if not torch.compiler.is_compiling():
        refuse_sharded(**{name: x for name, x in (("A", A), ("V", V), ("t", t)) if isinstance(x, Tensor)})
    _check_vectors(V)
    max_products = positive_integer("max_products", max_products)
    if not isinstance(A, Tensor):
        _refuse_transforms()
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
        return _expm_action(A.float(), V.float(), t, None, None, max_products=max_products).to(dtype)
    times = _times(t, V, dtype)
    matrix, V = _converted(A, dtype), V.to(dtype)
    with nullcontext() if V.is_meta else torch.autocast(V.device.type, enabled=False):
        if V.dim() == 1:
            return _of_matrix(matrix, V[:, None], times, max_products).squeeze(-1)
        return _of_matrix(matrix, V, times, max_products)


def _converted(A: Tensor, dtype: torch.dtype) -> Tensor | SparseMatrix:
    """The matrices of this dtype, a sparse one by its entries."""
    if A.layout == torch.strided or A.is_meta:
        return A.to(dtype)
    if torch._C._functorch.is_functorch_wrapped_tensor(A):
        return entries_of(A.to(dtype))
    with torch._C._DisableFuncTorch():  # whose levels cannot hold CSR
        return entries_of(A.to(dtype))


def _refuse_transforms() -> None:
    """The number of steps of a function depends on norms, which a transform hides."""
    if torch._C._are_functorch_transforms_active():
        raise ArgumentError(
            "expm_action of a function A",
            "called outside torch.func (vmap, grad, jvp, jacrev, jacfwd)",
            "inside",
            "Use torch.autograd for derivatives, or give A as a matrix, dense or sparse.",
        )
    if _is_tracing():
        raise ArgumentError(
            "expm_action of a function A",
            "called outside torch.jit.trace",
            "inside, where the number of steps of the example input would be kept",
            "Call it without a trace, or give A as a dense tensor.",
        )
    if forward_ad._current_level >= 0:
        raise ArgumentError(
            "expm_action of a function A",
            "called outside torch.autograd.forward_ad.dual_level",
            "inside, where its tangents would be lost",
            "Use reverse mode (torch.autograd.grad), or give A as a matrix, dense or sparse.",
        )


# ---- Dense and sparse matrices. --------------------------------------------------------------------


def _of_matrix(A: Tensor | SparseMatrix, V: Tensor, times: Tensor, max_products: int) -> Tensor:
    n, k = V.shape[-2:]
    if isinstance(A, SparseMatrix) or A.dim() == 2:
        folded, batch = True, V.shape[:-2]  # one matrix: everything in V is its columns
    else:
        folded, batch = False, torch.broadcast_shapes(A.shape[:-2], V.shape[:-2])
    count = math.prod(batch)
    if V.is_meta or not n * k * count * times.numel():
        entries = A.values if isinstance(A, SparseMatrix) else A
        return _nothing(V.new_empty(*batch, *times.shape, n, k), entries, V, times)
    if isinstance(A, SparseMatrix) or A.dim() == 2:
        v = V.movedim(-2, 0).reshape(1, n, count * k)
    else:
        A = A.expand(*batch, n, n).reshape(count, n, n)
        v = V.expand(*batch, n, k).reshape(count, n, k)
    flat = times.reshape(times.numel())
    compute = flow if _is_ordinary(A, v, flat) else action
    result = compute(A, v, flat, max_products)  # (q, b, n, c)
    if folded:
        result = result.reshape(flat.shape[0], n, *batch, k).movedim(1, -2)
    else:
        result = result.reshape(flat.shape[0], *batch, n, k)
    return result.movedim(0, len(batch)).reshape(*batch, *times.shape, n, k)


def _is_ordinary(A: Tensor | SparseMatrix, *others: Tensor) -> bool:
    """Whether these tensors have values to look at, and nothing but autograd wants derivatives."""
    if torch.compiler.is_compiling() or transforms_active() or _is_tracing():
        return False
    return all(is_plain(x) for x in (A.values if isinstance(A, SparseMatrix) else A, *others))


def _is_tracing() -> bool:
    """Whether torch.jit.trace records: of ordinary steps those of the example, as often as it needs."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined]


def _nothing(empty: Tensor, *arguments: Tensor) -> Tensor:
    """A result without values as a function of its arguments: their gradients are 0 rather than missing."""
    for argument in arguments:
        empty = empty + argument.sum()
    return empty


# ---- Functions. ------------------------------------------------------------------------------------


def _check_function(A: object, V: Tensor, adjoint: object, norm: float | None) -> None:
    if not callable(A):
        must_be = "a tensor (..., n, n), a sparse tensor (n, n) or a linear function"
        hint = conversion("A", A)
        if hasattr(A, "tocoo"):  # sparse matrices of SciPy
            entries = "torch.sparse_coo_tensor(numpy.stack([C.row, C.col]), C.data, C.shape)"
            hint = f"Convert it: C = A.tocoo(), then {entries}."
        raise ArgumentTypeError("A", must_be, brief(A), hint)
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
    if V.numel() == 0 or not len(flat):
        # What the function is made of belongs to the graph too.
        return _nothing(V.new_empty(*times.shape, *V.shape), mapping.apply(v), V, times)
    mapping.check(v.detach(), norm, float(flat.detach().abs().max()))

    def estimate(power: int) -> float:
        start = first_columns(1, v.shape[1], v)
        with torch.no_grad():
            found = estimate_norm(
                lambda x: mapping.columns(x, False), lambda x: mapping.columns(x, True), power, start
            )
        return float(found.amax())

    # Powers of a function are looked at only where its norm was not given: they need the adjoint.
    growth = Growth(float(norm), None) if norm is not None else Growth(estimate(1), estimate)
    if not math.isfinite(growth.norm):
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
        raise ArgumentTypeError("V", "a torch.Tensor", brief(V), conversion("V", V))
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
    real = _REAL.get(dtype, dtype)
    if isinstance(t, Tensor):
        check_not_nested(t, "t")
        if t.is_complex() or t.dtype == torch.bool or t.is_quantized:
            raise ArgumentTypeError("t", "real times", str(t.dtype), "Put a complex factor into A: 1j * A.")
        if t.layout != torch.strided:
            raise ArgumentTypeError("t", "a dense tensor of times", str(t.layout), "Use t.to_dense().")
        if t.is_meta and not V.is_meta:
            raise ArgumentError("t", "times with values", "a tensor on meta", "Move it with t.to('cpu').")
        times = t.to(device=V.device, dtype=real)
    else:
        times = torch.tensor(_real_number(t), dtype=real, device=V.device)
    if _is_ordinary(times) and not bool(times.isfinite().all()):  # others are looked at later
        raise ArgumentError("t", "finite", "NaN or infinity among the times", "Leave those times out.")
    return times


def _real_number(t: object) -> float:
    """A number, numpy's too, because times often come from arrays."""
    if isinstance(t, bool) or not isinstance(t, Real):
        hint = "Put a complex factor into A: 1j * A." if isinstance(t, complex) else "Use torch.linspace."
        raise ArgumentTypeError("t", "a number or a tensor of real times", brief(t), hint)
    try:
        return float(t)
    except OverflowError:  # an integer or a fraction beyond the largest float
        return math.inf

"""exp(t A) V as a torch operator: torch.func, forward mode, torch.compile, torch.export.

`flow` is differentiable to every order in reverse mode, for ordinary tensors. One operator makes that
available where tensors have no values to look at: it stands for exp(t A) V and for all its pull-backs. With
f_0 the value,

    f_(k+1)(x, g) = the pull-back of g through f_k at x, for the arguments that a mask selects,

so the operator with the masks (m_1, ..., m_k) has that with (m_1, ..., m_k, m) as its pull-back. Forward mode
is two of them: f_(k+1)(x, u) is linear in u, and the pull-back of a tangent through it, in u, is the
push-forward of f_k (docs/theory/action.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.exponential.action.flow import SparseMatrix, flow
from mlayer.exponential.define_operator import Rules, define


class Kind(NamedTuple):
    """The dimension in which an argument has the matrices of a batch, and that of the columns of V."""

    items: int
    columns: int | None = None


_MATRIX, _VECTORS, _TIMES, _RESULT = Kind(0), Kind(0, 2), Kind(1), Kind(1, 3)


@dataclass(frozen=True, eq=False)
class Derivative:
    """The operator but for its arguments: the masks of its levels, and the places of a sparse A."""

    masks: tuple[int, ...]
    max_products: int
    rows: Tensor | None = None
    columns: Tensor | None = None

    def kinds(self) -> tuple[list[Kind], list[Kind]]:
        """Kinds of the arguments and of the results."""
        arguments, results = [_MATRIX, _VECTORS, _TIMES], [_RESULT]
        for mask in self.masks:
            arguments, results = arguments + results, _chosen(arguments, mask)
        return arguments, results

    def results_like(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Tensors of the shapes of the results, without values."""
        if not self.masks:
            _, v, t = arguments
            return [v.new_empty(t.shape[0], *v.shape)]
        before = len(replace(self, masks=self.masks[:-1]).kinds()[0])
        chosen = _chosen(arguments[:before], self.masks[-1])
        return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in chosen]

    def rest(self) -> tuple[Any, ...]:
        """The arguments of the operator other than its tensors."""
        return list(self.masks), self.max_products, self.rows, self.columns

    def pulled_back(self, mask: int) -> Derivative:
        return replace(self, masks=(*self.masks, mask))


def _chosen(items: Sequence[Any], mask: int) -> list[Any]:
    return [item for i, item in enumerate(items) if mask >> i & 1]


def action(A: Tensor | SparseMatrix, v: Tensor, times: Tensor, max_products: int) -> Tensor:
    """The same as `flow`, for any tensors and under every transform."""
    if isinstance(A, SparseMatrix):
        what, entries = Derivative((), max_products, A.rows, A.columns), A.values
    else:
        what, entries = Derivative((), max_products), (A if A.dim() == 3 else A[None])
    each = times[:, None].expand(times.shape[0], v.shape[0])  # len() would fix a dynamic size
    return _apply(what, (entries, v, each))[0]


def _apply(what: Derivative, arguments: Sequence[Tensor]) -> list[Tensor]:
    results: list[Tensor] = _operator(list(arguments), *what.rest())
    return results


# ---- Values. ---------------------------------------------------------------------------------------


def _compute(what: Derivative, arguments: Sequence[Tensor]) -> list[Tensor]:
    """The results for ordinary tensors; none shares memory with another."""
    if any(x.is_meta or not x.numel() for x in arguments[:3]):
        return [torch.zeros_like(x) for x in what.results_like(arguments)]
    times = arguments[2]
    if not bool(times.isfinite().all()):
        raise ArgumentError("t", "finite", "NaN or infinity among the times", "Leave those times out.")
    with _with_autograd(times.device.type):
        arguments = [x.clone() if x.is_inference() else x.detach() for x in arguments]
        if bool((times == times[:, :1]).all()):
            results = _evaluate(what, arguments)
        else:
            results = _grouped(what, arguments)
    return [x.clone(memory_format=torch.contiguous_format) for x in results]


@contextmanager
def _with_autograd(device: str) -> Iterator[None]:
    """Autograd works here although torch has switched it off: a compiled graph calls below it.

    Nothing is recorded until a derivative asks for it.
    """
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device, enabled=False):
        key = torch._C.DispatchKey
        excluded = torch._C._dispatch_tls_local_exclude_set()
        excluded = excluded.remove(key.AutogradCPU).remove(key.ADInplaceOrView)
        with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded):
            yield


def _grouped(what: Derivative, arguments: list[Tensor]) -> list[Tensor]:
    """The same for matrices with different times: those with equal ones together."""
    kinds, kinds_of_results = what.kinds()
    results = what.results_like(arguments)
    groups = arguments[2].unique(dim=1, return_inverse=True)[1]
    for group in range(int(groups.max()) + 1):
        items = (groups == group).nonzero().squeeze(1)
        selected = [x.index_select(k.items, items) for x, k in zip(arguments, kinds, strict=True)]
        found = _evaluate(what, selected)
        for result, part, kind in zip(results, found, kinds_of_results, strict=True):
            result.index_copy_(kind.items, items, part)
    return results


def _evaluate(what: Derivative, arguments: Sequence[Tensor]) -> Sequence[Tensor]:
    """The results, in operations that autograd records if it is on."""
    if not what.masks:
        entries, v, times = arguments
        A: Tensor | SparseMatrix = entries
        if what.rows is not None and what.columns is not None:
            A = SparseMatrix(v.shape[1], what.rows, what.columns, entries)
        return [flow(A, v, times, what.max_products)]
    *masks, mask = what.masks
    inner = replace(what, masks=tuple(masks))
    count = len(inner.kinds()[0])
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in arguments)
    with torch.enable_grad():
        points = [_point(x, bool(mask >> i & 1)) for i, x in enumerate(arguments[:count])]
        results = _evaluate(inner, points)
        chosen = _chosen(points, mask)
        pairs = [(y, g) for y, g in zip(results, arguments[count:], strict=True) if y.requires_grad]
        if not pairs:
            return [torch.zeros_like(x) for x in chosen]
        values, cotangents = zip(*pairs, strict=True)
        return torch.autograd.grad(
            values, chosen, cotangents, create_graph=recorded, allow_unused=True, materialize_grads=True
        )


def _point(x: Tensor, differentiate: bool) -> Tensor:
    """The argument as a new tensor, at which a derivative is taken."""
    if not differentiate:
        return x
    return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()


# ---- Derivatives and batches. ----------------------------------------------------------------------


def _pull_back(
    what: Derivative, arguments: Sequence[Tensor], cotangents: Sequence[Tensor], wanted: Sequence[bool]
) -> list[Tensor | None]:
    mask = sum(1 << i for i, is_wanted in enumerate(wanted) if is_wanted)
    found = iter(_apply(what.pulled_back(mask), (*arguments, *cotangents)))
    return [next(found) if is_wanted else None for is_wanted in wanted]


def _push_forward(
    what: Derivative, arguments: Sequence[Tensor], tangents: Sequence[Tensor | None]
) -> list[Tensor]:
    mask = sum(1 << i for i, tangent in enumerate(tangents) if tangent is not None)
    zeros = [torch.zeros_like(x) for x in what.results_like(arguments)]
    on_zeros = ((1 << len(zeros)) - 1) << len(arguments)
    given = [tangent for tangent in tangents if tangent is not None]
    return _apply(what.pulled_back(mask).pulled_back(on_zeros), (*arguments, *zeros, *given))


def _batch(
    size: int, what: Derivative, dims: Sequence[int | None], arguments: Sequence[Tensor]
) -> tuple[list[Tensor], list[int]]:
    """The results for a batch of arguments, and where these have the batch."""
    kinds, kinds_of_results = what.kinds()
    moved = [x if dim is None else x.movedim(dim, 0) for x, dim in zip(arguments, dims, strict=True)]
    # One matrix, in which nobody differentiates: the batch are columns more.
    others = (*kinds[3:], *kinds_of_results)
    by_columns = dims[0] is None and dims[2] is None and all(kind.columns is not None for kind in others)
    if what.rows is not None and not by_columns:
        return _one_by_one(size, what, dims, moved)
    places = [kind.columns if by_columns else kind.items for kind in kinds]
    back = [kind.columns or 0 if by_columns else kind.items for kind in kinds_of_results]
    folded = [
        x if place is None else _fold(x, place, dim is not None, size)
        for x, place, dim in zip(moved, places, dims, strict=True)
    ]
    results = _apply(what, folded)
    inner = moved[1].shape[-1 if by_columns else -3]
    return [x.unflatten(place, (size, inner)) for x, place in zip(results, back, strict=True)], back


def _one_by_one(
    size: int, what: Derivative, dims: Sequence[int | None], moved: Sequence[Tensor]
) -> tuple[list[Tensor], list[int]]:
    def item(i: int) -> list[Tensor]:
        return [x if dim is None else x[i] for x, dim in zip(moved, dims, strict=True)]

    if not size:
        without = [x if dim is None else x.new_empty(x.shape[1:]) for x, dim in zip(moved, dims, strict=True)]
        empty = [x.new_empty(0, *x.shape) for x in what.results_like(without)]
        return empty, [0] * len(empty)
    columns = zip(*(_apply(what, item(i)) for i in range(size)), strict=True)
    results = [torch.stack(column) for column in columns]
    return results, [0] * len(results)


def _fold(x: Tensor, place: int, is_batched: bool, size: int) -> Tensor:
    """The batch, the first dimension if there is one, as the slower part of another."""
    whole = x if is_batched else x.expand(size, *x.shape)
    return whole.movedim(0, place).flatten(place, place + 1)


def _what(masks: Sequence[int], *rest: Any) -> Derivative:
    return Derivative(tuple(masks), *rest)


_operator = define(
    "expm_action",
    "(Tensor[] arguments, int[] masks, int max_products, Tensor? rows, Tensor? columns) -> Tensor[]",
    Rules(
        value=lambda arguments, *rest: _compute(_what(*rest), arguments),
        like=lambda arguments, *rest: _what(*rest).results_like(arguments),
        batch=lambda size, dims, arguments, *rest: _batch(size, _what(*rest), dims[0], arguments),
        pull_back=lambda rest, *others: _pull_back(_what(*rest), *others),
        push_forward=lambda rest, *others: _push_forward(_what(*rest), *others),
    ),
)

"""One step: exp(tau B) V at several tau by one Taylor polynomial, and its derivatives.

With x_k = (h B)^k V / k! and r = tau / h, the value is sum r^k x_k: all times within the step share the
products. Its pull-back needs no other products than those with B^H:

    c_k = sum_tau r^k G_tau + h / (k + 1) B^H c_(k+1)

gives c_0 for V and sum_k (h / k) c_k x_(k-1)^H for B. It is written in differentiable operations, so that
derivatives of every order follow, and keeps V alone: the x_k are computed again (docs/theory/action.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlayer.exponential.action.maps import Map, Matrix

# The last two terms are compared with the sum every this many terms.
_LOOK_EVERY = 4
_BLOCK = 64
# Terms that wait to be added to the values at several times in one product.
_WAITING = 16


@dataclass(frozen=True)
class SeriesStep:
    """Length (negative backwards in time), degree of the value and of the derivative, unit roundoff."""

    h: float
    degree: int
    derivative_degree: int
    unit_roundoff: float


def taylor_sum(mapping: Map, v: Tensor, ratios: list[float], step: SeriesStep) -> tuple[Tensor, float]:
    """Sum r^k x_k for every r, the last the largest, and how much its terms cancel.  -> (q, b, n, c), float

    Ends where two terms are below rounding in every column; only for values: the derivative may still need
    terms that vanish for this V.
    """
    *others, last = ratios
    if last == 0.0:
        return v.expand(len(ratios), *v.shape).clone(), 0.0
    # Work with the largest time as the length of the step: its terms are then added as they are.
    h = step.h * last
    others = [r / last for r in others]
    total, x, spare = v.clone(), v, None
    early = v.expand(len(others), *v.shape).clone() if others else None
    waiting: list[tuple[int, Tensor]] = []
    start_size = _sizes(v)
    largest = size = start_size
    for k in range(1, step.degree + 1):
        fresh = mapping.advance(x, h / k, spare)
        spare = x if early is None and k > 1 else None
        x = fresh
        total.add_(x)
        if early is not None:
            waiting.append((k, x))
            if len(waiting) == _WAITING:
                _add(early, others, waiting)
        if k % _LOOK_EVERY == _LOOK_EVERY - 1:
            size = _sizes(x)
            largest = torch.maximum(largest, size)
        elif k % _LOOK_EVERY == 0:
            last_two = size + _sizes(x)
            limit = step.unit_roundoff * step.degree * largest
            # The sum is no larger than its largest term times their number; only then is it looked at.
            if bool((last_two <= limit).all()):
                reference = _sizes(total) if early is None else torch.minimum(_sizes(total), start_size)
                if bool((last_two <= step.unit_roundoff * reference).all()):
                    break
    if early is not None:
        _add(early, others, waiting)
    canceled = largest / torch.maximum(_sizes(total), start_size)
    loss = float(torch.nan_to_num(canceled, 0.0).amax()) if canceled.numel() else 0.0
    return (total[None] if early is None else torch.cat([early, total[None]])), loss


def _sizes(x: Tensor) -> Tensor:
    """Largest entry of each column, of complex ones the larger part.  (b, n, c) -> (b, c)

    Rows are taken together in blocks, which torch reduces several times faster than one narrow row after the
    other.
    """
    if x.is_complex():
        return _sizes(torch.view_as_real(x.resolve_conj()).flatten(2)).unflatten(1, (-1, 2)).amax(2)
    b, n, c = x.shape
    whole = n - n % _BLOCK
    blocks, rest = x[:, :whole].reshape(b, -1, _BLOCK * c), x[:, whole:]
    parts = [torch.maximum(y.amax(1), -y.amin(1)).reshape(b, -1, c) for y in (blocks, rest) if y.shape[1]]
    return torch.cat(parts, 1).amax(1)


def _add(values: Tensor, ratios: list[float], waiting: list[tuple[int, Tensor]]) -> None:
    if not waiting:
        return
    weights = torch.tensor([[r**k for k, _ in waiting] for r in ratios], dtype=torch.float64)
    terms = torch.stack([x for _, x in waiting]).flatten(1)
    values.flatten(1).addmm_(weights.to(terms), terms)
    waiting.clear()


class _TaylorStep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, how: tuple[Matrix, SeriesStep, Tensor], entries: Tensor, v: Tensor, tau: Tensor
    ) -> Tensor:
        ctx.mapping, ctx.step, value = how
        ctx.save_for_backward(entries, v, tau, value)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        entries, v, tau, value = ctx.saved_tensors
        mapping: Matrix = ctx.mapping.on(entries)
        wanted = ctx.needs_input_grad
        if wanted[3] and torch.is_grad_enabled():
            # Its own derivatives are wanted: as a function of the arguments, not as a constant.
            value = _TaylorStep.apply((ctx.mapping, ctx.step, value), entries, v, tau)
        on_entries = on_v = on_tau = None
        with torch.autocast(v.device.type, enabled=False):
            if wanted[1] or wanted[2]:
                ratios = (tau / ctx.step.h).to(g.dtype)
                on_entries, on_v = _pull_back(mapping, v if wanted[1] else None, ratios, g, ctx.step)
            if wanted[3]:
                on_tau = _on_times(mapping, value, g, tau.dim())
        return None, on_entries, (on_v if wanted[2] else None), on_tau


def _pull_back(
    mapping: Matrix, v: Tensor | None, ratios: Tensor, g: Tensor, step: SeriesStep
) -> tuple[Tensor | None, Tensor]:
    """Gradients of the entries of B, if V is given, and of V."""
    h, m = step.h, step.derivative_degree
    c = _weighted(ratios**m, g)
    weighted = []  # (h / k) c_k for k = m, ..., 1
    for k in range(m, 0, -1):
        c = c * (h / k)
        weighted.append(c)
        c = _weighted(ratios ** (k - 1), g) + mapping.adjoint(c)
    if v is None:
        return None, c
    terms = [v]  # x_0 ... x_(m-1)
    for k in range(1, m):
        terms.append(mapping.apply(terms[-1]) * (h / k))
    # All outer products in one.
    return mapping.outer(torch.cat(weighted[::-1], -1), torch.cat(terms, -1)), c


def _weighted(weights: Tensor, g: Tensor) -> Tensor:
    """The sum over the times.  (q,) or (q, b), (q, b, n, c) -> (b, n, c)"""
    if weights.dim() == 1:
        return torch.tensordot(weights, g, 1)
    return (weights[:, :, None, None] * g).sum(0)


def beside_vectors(tau: Tensor) -> Tensor:
    """Times in the shape in which they multiply vectors (q, b, n, c)."""
    return tau[:, :, None, None] if tau.dim() == 2 else tau[:, None, None, None]


def _on_times(mapping: Matrix, value: Tensor, g: Tensor, dims: int) -> Tensor:
    """<G, B exp(tau B) V> for every tau, or for every tau and matrix."""
    q, b, n, c = value.shape
    columns = value.permute(1, 2, 0, 3).reshape(b, n, q * c)
    slope = mapping.apply(columns).reshape(b, n, q, c).permute(2, 0, 1, 3)
    products = (g.conj() * slope).real.sum((2, 3))
    return products if dims == 2 else products.sum(1)


def taylor_step(mapping: Matrix, value: Tensor, v: Tensor, tau: Tensor, step: SeriesStep) -> Tensor:
    """The value that `taylor_sum` gave for this map, with its derivatives.  -> (q, b, n, c)"""
    return _TaylorStep.apply((mapping, step, value), mapping.entries, v, tau)


def recorded_step(mapping: Map, v: Tensor, tau: Tensor, step: SeriesStep) -> Tensor:
    """The same sum in operations that autograd records, for a map without entries."""
    ratios = (tau / step.h).to(v.dtype)
    total = v.expand(len(tau), *v.shape)
    x = v
    for k in range(1, step.derivative_degree + 1):
        x = mapping.apply(x) * (step.h / k)
        total = total + (ratios**k)[:, None, None, None] * x
    return total

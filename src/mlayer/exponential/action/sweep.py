"""From time 0 outwards, step by step, forwards and backwards: exp(t B) V at every t."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import torch
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.exponential.action.maps import Function, Matrix
from mlayer.exponential.action.plan import ActionPlan, Growth, plan_for, with_derivative
from mlayer.exponential.action.taylor import (
    SeriesStep,
    beside_vectors,
    recorded_step,
    taylor_step,
    taylor_sum,
)
from mlayer.exponential.action.thresholds import Precision
from mlayer.exponential.action.wide_exponents import careful_sweep, form_and_multiply

# Cancellation that a step may have, in units of roundoff per unit of norm; see `cautious_degree`.
_CANCELLATION = 8.0
# Long steps are tried where they save this many short ones.
_WORTH_TRYING = 4
# Where it overflows: products in the exponential besides squarings, and what a call costs in multiplications.
_SERIES, _CALL = 24, 1e4


@dataclass(frozen=True)
class SweepProblem:
    """B and what is known of it."""

    mapping: Matrix | Function
    growth: Growth
    shift: Tensor  # mu of each matrix, (b, 1, 1)
    precision: Precision
    max_products: int
    differentiable: bool  # whether anything here will be differentiated

    def plan(self, length: float, columns: int, *, cautious: bool) -> tuple[ActionPlan, int]:
        """The plan for a time of this length, and the degree of the derivative."""
        most = self.max_products
        plan = plan_for(self.growth, length, self.precision, columns, cautious=cautious, largest=most)
        degree = plan.degree
        if self.differentiable and plan.products <= most:
            plan, degree = with_derivative(plan, self.growth, length, self.precision)
        if plan.products > most:
            raise ArgumentError(
                "t A",
                f"so small that max_products, {most}, are enough",
                f"a norm of {length * self.growth.alpha(plan.degree):.3g}, which needs {plan.products:.3g}",
                "Raise max_products, or for a dense matrix of this norm use mlayer.expm(t * A) @ V.",
            )
        return plan, degree


def sweep(problem: SweepProblem, v: Tensor, times: Tensor) -> Tensor:
    """exp(t A) V for every t.  (b, n, c), (q,) or (q, b) with equal columns -> (q, b, n, c)"""
    if not len(times):
        return v.new_zeros(0, *v.shape)
    values: dict[int, Tensor] = {}
    listed = _list(times)
    for order in _orders(listed):
        values |= _one_way(problem, v, times, listed, order)
    return torch.stack([values[i] for i in range(len(listed))])


def _list(times: Tensor) -> list[float]:
    listed: list[float] = (times if times.dim() == 1 else times[:, 0]).detach().tolist()
    return listed


def _orders(times: list[float]) -> list[list[int]]:
    """The times ahead and the times behind, each with the nearest first; a side without times is left out."""
    ahead = sorted((i for i, t in enumerate(times) if t >= 0), key=lambda i: times[i])
    behind = sorted((i for i, t in enumerate(times) if t < 0), key=lambda i: -times[i])
    return [order for order in (ahead, behind) if order]


def _one_way(
    problem: SweepProblem, v: Tensor, times: Tensor, listed: list[float], order: list[int]
) -> dict[int, Tensor]:
    end = listed[order[-1]]
    columns = v.shape[2]
    cautious = True
    plan, degree = problem.plan(abs(end), columns, cautious=True)
    if not problem.differentiable and plan.steps >= _WORTH_TRYING:
        cautious = False
        plan, degree = problem.plan(abs(end), columns, cautious=False)
    found: dict[int, Tensor] = {}
    position, steps, sizes = 0.0, plan.steps, [abs(listed[i]) for i in order]
    while steps:
        h = (end - position) / steps if end else 1.0
        goal = end if steps == 1 else position + h
        inside = order[len(found) : bisect_right(sizes, abs(goal))]
        step = SeriesStep(h, plan.degree, degree, problem.precision.unit_roundoff)
        exact = [listed[i] - position for i in inside] + ([] if steps == 1 else [h])
        tau = times[inside] - position
        if steps > 1:
            tau = torch.cat([tau, tau.new_full((1, *tau.shape[1:]), h)])
        result, loss = _step(problem, v, tau, [t / h for t in exact], step)
        if not cautious and loss > _CANCELLATION * abs(h) * problem.growth.alpha(plan.degree):
            # These terms cancel: from here on in short steps.
            cautious = True
            plan, degree = problem.plan(abs(end - position), columns, cautious=True)
            steps = plan.steps
            continue
        result = result * torch.exp(problem.shift * beside_vectors(tau))
        found |= {i: result[j] for j, i in enumerate(inside)}
        v, position, steps = result[-1], goal, steps - 1
        if steps and not bool(v.detach().isfinite().all(1).any()):
            # Every column has overflowed: what is left of the way would change nothing. Gradients by v and by
            # these times are NaN.
            return found | {
                i: (v + beside_vectors(times[i : i + 1])[0]) * torch.nan for i in order[len(found) :]
            }
    return found


def _step(
    problem: SweepProblem, v: Tensor, tau: Tensor, ratios: list[float], step: SeriesStep
) -> tuple[Tensor, float]:
    mapping = problem.mapping
    if isinstance(mapping, Function) and problem.differentiable:
        return recorded_step(mapping, v, tau, step), 0.0
    with torch.no_grad():
        value, loss = taylor_sum(mapping, v.detach(), ratios, step)
    if problem.differentiable and not isinstance(mapping, Function):
        value = taylor_step(mapping, value, v, tau, step)
    return value, loss


@torch.no_grad()
def sweep_carefully(problem: SweepProblem, v: Tensor, times: Tensor, columns: Tensor) -> Tensor:
    """The same for the columns that overflow, (b, c), with 0 in the others; not differentiable."""
    assert not isinstance(problem.mapping, Function)
    result = v.new_zeros(len(times), *v.shape)
    listed = _list(times)
    for item in columns.any(1).nonzero().flatten().tolist():
        chosen = columns[item].nonzero().flatten()
        matrix, shift = problem.mapping.listed(item), complex(problem.shift[item].item())
        part = v[item][:, chosen]
        for order in _orders(listed):
            ordered = [listed[i] for i in order]
            plan, _ = problem.plan(abs(ordered[-1]), len(chosen), cautious=True)
            if _forming_pays(plan, len(matrix.values), part, len(order)):
                values = form_and_multiply(matrix, part, ordered, shift)
            else:
                values = careful_sweep(matrix, part, ordered, plan, shift)
            for i, value in zip(order, values, strict=True):
                result[i, item, :, chosen] = value
    return result


def _forming_pays(plan: ActionPlan, entries: int, v: Tensor, times: int) -> bool:
    """Whether squarings of the whole matrix take less than steps, whose number grows with the norm of t A."""
    n, columns = v.shape
    squarings = math.log2(plan.products) + _SERIES
    formed = squarings * (times * n**3 + n * _CALL)
    return formed < plan.products * (entries * columns + _CALL)

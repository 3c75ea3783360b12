"""The number of steps and the degree of each: the fewest products that keep the bounds of thresholds.py.

exp(t A) V = exp(t mu) (exp(h B))^s V with B = A - mu I and h = t / s. A step with Taylor's polynomial of
degree m keeps the promise if h alpha <= theta_m, where alpha is ||B||_1, or ||B^2||_1^(1/2), or, for m + 1 >=
p (p - 1), the larger of ||B^p||_1^(1/p) and ||B^(p+1)||_1^(1/(p+1)) (Al-Mohy and Higham 2011;
docs/theory/action.md). For matrices far from normal the latter are much smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from mlayer.exponential.action.norms import products_for
from mlayer.exponential.action.thresholds import Precision, derivative_degree

LARGEST_POWER = 9
# Powers give no better bound if the first two of them are this near to ||B||_1.
_NEAR_NORMAL = 0.95
# Degree that the derivative of one step may take.
_LARGEST_DERIVATIVE_DEGREE = 60


@dataclass
class Growth:
    """Bounds of the size of B: its 1-norm and, once requested, roots of the norms of its powers."""

    norm: float
    estimate: Callable[[int], float] | None = None  # p -> ||B^p||_1
    roots: dict[int, float] = field(default_factory=dict)

    def look_closer(self) -> None:
        """Estimate ||B^p||_1^(1/p) for p = 2, 3, ..., and stop after two that gain nothing."""
        if self.estimate is None or self.roots or not self.norm > 0:
            return
        for p in range(2, LARGEST_POWER + 1):
            # An estimate that overflows says nothing that ||B||_1 does not.
            size = self.estimate(p)
            self.roots[p] = min(size ** (1 / p) if math.isfinite(size) else math.inf, self.norm)
            if p == 3 and min(self.roots.values()) > _NEAR_NORMAL * self.norm:
                self.roots = {}
                break
        # Estimates may be too low, but ||B^(kp)||^(1/kp) <= ||B^p||^(1/p).
        for p in self.roots:
            self.roots[p] = max(self.roots[q] for q in self.roots if q % p == 0)

    def alpha(self, m: int) -> float:
        """The smallest alpha that degree m may go by."""
        found = min(self.norm, self.roots.get(2, self.norm))
        for p in range(3, LARGEST_POWER):
            if p in self.roots and p + 1 in self.roots and p * (p - 1) <= m + 1:
                found = min(found, max(self.roots[p], self.roots[p + 1]))
        return found

    def powers(self, h: float) -> list[float]:
        """Bounds of ||(h B)^i||_1 for i = 0, 1, ..."""
        sizes = [(1, h * self.norm)] + [(p, h * self.roots[p]) for p in sorted(self.roots)]
        # Within the range of a double even when two of them are multiplied.
        return [1.0, *(min(size, 1e140 ** (1 / p)) ** p for p, size in sizes)]


@dataclass(frozen=True)
class ActionPlan:
    """Steps of equal length, and the degree of each."""

    degree: int
    steps: int

    @property
    def products(self) -> int:
        return self.degree * self.steps


def plan_for(
    growth: Growth, length: float, precision: Precision, columns: int, *, cautious: bool, largest: int
) -> ActionPlan:
    """The cheapest plan for a time of this length; powers are looked at where that may pay."""
    most = precision.cautious_degree if cautious else len(precision.theta)
    plan = _cheapest(growth, length, precision, most)
    cost_of_looking = sum(products_for(p) for p in range(2, LARGEST_POWER + 1))
    if plan.products * columns > cost_of_looking or plan.products > largest:
        growth.look_closer()
        plan = _cheapest(growth, length, precision, most)
    return plan


def _cheapest(growth: Growth, length: float, precision: Precision, most: int) -> ActionPlan:
    def plan(m: int) -> ActionPlan:
        size = length * growth.alpha(m) / precision.theta[m - 1]
        return ActionPlan(m, max(1, math.ceil(size)) if math.isfinite(size) else 10**300)

    return min((plan(m) for m in range(1, most + 1)), key=lambda plan: (plan.products, plan.steps))


def with_derivative(
    plan: ActionPlan, growth: Growth, length: float, precision: Precision
) -> tuple[ActionPlan, int]:
    """The plan with steps short enough for the derivative, and the degree that the derivative takes."""
    steps = plan.steps
    while True:
        powers = growth.powers(length / steps)
        degree = derivative_degree(powers, precision.unit_roundoff, _LARGEST_DERIVATIVE_DEGREE)
        if degree is not None:
            return ActionPlan(plan.degree, steps), max(degree, plan.degree)
        steps *= 2

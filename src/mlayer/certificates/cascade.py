"""From bounds of margins to a radius or an answer for one row; `best` spends time only where it must."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlayer.certificates import first_order
from mlayer.certificates.expansion import Pair, Row, exponentials
from mlayer.certificates.paper import lambert_radius, lipschitz_radius
from mlayer.certificates.second_order import SecondOrder
from mlayer.certificates.third_order import ThirdOrder

Method = Literal["paper", "lipschitz", "first_order", "second_order", "third_order", "best"]
METHODS = ("paper", "lipschitz", "first_order", "second_order", "third_order", "best")
CLOSED_FORMS: dict[str, Callable[[Row], float]] = {"paper": lambert_radius, "lipschitz": lipschitz_radius}
# From cheap to dear.
ORDERS = ("first_order", "second_order", "third_order")

_TOLERANCE = 2e-4  # relative, of the search for the radius; what is returned always passed
_LARGEST = 1e6  # multiples of the first guess at which the search stops growing


@dataclass(frozen=True)
class Answer:
    """For one row."""

    radius: float
    rival: int  # the class that binds, -1 if none
    method: str


class Bounds:
    """The bounds of one pair, built when first needed."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._second: SecondOrder | None = None
        self._third: ThirdOrder | None = None

    def quickly_passes(self, eps: float) -> bool:
        """Does a bound that costs little settle this rival?"""
        if first_order.lower(self.pair, eps) > 0:
            return True
        if self._second is None:
            self._second = SecondOrder(self.pair)
        return self._second.quick_lower(eps) > 0

    def lower(self, method: str, eps: float) -> float:
        """The lower bound of one method."""
        if method == "first_order":
            return first_order.lower(self.pair, eps)
        if self._second is None:
            self._second = SecondOrder(self.pair)
        if method == "second_order":
            return self._second.lower(eps)
        if self._third is None:
            self._third = ThirdOrder(self._second)
        return self._third.lower(eps)


def radius_of(row: Row, method: str) -> Answer:
    """The radius of one row whose label is the class of the largest output."""
    if method in CLOSED_FORMS:
        return Answer(CLOSED_FORMS[method](row), -1, method)
    orders = ORDERS if method == "best" else (method,)
    binding = Answer(math.inf, -1, orders[0])
    for bounds, guess in _rivals(row):
        if _does_not_bind(row, bounds, orders, binding.radius):
            continue
        radius = _largest(row, bounds, orders[-1], guess, binding.radius)
        if radius < binding.radius:
            binding = Answer(radius, bounds.pair.rival, orders[-1])
    return binding


def certified_at(row: Row, method: str, eps: float) -> Answer:
    """Radius eps if the row is certified there, else 0."""
    if method in CLOSED_FORMS:
        return Answer(eps if CLOSED_FORMS[method](row) >= eps else 0.0, -1, method)
    orders = ORDERS if method == "best" else (method,)
    hardest = 0
    for bounds, _ in _rivals(row):
        if eps == 0 and bounds.pair.margin > bounds.pair.value_slack(0.0):
            continue
        if method == "best" and _broken_at_corner(bounds.pair, eps):
            return Answer(0.0, bounds.pair.rival, orders[0])
        for k, order in enumerate(orders):
            if bounds.lower(order, eps) > 0:
                hardest = max(hardest, k)
                break
        else:
            return Answer(0.0, bounds.pair.rival, orders[-1])
    return Answer(eps, -1, orders[hardest])


def _rivals(row: Row) -> list[tuple[Bounds, float]]:
    """All rivals with their first-order radius, the likeliest to bind first."""
    found = []
    for rival in range(len(row.outputs)):
        if rival != row.label:
            pair = row.pair(rival)
            slope = -first_order.linear_term(pair, 1.0)
            found.append((Bounds(pair), pair.margin / slope if slope > 0 else math.inf))
    return sorted(found, key=lambda item: item[1])


def _does_not_bind(row: Row, bounds: Bounds, orders: tuple[str, ...], eps: float) -> bool:
    """Is this rival certified at the radius that another one allows?"""
    if math.isinf(eps):
        return row.model.constants.delta_F == 0 and bounds.pair.margin > bounds.pair.value_slack(0.0)
    if eps == 0 or (len(orders) > 1 and bounds.quickly_passes(eps)):
        return True
    return any(bounds.lower(order, eps) > 0 for order in orders)


def _largest(row: Row, bounds: Bounds, order: str, guess: float, ceiling: float) -> float:
    """The largest eps found with a positive bound. Only values that passed are returned."""
    pair = bounds.pair
    at_zero = pair.margin - pair.value_slack(0.0)
    if not at_zero > 0:
        return 0.0
    if math.isinf(guess):  # no slope at all: start from the size of M's change
        guess = 1.0 / max(row.model.constants.delta_F, 1e-300)
    first = guess
    low, f_low = 0.0, at_zero
    high, f_high = min(guess * 1.02, ceiling), math.nan
    for _ in range(60):
        f_high = bounds.lower(order, high)
        if not f_high > 0:
            break
        low, f_low = high, f_high
        if row.model.region.holds_all(row.x, high):
            return math.inf
        if high >= ceiling or high > _LARGEST * first:
            return low
        high = min(high * 1.5, ceiling)
    for _ in range(60):
        if high - low <= _TOLERANCE * low:
            break
        middle = (low + high) / 2
        if math.isfinite(f_high):  # secant, a little to the safe side
            secant = low + (high - low) * f_low / (f_low - f_high)
            middle = min(max(secant - 0.4 * _TOLERANCE * secant, low + 0.02 * (high - low)), high)
            if middle <= low * (1 + 0.5 * _TOLERANCE) and low > 0:
                middle = low * (1 + _TOLERANCE)
        value = bounds.lower(order, middle)
        if value > 0:
            low, f_low = middle, value
        else:
            high, f_high = middle, value
        if high < 1e-300:
            break
    return low


def _broken_at_corner(pair: Pair, eps: float) -> bool:
    """Is the margin negative where its linear part is least? Then no bound can certify."""
    row = pair.row
    weights, region = row.model.weights, row.model.region
    scale = region.scale.numpy()
    if region.norm == "l2":
        length = float(np.linalg.norm(pair.slopes))
        step = -eps * pair.slopes / length if length > 0 else 0 * pair.slopes
    else:
        low, high = region.interval(row.x, eps)
        step = np.where(pair.slopes > 0, low, high)
    E = exponentials(weights.matrix(row.x + step * scale))
    bias = float(weights.V[row.label] - weights.V[pair.rival])
    return bool(bias + float((pair.W * E).sum()) < 0)

"""From bounds of margins to a radius or an answer for one row; `best` spends time only where it must."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates import first_order
from mlayer.certificates.caps import Caps
from mlayer.certificates.corner import broken_at_corner, corner, corner_radius
from mlayer.certificates.expansion import Pair, Row
from mlayer.certificates.fourth_order import FourthOrder
from mlayer.certificates.paper import lambert_radius, lipschitz_radius
from mlayer.certificates.quadratic import BoxQuadratic
from mlayer.certificates.second_order import SecondOrder
from mlayer.certificates.third_order import ThirdOrder
from mlayer.certificates.touch import touching

Array = NDArray[np.float64]
Method = Literal["paper", "lipschitz", "first_order", "second_order", "third_order", "fourth_order", "best"]
METHODS: tuple[Method, ...] = get_args(Method)
CLOSED_FORMS: dict[str, Callable[[Row], float]] = {"paper": lambert_radius, "lipschitz": lipschitz_radius}
# From cheap to dear.
ORDERS = ("first_order", "second_order", "third_order", "fourth_order")

_TOLERANCE = 2e-4  # relative, of the search for the radius; what is returned always passed
_SECANTS = 4
_HOPELESS = 0.9  # of the aim, for the touching function
_TOUCH_ROUNDS = 9
_REFIT = 0.97
_ENOUGH = 0.97  # of the aim: caps are not tried
_NO_BETTER = 0.999  # of the aim: nothing else is tried
# Up to which part of the margin the terms beyond the quadratic ones may be charged for a proof to pay.
_TOUCHING_PAYS = {"second_order": 0.1, "third_order": 0.1}
_CAPS_PAY = 0.22
_PROMISING = 4.0  # levels of caps expected
_HALVINGS = 4
_CLOSE = {"third_order": 0.985, "fourth_order": 0.97}  # of the aim: where caps from an order are tried first
_HALF = 0.5
_AGAIN = (1.0, 0.98, 0.95, 0.91)  # of that radius, the trials
PROOFS = ("first_order", "second_order", "touching", "third_order", "fourth_order", "caps")
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
        self.touched_at: Pair | None = None  # the margin expanded where the last function touched it
        self._touched: dict[str, tuple[float, BoxQuadratic]] = {}

    @cached_property
    def second(self) -> SecondOrder:
        """The second-order bound."""
        return SecondOrder(self.pair)

    @cached_property
    def third(self) -> ThirdOrder:
        """The third-order bound."""
        return ThirdOrder(self.second)

    @cached_property
    def fourth(self) -> FourthOrder:
        """The fourth-order bound."""
        return FourthOrder(self.third)

    def quickly_passes(self, eps: float) -> bool:
        """Does a bound that costs little settle this rival?"""
        return first_order.lower(self.pair, eps) > 0 or self.second.quickly_passes(eps)

    def lower(self, method: str, eps: float) -> float:
        """The lower bound of one method."""
        if method == "first_order":
            return first_order.lower(self.pair, eps)
        if method == "second_order":
            return self.second.lower(eps)
        return self.third.lower(eps) if method == "third_order" else self.fourth.lower(eps)

    def touching(self, order: SecondOrder | ThirdOrder, eps: float) -> float:
        """The least value over the region of the linear function that touches the margin (theorem 7)."""
        row = self.pair.row
        low, high = row.model.region.interval(row.x, eps)
        radius = row.radius(eps)
        at, box = self._touched.get(order.name, (0.0, None))
        # The bend grows with the radius: a fit serves for smaller ones too.
        if box is None or not _REFIT * at < eps <= at:
            bend = order.bend(radius)
            if not math.isfinite(bend):
                return -math.inf
            box = BoxQuadratic(self.pair, low, high, _TOUCH_ROUNDS, bend)
            self._touched[order.name] = eps, box
        found = touching(self.pair, box, low, high, radius)
        if found is None:
            return -math.inf
        self.touched_at = found.there
        return found.linear.minimum(low, high)

    @cached_property
    def caps(self) -> Caps:
        """Caps within caps (theorem 8), from the third order."""
        return Caps(self.third, self.second.box, _simply)

    @cached_property
    def deep_caps(self) -> Caps:
        """The same from the fourth order, which is dear, and used again only where the third falls short."""
        return Caps(self.fourth, self.second.box, _simply, FourthOrder)


def _simply(pair: Pair) -> ThirdOrder:
    """The third order at the centre of a cap."""
    return ThirdOrder(SecondOrder(pair), careful=False)


def radius_of(row: Row, method: str) -> Answer:
    """The radius of one row whose label is the class of the largest output."""
    if method in CLOSED_FORMS:
        return Answer(CLOSED_FORMS[method](row), -1, method)
    binding = Answer(math.inf, -1, ORDERS[0] if method == "best" else method)
    rivals = _rivals(row)
    if method == "best" and row.model.region.norm == "linf":
        rivals = _likely(rivals)
    for bounds, guess in rivals:
        if _does_not_bind(row, bounds, method, binding.radius):
            continue
        if method == "best":
            radius, settled = best_radius(row, bounds, guess, binding.radius)
        else:
            radius, settled = _largest(row, bounds, method, guess, binding.radius), method
        if radius < binding.radius:
            binding = Answer(radius, bounds.pair.rival, settled)
    return binding


def certified_at(row: Row, method: str, eps: float) -> Answer:
    """Radius eps if the row is certified there, else 0."""
    if method in CLOSED_FORMS:
        return Answer(eps if CLOSED_FORMS[method](row) >= eps else 0.0, -1, method)
    hardest = 0
    for bounds, _ in _rivals(row):
        if eps == 0 and bounds.pair.margin > bounds.pair.value_slack(0.0):
            continue
        if method != "best":
            if not bounds.lower(method, eps) > 0:
                return Answer(0.0, bounds.pair.rival, method)
            continue
        if broken_at_corner(bounds.pair, eps):
            return Answer(0.0, bounds.pair.rival, ORDERS[0])
        settled = first_proof(bounds, eps)
        if settled is None:
            return Answer(0.0, bounds.pair.rival, PROOFS[-1])
        hardest = max(hardest, PROOFS.index(settled))
    return Answer(eps, -1, PROOFS[hardest] if method == "best" else method)


def first_proof(bounds: Bounds, eps: float) -> str | None:
    """The first of `PROOFS` that shows the margin positive over the region, or None."""
    pair, box = bounds.pair, bounds.pair.row.model.region.norm == "linf"
    if first_order.lower(pair, eps) > 0:
        return "first_order"
    if bounds.second.quickly_passes(eps):  # most rivals are far from binding
        return "second_order"
    radius = pair.row.radius(eps)
    # No bound of the linear and quadratic terms is above their value in a corner: where that less the rest is
    # negative, there is nothing to compute.
    y = pair.row.model.white.rows.T @ corner(pair, eps)
    ceiling = pair.margin + float(pair.first @ y) + float(y @ pair.second @ y)
    if ceiling > bounds.second.rest(radius) and bounds.second.lower(eps) > 0:
        return "second_order"
    if box and _pays(bounds.second, eps) and bounds.touching(bounds.second, eps) > 0:
        return "touching"
    if ceiling > bounds.third.rest(radius) and bounds.third.lower(eps) > 0:
        return "third_order"
    if box and _pays(bounds.third, eps) and bounds.touching(bounds.third, eps) > 0:
        return "touching"
    if box and bounds.caps.levels(eps) < _PROMISING and bounds.caps.passes(eps):
        return "caps"
    if bounds.fourth.lower(eps) > 0:
        return "fourth_order"
    if box and bounds.deep_caps.levels(eps) < _PROMISING and bounds.deep_caps.passes(eps):
        return "caps"
    return None


def _share(order: SecondOrder | ThirdOrder | FourthOrder, eps: float) -> float:
    """The part of the margin that an order charges for the terms beyond the quadratic ones."""
    return order.rest(order.pair.row.radius(eps)) / order.pair.margin


def _pays(order: SecondOrder | ThirdOrder, eps: float) -> bool:
    return _share(order, eps) < _TOUCHING_PAYS[order.name]


def _rivals(row: Row) -> list[tuple[Bounds, float]]:
    """All rivals with their first-order radius, the likeliest to bind first."""
    found = []
    for rival in range(len(row.outputs)):
        if rival != row.label:
            pair = row.pair(rival)
            slope = -first_order.linear_term(pair, 1.0)
            found.append((Bounds(pair), pair.margin / slope if slope > 0 else math.inf))
    return sorted(found, key=lambda item: item[1])


def _likely(rivals: list[tuple[Bounds, float]]) -> list[tuple[Bounds, float]]:
    """The rivals that may bind, by the radius at which a corner breaks them: proofs for others are in vain.

    Those left out are certified at a radius where another one is broken, hence at every radius that matters.
    """
    broken, found = math.inf, []
    for bounds, guess in rivals:
        pair = bounds.pair
        # A little beyond: the radius is broken only up to the accuracy of `corner_radius`.
        if math.isfinite(broken) and bounds.quickly_passes(broken * (1 + 1e-3)):
            continue
        aim = math.inf
        if math.isinf(broken) or broken_at_corner(pair, broken):
            aim = corner_radius(pair, guess)
            broken = min(broken, aim)
        found.append((aim, bounds, guess))
    return [(bounds, guess) for _, bounds, guess in sorted(found, key=lambda item: item[0])]


def _does_not_bind(row: Row, bounds: Bounds, method: str, eps: float) -> bool:
    """Is this rival certified at the radius that another one allows?"""
    if math.isinf(eps):
        return row.model.constants.delta_F == 0 and bounds.pair.margin > bounds.pair.value_slack(0.0)
    if eps == 0:
        return True
    if method != "best":
        return bounds.lower(method, eps) > 0
    if bounds.quickly_passes(eps):
        return True
    return not broken_at_corner(bounds.pair, eps) and first_proof(bounds, eps) is not None


def best_radius(row: Row, bounds: Bounds, guess: float, ceiling: float) -> tuple[float, str]:
    """The largest eps a proof was found for, and the proof; dear ones only where cheap ones fall short."""
    pair = bounds.pair
    linf = row.model.region.norm == "linf"
    aim = corner_radius(pair, guess) * (1 - _TOLERANCE) if linf else math.inf
    if not 0 < aim < math.inf:
        order_name = "fourth_order" if linf else "third_order"
        return _largest(row, bounds, order_name, guess, ceiling), order_name
    top = min(aim, ceiling)
    radius, settled, order_name = 0.0, "touching", "third_order"
    orders: tuple[SecondOrder | ThirdOrder, ...] = (bounds.second, bounds.third)
    for order in orders:
        if _pays(order, top):
            radius = max(radius, _descend(partial(bounds.touching, order), top, pair.margin))
        if radius >= _NO_BETTER * top:
            return radius, settled
    if radius < _ENOUGH * top:
        for caps in (bounds.caps, bounds.deep_caps):
            if caps is bounds.caps and _share(bounds.third, top) > _CAPS_PAY:
                continue
            order_name = caps.name
            found = _by_caps(caps, radius, top)
            if found > 0:
                radius, settled = found, "caps"
                break
    if radius == 0:
        order_name = "fourth_order"
    if radius > 0 and not bounds.lower(order_name, radius) > 0:
        return radius, settled
    # The same search as without the other proofs: it shall not end lower by a chance of its fits.
    found = _largest(row, bounds, order_name, guess, ceiling)
    return (found, order_name) if found > radius else (radius, settled)


def _by_caps(caps: Caps, floor: float, top: float) -> float:
    """The largest of a few promising radii that caps certify; 0 if none."""
    eps = _promising(caps, max(floor, _HALF * top), _CLOSE[caps.name] * top)
    for share in _AGAIN:
        if share * eps > floor and caps.passes(share * eps):
            return share * eps
    return 0.0


def _descend(lower: Callable[[float], float], top: float, margin: float) -> float:
    """The first eps from the top down where the bound is positive, by secants; 0 if there was none."""
    eps = top
    for _ in range(_SECANTS):
        value = lower(eps)
        if value > 0:
            return eps
        # The margin falls by some margin / top per unit of eps, its bound by a little more.
        eps *= 1 + 1.05 * value / margin - _TOLERANCE
        if eps < _HOPELESS * top:
            break
    return 0.0


def _promising(caps: Caps, low: float, high: float) -> float:
    """About the largest eps at which a few levels of caps will likely do."""
    if caps.levels(high) < _PROMISING:
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if caps.levels(middle) < _PROMISING:
            low = middle
        else:
            high = middle
    return low


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
            if middle >= high:  # by rounding
                break
        value = bounds.lower(order, middle)
        if value > 0:
            low, f_low = middle, value
        else:
            high, f_high = middle, value
        if high < 1e-300:
            break
    return low

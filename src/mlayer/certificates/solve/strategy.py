"""From bounds of margins to a radius or an answer for one row; "best" spends time only where it must."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from mlayer.certificates.bounds.methods import STRATEGY, is_closed_form, method_named, rank, taylor_bounds
from mlayer.certificates.bounds.of_pair import Bounds
from mlayer.certificates.bounds.protocol import TaylorBound
from mlayer.certificates.bounds.remainder import readout_remainders, set_coarse
from mlayer.certificates.overflow import unless_out_of_range
from mlayer.certificates.problem.expansion import Row
from mlayer.certificates.solve.corner import broken_at_corner, broken_by_descent, corner_radius
from mlayer.certificates.solve.radius_search import (
    MOST_EXPECTED_CAPS,
    RADIUS_TOLERANCE,
    by_caps,
    descend,
    largest,
)
from mlayer.certificates.solve.rows_batched import settled_together

# The following decide what is tried, never what is proved. They were tuned on 200 images of the authors'
# CIFAR-10 model and 300 spread over its test set: the least mean time at a loss of a thousandth in the radii.

# Up to which part of the margin an order may charge for the terms beyond the quadratic ones for a tangent
# from it, and for caps from the third order, to be worth a fit.
_TANGENT_LARGEST_CHARGE = 0.1
_CAPS_LARGEST_CHARGE = 0.22
# From which part of the aim on caps are not tried, and nothing else is.
_CAPS_UNNEEDED_FROM = 0.97
_SEARCH_ENDS_FROM = 0.999
# A rival is left aside when it is certified this much beyond where another one seems broken: the radius there
# is accurate to `corner_radius`'s tolerance.
_BEYOND_BROKEN = 1 + 1e-3

# The bounds whose order and thresholds were tuned; any other row of the table is tried after them.
_TUNED = frozenset({"first_order", "second_order", "third_order", "fourth_order"})

Rivals = list[tuple[Bounds, float]]


@dataclass(frozen=True)
class Answer:
    """The answer for one row."""

    radius: float
    rival: int  # the class that binds, -1 if none
    method: str
    certified: bool  # at the radius asked about, or at any positive one


def _closed_form(row: Row, name: str) -> float:
    found: float = getattr(method_named(name).load(row.region.norm), f"{name}_radius")(row)
    return found


def radius_of(row: Row, method: str) -> Answer:
    """The radius of one row whose label is the class of the largest output."""
    if is_closed_form(method):
        radius = _closed_form(row, method)
        return Answer(radius, -1, method, radius > 0)
    best = method == STRATEGY
    binding = Answer(math.inf, -1, taylor_bounds()[0].name if best else method, True)
    rivals = _rivals(row)
    proved: dict[int, float] = {}
    if best and row.region.norm == "linf":
        rivals, proved = _likely(rivals)
    for bounds, guess in rivals:
        # Left aside so far, and proved at least up to the radius that the others allow.
        if binding.radius <= proved.get(bounds.pair.rival, 0.0):
            continue
        if _does_not_bind(row, bounds, method, binding.radius):
            continue
        if best:
            radius, settled = best_radius(row, bounds, guess, binding.radius)
        else:
            radius, settled = largest(row, bounds, method, guess, binding.radius), method
        if radius < binding.radius:
            binding = Answer(radius, bounds.pair.rival, settled, radius > 0)
    return binding


def certified_at(row: Row, method: str, eps: float) -> Answer:
    """Radius eps if the row is certified there, else 0."""
    if is_closed_form(method):
        found = _closed_form(row, method)  # 0 where the margin is not certainly positive
        certified = found >= eps and found > 0
        return Answer(eps if certified else 0.0, -1, method, certified)
    if method == STRATEGY and eps > 0:
        return _best_at(row, eps)
    for bounds, _ in _rivals(row):
        if eps == 0:
            passes = bounds.pair.margin > bounds.pair.value_slack(0.0)
        else:
            passes = bounds.lower(method, eps) > 0
        if not passes:
            return Answer(0.0, bounds.pair.rival, method, False)
    return Answer(eps, -1, taylor_bounds()[0].name if method == STRATEGY else method, True)


def _best_at(row: Row, eps: float) -> Answer:
    """Cheap proofs for all rivals, then an attempt to break the others, then the expensive proofs."""
    easiest = taylor_bounds()[0].name
    settled_at, settled_by = row.settled
    if settled_at != eps:
        settled_by = {}
    for pair in row.known.values():
        if pair.broken.get(eps):
            return Answer(0.0, pair.rival, easiest, False)
    hardest = max(settled_by.values(), key=rank, default=easiest)
    rivals = [bounds for bounds, _ in _rivals(row, settled_by)]
    for bounds in rivals:
        if broken_at_corner(bounds.pair, eps):
            return Answer(0.0, bounds.pair.rival, easiest, False)
    _readouts_together(rivals, eps)
    left = []
    for bounds in rivals:
        settled = cheap_proof(bounds, eps)
        if settled is None:
            left.append(bounds)
        else:
            hardest = max(hardest, settled, key=rank)
    # The likeliest first: most rows that are broken at all are broken there.
    if left and broken_by_descent(left[0].pair, eps):
        return Answer(0.0, left[0].pair.rival, easiest, False)
    unsettled = [bounds for bounds in left if third_proof(bounds, eps) is None]
    if len(unsettled) < len(left):
        hardest = max(hardest, "third_order", key=rank)
    for bounds in unsettled:
        if bounds is not left[0] and broken_by_descent(bounds.pair, eps):
            return Answer(0.0, bounds.pair.rival, easiest, False)
    for bounds in unsettled:
        settled = expensive_proof(bounds, eps)
        if settled is None:
            return Answer(0.0, bounds.pair.rival, "caps", False)
        hardest = max(hardest, settled, key=rank)
    return Answer(eps, -1, hardest, True)


@unless_out_of_range(None)
def _readouts_together(rivals: list[Bounds], eps: float) -> None:
    """Remainders with the readout inside for all rivals of a row whose cheap proofs will ask for them."""
    set_coarse([bounds.pair for bounds in rivals if bounds.second.ceiling(eps) > 0])
    wanted = [bounds.second for bounds in rivals if bounds.second.wants_readout(eps)]
    for second, remainder in zip(wanted, readout_remainders([k.pair for k in wanted]), strict=True):
        second.set_readout(remainder)


def first_proof(bounds: Bounds, eps: float) -> str | None:
    """The first bound, from cheap to expensive, that shows the margin positive over the region, or None."""
    return cheap_proof(bounds, eps) or third_proof(bounds, eps) or expensive_proof(bounds, eps)


@unless_out_of_range(None)
def cheap_proof(bounds: Bounds, eps: float) -> str | None:
    """First and second order without a fit; most rivals are far from binding."""
    if bounds.pair.row.settled[0] != eps and bounds.lower("first_order", eps) > 0:
        return "first_order"
    return "second_order" if bounds.second.quickly_passes(eps) else None


@unless_out_of_range(None)
def third_proof(bounds: Bounds, eps: float) -> str | None:
    """The third order with the remainder from few nodes, where neither that nor a shift needs a fit."""
    second, (at, level) = bounds.second, bounds.pair.level
    if second.wants_readout(eps):
        return None
    rest = bounds.third.coarse_rest(bounds.pair.row.radius(eps))
    passes = (at == eps and level > rest) or (second.ceiling(eps) > rest and second.plain_level(eps) > rest)
    return "third_order" if passes else None


@unless_out_of_range(None)
def expensive_proof(bounds: Bounds, eps: float) -> str | None:
    """The second order with a fit, and all that comes after it."""
    second, box = bounds.second, bounds.pair.row.region.norm == "linf"
    radius = bounds.pair.row.radius(eps)
    orders: tuple[TaylorBound, ...] = (second, bounds.third)
    for order in orders:
        for rest in order.rests(radius):
            # The fit of a shift only where it can help.
            if second.ceiling(eps) > rest and (second.plain_level(eps) > rest or second.level(eps) > rest):
                return order.name
    if box and _tangent_pays(bounds.third, eps) and bounds.tangent(bounds.third, eps) > 0:
        return "tangent"
    if box and bounds.caps.levels(eps) < MOST_EXPECTED_CAPS and bounds.caps.passes(eps):
        return "caps"
    if bounds.fourth.passes(eps):
        return "fourth_order"
    if box and bounds.deep_caps.levels(eps) < MOST_EXPECTED_CAPS and bounds.deep_caps.passes(eps):
        return "caps"
    return next((name for name in _untuned(bounds.pair.row) if bounds.lower(name, eps) > 0), None)


def _untuned(row: Row) -> list[str]:
    """The bounds of the table for this norm that the strategy was not tuned with, in order of cost."""
    norm = row.region.norm
    return [method.name for method in taylor_bounds() if method.name not in _TUNED and norm in method.norms]


@unless_out_of_range(math.inf)
def _charge(order: TaylorBound, eps: float) -> float:
    """The part of the margin that an order charges for the terms beyond the quadratic ones."""
    return order.rest(order.pair.row.radius(eps)) / order.pair.margin


def _tangent_pays(order: TaylorBound, eps: float) -> bool:
    return _charge(order, eps) < _TANGENT_LARGEST_CHARGE


def _rivals(row: Row, settled: Mapping[int, str] = MappingProxyType({})) -> Rivals:
    """All rivals that are not settled, with their first-order radius, the likeliest to bind first."""
    found = []
    for rival in range(len(row.outputs)):
        if rival != row.label and rival not in settled:
            pair = row.pair(rival)
            found.append((Bounds(pair), pair.first_radius))
    return sorted(found, key=lambda item: item[1])


def _likely(rivals: Rivals) -> tuple[Rivals, dict[int, float]]:
    """All rivals, those that may bind first, by the radius at which a corner breaks them.

    Last come those that are certified at a radius where another one seems broken; with them, up to where they
    are certified. That the other one is broken is an evaluation in float64, not a proof, so a radius beyond
    needs one for them too.
    """
    broken, found, proved, aside = math.inf, [], {}, []
    settled: dict[int, str] = {}
    for bounds, guess in rivals:
        pair = bounds.pair
        if math.isfinite(broken) and (
            pair.rival in settled or bounds.quickly_passes(broken * _BEYOND_BROKEN)
        ):
            proved[pair.rival] = broken * _BEYOND_BROKEN
            aside.append((bounds, guess))
            continue
        aim = math.inf
        if math.isinf(broken) or broken_at_corner(pair, broken):
            aim = corner_radius(pair, guess)
            if math.isinf(broken) and math.isfinite(aim):
                settled = settled_together(pair.row, aim * _BEYOND_BROKEN)
                unsettled = [other for other, _ in rivals if other.pair.rival not in settled]
                _readouts_together(unsettled, aim * _BEYOND_BROKEN)
            broken = min(broken, aim)
        found.append((aim, bounds, guess))
    return [(bounds, guess) for _, bounds, guess in sorted(found, key=lambda item: item[0])] + aside, proved


def _does_not_bind(row: Row, bounds: Bounds, method: str, eps: float) -> bool:
    """Whether this rival is certified at the radius that another one allows."""
    if math.isinf(eps):
        return not row.model.weights.depends and bounds.pair.margin > bounds.pair.value_slack(0.0)
    if eps == 0:
        return True
    if method != STRATEGY:
        return bounds.lower(method, eps) > 0
    if bounds.quickly_passes(eps):
        return True
    return not broken_at_corner(bounds.pair, eps) and first_proof(bounds, eps) is not None


def best_radius(row: Row, bounds: Bounds, guess: float, ceiling: float) -> tuple[float, str]:
    """The largest eps a proof was found for, and the proof; expensive ones where cheap ones fall short."""
    radius, settled = _tuned_radius(row, bounds, guess, ceiling)
    for name in _untuned(row):
        found = largest(row, bounds, name, guess, ceiling)
        if found > radius:
            radius, settled = found, name
    return radius, settled


@unless_out_of_range(False)
def _may_pass(bounds: Bounds, name: str, eps: float) -> bool:
    """Whether the terms up to the quadratic ones are, in a corner, above the charge for the rest."""
    return bool(bounds.second.ceiling(eps) > bounds[name].rest(bounds.pair.row.radius(eps)))


def _tuned_radius(row: Row, bounds: Bounds, guess: float, ceiling: float) -> tuple[float, str]:
    pair = bounds.pair
    linf = row.region.norm == "linf"
    aim = corner_radius(pair, guess) * (1 - RADIUS_TOLERANCE) if linf else math.inf
    if not 0 < aim < math.inf:
        name = "fourth_order" if linf else "third_order"
        return largest(row, bounds, name, guess, ceiling), name
    top = min(aim, ceiling)
    radius, settled, name = 0.0, "tangent", "third_order"
    orders: tuple[TaylorBound, ...] = (bounds.second, bounds.third)
    for order in orders:
        if _tangent_pays(order, top):
            radius = max(radius, descend(partial(bounds.tangent, order), top, pair.margin))
        if radius >= _SEARCH_ENDS_FROM * top:
            return radius, settled
    if radius < _CAPS_UNNEEDED_FROM * top:
        for caps in (bounds.caps, bounds.deep_caps):
            if caps is bounds.caps and _charge(bounds.third, top) > _CAPS_LARGEST_CHARGE:
                continue
            name = caps.name
            found = by_caps(caps, radius, top)
            if found > 0:
                radius, settled = found, "caps"
                break
    if radius == 0:
        name = "fourth_order"
    if radius > 0 and not (_may_pass(bounds, name, radius) and bounds.lower(name, radius) > 0):
        return radius, settled
    # The same search as without the other proofs: its fits must not leave the result lower by chance.
    found = largest(row, bounds, name, guess, ceiling)
    return (found, name) if found > radius else (radius, settled)

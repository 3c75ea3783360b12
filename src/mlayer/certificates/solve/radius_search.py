"""The largest radius at which a bound is positive. Only radii that passed are returned."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from mlayer.certificates.bounds.caps import Caps
from mlayer.certificates.bounds.of_pair import Bounds
from mlayer.certificates.problem.expansion import Row

# Relative accuracy of a radius: far below the differences between methods, and each digit more costs a third
# of an evaluation.
RADIUS_TOLERANCE = 2e-4
# More levels of caps than that are not worth their expansions: nearly all searches that expected more failed.
MOST_EXPECTED_CAPS = 4.0

# Radii tried by `descend`; the second or third passes where any does.
_DESCENT_TRIALS = 4
# The part of the aim below which `descend` gives up: expensive proofs reach further there.
_DESCENT_FLOOR = 0.9
# The margin's bound falls a little faster than the margin, which falls by about margin / aim per unit of eps.
_DESCENT_SLOPE = 1.05
# Caps are tried from this part of the aim up; below, other proofs are as good.
_CAPS_FLOOR = 0.5
_CAPS_BISECTIONS = 4
# The trials of caps, as parts of the radius that looks promising: each costs several expansions.
_CAPS_TRIALS = (1.0, 0.98, 0.95, 0.91)
# Multiples of the first guess at which the search stops growing.
_LARGEST_MULTIPLE = 1e6
_MOST_STEPS = 60


def descend(lower: Callable[[float], float], top: float, margin: float) -> float:
    """The first eps from the top down where the bound is positive, by secants; 0 if there was none."""
    eps = top
    for _ in range(_DESCENT_TRIALS):
        value = lower(eps)
        if value > 0:
            return eps
        eps *= 1 + _DESCENT_SLOPE * value / margin - RADIUS_TOLERANCE
        if not eps >= _DESCENT_FLOOR * top:
            break
    return 0.0


def by_caps(caps: Caps, floor: float, top: float) -> float:
    """The largest of a few promising radii that caps certify; 0 if none."""
    eps = _promising(caps, max(floor, _CAPS_FLOOR * top), caps.first_trial * top)
    for share in _CAPS_TRIALS:
        if share * eps > floor and caps.passes(share * eps):
            return share * eps
    return 0.0


def _promising(caps: Caps, low: float, high: float) -> float:
    """An estimate of the largest eps at which a few levels of caps are likely to be enough."""
    if caps.levels(high) < MOST_EXPECTED_CAPS:
        return high
    for _ in range(_CAPS_BISECTIONS):
        middle = (low + high) / 2
        if caps.levels(middle) < MOST_EXPECTED_CAPS:
            low = middle
        else:
            high = middle
    return low


def _down_to(lower: Callable[[float], float], eps: float) -> float:
    """The first eps at which the bound is finite, on the way down from one where it is not.

    A first-order guess may lie far beyond where exponentials overflow.
    """
    for k in range(12):
        if math.isfinite(lower(eps)):
            break
        eps *= 0.5 ** (k + 1)
    return eps


def largest(row: Row, bounds: Bounds, order: str, guess: float, ceiling: float) -> float:
    """The largest eps found with a positive bound."""
    pair = bounds.pair
    at_zero = pair.margin - pair.value_slack(0.0)
    if not at_zero > 0:
        return 0.0
    if math.isinf(guess):  # no slope at all: start from the size of M's change
        guess = 1.0 / max(row.model.constants.delta_F, 1e-300)
    low, f_low = 0.0, at_zero
    high, f_high = _down_to(partial(bounds.lower, order), min(guess * 1.02, ceiling)), math.nan
    for _ in range(_MOST_STEPS):
        f_high = bounds.lower(order, high)
        if not f_high > 0:
            break
        low, f_low = high, f_high
        if row.region.holds_all(row.x, high):
            return math.inf
        if high >= ceiling or high > _LARGEST_MULTIPLE * guess:
            return low
        high = min(high * 1.5, ceiling)
    for k in range(_MOST_STEPS):
        if high - low <= RADIUS_TOLERANCE * low:
            break
        middle = (low + high) / 2
        # Secant, a little to the safe side; bisection now and then, for bounds that fall exponentially.
        if math.isfinite(f_high) and k % 4 < 3:
            secant = low + (high - low) * f_low / (f_low - f_high)
            middle = min(max(secant - 0.4 * RADIUS_TOLERANCE * secant, low + 0.02 * (high - low)), high)
            if middle <= low * (1 + 0.5 * RADIUS_TOLERANCE) and low > 0:
                middle = low * (1 + RADIUS_TOLERANCE)
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

"""The corner of the region where the linear part of a margin is least: where a proof may fail first.

Nothing here is part of a proof. It finds radii that are out of reach, so that no proof is tried there.
"""

from __future__ import annotations

import math

import numpy as np

from mlayer.certificates.overflow import unless_out_of_range
from mlayer.certificates.problem.expansion import Pair
from mlayer.numerics.arrays import Array

# Steps of the descent that looks for a broken corner; later ones change little.
_DESCENT = 4


def corner(pair: Pair, eps: float) -> Array:
    """The point where the linear part is least."""
    return corner_of(pair, pair.slopes, eps)


def corner_of(pair: Pair, slopes: Array, eps: float) -> Array:
    """The point of the pair's region where a linear function with these slopes is least."""
    row = pair.row
    region = row.region
    if region.norm == "l2":
        length = float(np.linalg.norm(slopes))
        return -eps * slopes / length if length > 0 else 0 * slopes
    low, high = row.interval(eps)
    result: Array = np.where(slopes > 0, low, high)
    return result


@unless_out_of_range((math.nan, math.nan))
def value_and_slope(pair: Pair, eps: float) -> tuple[float, float]:
    """The margin in the corner, and its slope as the region grows."""
    row = pair.row
    step = corner(pair, eps)
    linf = row.region.norm == "linf"
    moving = np.abs(step) >= eps * (1 - 1e-9) if linf else np.ones(len(step), bool)
    there = row.moved(row.x + step * row.region.scale.numpy()).pair(pair.rival)
    return there.margin, float(there.slopes[moving] @ step[moving]) / eps


@unless_out_of_range(False)
def broken_at_corner(pair: Pair, eps: float) -> bool:
    """Whether the margin is negative where its linear part is least: then no bound can certify."""
    if eps in pair.broken:
        return pair.broken[eps]
    row = pair.row
    at = row.x + corner(pair, eps) * row.region.scale.numpy()
    return row.moved(at).pair(pair.rival).margin < 0


@unless_out_of_range(False)
def broken_by_descent(pair: Pair, eps: float) -> bool:
    """Whether the margin is negative at a corner that a few steps of descent lead to.

    From the corner that the gradient at the input points to, on to the one that the gradient there points to.
    """
    row = pair.row
    unit = row.region.scale.numpy()
    step = corner(pair, eps)
    for _ in range(_DESCENT):
        there = row.moved(row.x + step * unit).pair(pair.rival)
        if there.margin < 0:
            return True
        # The gradient there, the region around the input: its least point is the next one.
        following = corner_of(pair, there.slopes, eps)
        if (following == step).all():
            break
        step = following
    return False


def corner_radius(pair: Pair, guess: float) -> float:
    """An estimate of the eps at which the margin is 0 in the corner of its gradient, or inf; not a bound."""
    if guess not in pair.aims:
        pair.aims[guess] = _corner_radius(pair, guess)
    return pair.aims[guess]


def _corner_radius(pair: Pair, guess: float) -> float:
    eps = guess
    if not 0 < guess < math.inf:
        return math.inf
    for _ in range(4):
        value, slope = value_and_slope(pair, eps)
        if not (math.isfinite(value) and slope < 0):
            return math.inf
        step = max(min(-value / slope, eps), -eps / 2)
        eps += step
        if abs(step) < 1e-4 * eps:
            break
    # An aim that is too low would cut the radius short.
    return eps if broken_at_corner(pair, eps * (1 + 1e-3)) else math.inf

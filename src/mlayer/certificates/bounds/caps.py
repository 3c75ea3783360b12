"""Caps: where a linear lower bound is not positive, a cap of the region is left, expanded at its center.

docs/theory/certificates.md, theorem 8. L-infinity regions only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlayer.certificates.bounds.protocol import TaylorBound
from mlayer.certificates.bounds.quadratic_terms import BoxQuadratic, Minorant
from mlayer.certificates.bounds.tangent import tangent
from mlayer.certificates.derivatives.jets import JetPath
from mlayer.certificates.linalg import INFLATE
from mlayer.certificates.overflow import unless_out_of_range
from mlayer.certificates.problem.expansion import Pair
from mlayer.numerics.arrays import Array

# Expansions at most; the radius shrinks by a third or more with each, so that more settle nothing.
_MOST_LEVELS = 7
# Caps expected by `_levels`: with more than the first number left the expensive bound is taken at the new
# center, with more than the second the search ends. Tuned as in solve/strategy.py.
_DEEPER_FROM = 3.5
_GIVE_UP_FROM = 4.0
# In `_levels`: what is charged beyond the quadratic terms falls about like this power of the radius, and the
# shift of the quadratic terms falls too, which counts as if the charge were this many times larger.
_CHARGE_POWER = 3.5
_SHIFT_ALLOWANCE = 1.5
# Parts of the linear term that are left out where planes are laid: steeper planes cut smaller caps.
_TILTS = (0.25, 0.5)
# Rounds of the fits of the shift, each from the last one.
_ROUNDS = 3
# Steps of the search for the smallest ball around a cap, at most.
_BALL_SEARCH = 30
# Times the margin: a curvature that costs more makes the tangent useless.
_TANGENT_LARGEST_COST = 0.4


@dataclass(frozen=True)
class Step:
    """The facts used by one level: an expansion within |y| <= radius, and the point of tangency."""

    pair: Pair
    radius: float
    width: float
    there: Pair | None


@dataclass(frozen=True)
class View:
    """The cap that an order leaves of a region around its center."""

    levels: float  # about how many caps more it will take; 0 if none, inf if there is no hope
    center: Array
    radius: float
    there: Pair | None


class Caps:
    """Proves the margin of one pair positive over a region, by caps within caps.

    Args:
        first: the bound at the input itself.
        box: its quadratic terms, fitted at about a radius eps.
        again: makes the bound at another center.
        deeper: makes a tighter one of it, which is expensive; used where the other falls short.
    """

    def __init__(
        self,
        first: TaylorBound,
        box: Callable[[float], BoxQuadratic],
        again: Callable[[Pair], TaylorBound],
        deeper: Callable[[Any], TaylorBound] | None = None,
    ) -> None:
        self._first, self._box, self._again, self._deeper = first, box, again, deeper
        self.name, self.first_trial = first.name, first.first_cap_trial
        self.trail: list[Step] = []  # of the last call of `passes`
        self._seen: tuple[float, BoxQuadratic, View] | None = None  # the last eps, and the view there

    @unless_out_of_range(math.inf)
    def levels(self, eps: float) -> float:
        """An estimate of the number of caps needed, at little cost; inf if hopeless, 0 if none is needed."""
        return self._at_input(eps)[1].levels

    def _at_input(self, eps: float) -> tuple[BoxQuadratic, View]:
        """The quadratic terms and the view from the input itself; `passes` begins where `levels` looked."""
        if self._seen is None or self._seen[0] != eps:
            row, box = self._first.pair.row, self._box(eps)
            low, high = row.interval(eps)
            self._seen = eps, box, self._view(self._first, box, low, high, row.radius(eps))
        return self._seen[1:]

    @unless_out_of_range(False)
    def passes(self, eps: float) -> bool:
        """Whether the margin is positive over the region of radius eps."""
        row = self._first.pair.row
        w, unit = row.model.white.w, row.region.scale.numpy()
        low, high = row.interval(eps)
        width = float((high - low).max())
        center, radius, order = np.zeros(len(low)), row.radius(eps), self._first
        box, view = self._at_input(eps)
        self.trail = [Step(order.pair, radius, width, view.there)]
        expected: dict[str, float] = {}
        for _ in range(_MOST_LEVELS):
            # Without progress of the same order the caps converge to something: stop.
            if not 0 < view.levels < min(expected.get(order.name, math.inf), _GIVE_UP_FROM):
                break
            expected[order.name] = view.levels
            at = row.x + (center + view.center) * unit
            # The center in exact arithmetic is the rounded one.
            rounded = np.divide(at - row.x, unit, out=np.zeros_like(at), where=unit > 0)
            moved_by = float(np.sqrt(w @ (rounded - center - view.center) ** 2))
            radius = (view.radius + moved_by * INFLATE) * row.model.white.reach  # of y
            center, moved = rounded, row.moved(at)
            if not moved.computable or isinstance(moved.derivatives, JetPath):
                return False  # no good eigenvectors there: not worth the time
            order = self._again(moved.pair(order.pair.rival))
            box = BoxQuadratic(order.pair, low - center, high - center, _ROUNDS, start=box.shift)
            view = self._view(order, box, low - center, high - center, radius)
            if self._deeper is not None and not view.levels < _DEEPER_FROM:
                order = self._deeper(order)
                view = self._view(order, box, low - center, high - center, radius)
            self.trail.append(Step(order.pair, radius, width, view.there))
        return view.levels == 0

    def _view(self, order: TaylorBound, box: BoxQuadratic, low: Array, high: Array, radius: float) -> View:
        """Linear functions below the margin within the box and |y| <= radius, and the smallest of their caps.

        They are those of theorem 3 and, away from the input, one that touches the margin where it may help.
        """
        pair, w = order.pair, order.pair.row.model.white.w
        value = pair.margin - pair.value_slack(float((high - low).max()))
        linear, rest = box.minorant(low, high), 0.0
        least = linear.minimum(low, high)
        for rest in order.rests(radius):
            if value + least - rest > 0:
                return View(0.0, np.zeros(len(low)), 0.0, None)
        level = value - rest
        cuts, there = [Minorant(linear.constant + level, linear.slopes)], None
        for tilt in _TILTS:
            linear = box.minorant(low, high, tilt)
            cuts.append(Minorant(linear.constant + level, linear.slopes))
        curvature = order.curvature(radius) if order is not self._first else np.inf
        if 4 * curvature * radius**2 < _TANGENT_LARGEST_COST * self._first.pair.margin:
            extra = pair.curvature_of_basis(radius, float((high - low).max()))
            convexified = BoxQuadratic(pair, low, high, _ROUNDS, curvature, box.shift, extra)
            found = tangent(pair, convexified, low, high, radius)
            if found is not None:
                cuts.append(found.linear)
                there = found.there
        deep = -max(cut.minimum(low, high) for cut in cuts)
        center, smaller = min((cap(cut, low, high, w) for cut in cuts), key=lambda item: item[1])
        return View(_levels(deep, rest, smaller / radius), center, smaller, there)


def _levels(deep: float, rest: float, shrinkage: float) -> float:
    """An estimate of how often the radius must shrink for the bound, now -deep, to be positive.

    What is charged beyond the quadratic terms falls like a power of the radius; the rest of the bound stays.
    """
    if deep < 0:
        return 0.0
    share = deep / (_SHIFT_ALLOWANCE * rest)
    if share >= 1 or shrinkage >= 1:
        return np.inf
    return max(float(np.log1p(-share) / (_CHARGE_POWER * np.log(shrinkage))), 1e-9)


def cap(cut: Minorant, low: Array, high: Array, w: Array) -> tuple[Array, float]:
    """Center and radius of a ball around the part of the box where the linear function is <= 0.

    The ball is one of sum_i w_i delta_i^2; in y it is larger by `Whitened.reach`.

    For every nu >= 0: with v_i the distance from the corner where the function is least, D minus its minimum,
    and the center at distance c_i = max(0, u_i / 2 - nu a_i / (2 w_i)) from that corner, u_i the widths,
    the radius is at most the root of nu D + sum w_i c_i^2.
    """
    a, width = np.abs(cut.slopes), high - low
    depth = max(-cut.minimum(low, high), 0.0)
    used = w > 0
    ratio = np.where(used, a / np.where(used, w, 1.0), 0.0)

    # The square is convex in nu, and its derivative, D - sum a_i c_i, is concave and linear between points
    # where an offset vanishes: Newton's steps from 0 lead to its zero from below, mostly within ten.
    nu, half, offsets = 0.0, ratio / 2, width / 2
    for _ in range(_BALL_SEARCH):
        slope = depth - float(a @ offsets)
        steepness = float(a @ np.where(offsets > 0, half, 0.0))
        if not (slope < 0 and steepness > 0):
            break
        step = -slope / steepness
        nu += step
        offsets = np.maximum(width / 2 - nu * half, 0.0)
        if step <= 1e-12 * nu:
            break
    square = nu * depth + float(w @ offsets**2)
    corner = np.where(cut.slopes > 0, low, high)
    center = corner + np.sign(low + high - 2 * corner) * offsets
    return center, math.sqrt(square) * INFLATE

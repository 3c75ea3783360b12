"""Where a linear lower bound is not positive, only a cap of the region is left: expand again at its centre.

docs/theory/certificates.md, theorem 8. L-infinity regions only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.ellipsoid import INFLATE
from mlayer.certificates.expansion import Pair
from mlayer.certificates.jets import JetPath
from mlayer.certificates.quadratic import BoxQuadratic, Minorant
from mlayer.certificates.touch import touching

Array = NDArray[np.float64]

_MOST_LEVELS = 7
_FEW = 3.5  # more levels than that are expected: a dearer bound is taken
_HOPELESS = 4.0  # more levels than that are expected: not worth an expansion
_OPTIMISM = 1.5  # the shift of the quadratic terms costs less in smaller caps too
_POWER = 3.5  # of the radius, in what is charged beyond the quadratic terms, roughly
_TILTS = (0.0, 0.25, 0.5)
_ROUNDS = 3  # of the fits of the shift, each from the last one
_SEARCH = 30
_TOO_BENT = 0.4  # times the margin: the function that touches is no use


class Order(Protocol):
    """A Taylor bound of one pair: `SecondOrder`, `ThirdOrder`, `FourthOrder`."""

    pair: Pair
    name: str

    def rest(self, radius: float) -> float:
        """What lies beyond the quadratic terms is at least minus this."""

    def bend(self, radius: float) -> float:
        """Half the second derivative is at least H minus this."""


@dataclass(frozen=True)
class Step:
    """What one level relied on: an expansion within |y| <= radius, and where a function touched."""

    pair: Pair
    radius: float
    width: float
    there: Pair | None


@dataclass(frozen=True)
class View:
    """What an order proves about a region around its centre: the cap that is left."""

    levels: float  # about how many caps more it will take; 0 if none, inf if there is no hope
    centre: Array
    radius: float
    there: Pair | None


class Caps:
    """Proves the margin of one pair positive over a region, by caps within caps.

    Args:
        first: the bound at the input itself.
        box: its quadratic terms, fitted at about a radius eps.
        again: makes the bound at another centre.
        deeper: makes a tighter one of it, which is dear; used where the other falls short.
    """

    def __init__(
        self,
        first: Order,
        box: Callable[[float], BoxQuadratic],
        again: Callable[[Pair], Order],
        deeper: Callable[[Any], Order] | None = None,
    ) -> None:
        self._first, self._box, self._again, self._deeper = first, box, again, deeper
        self.name = first.name
        self.trail: list[Step] = []  # of the last call of `passes`

    def levels(self, eps: float) -> float:
        """About how many caps it will take, cheap to tell; inf if there is no hope, 0 if none is needed."""
        row = self._first.pair.row
        low, high = row.model.region.interval(row.x, eps)
        return self._view(self._first, self._box(eps), low, high, row.radius(eps)).levels

    def passes(self, eps: float) -> bool:
        """Is the margin positive over the region of radius eps?"""
        row = self._first.pair.row
        region, w, unit = row.model.region, row.model.white.w, row.model.region.scale.numpy()
        low, high = region.interval(row.x, eps)
        width = float((high - low).max())
        centre, radius, order, box = np.zeros(len(low)), row.radius(eps), self._first, self._box(eps)
        view = self._view(order, box, low, high, radius)
        self.trail = [Step(order.pair, radius, width, view.there)]
        expected = np.inf
        for _ in range(_MOST_LEVELS):
            # Without progress the caps converge to something: stop.
            if not 0 < view.levels < min(expected, _HOPELESS):
                break
            expected = view.levels if len(self.trail) > 1 else np.inf
            at = row.x + (centre + view.centre) * unit
            # The centre in exact arithmetic is the rounded one.
            rounded = np.divide(at - row.x, unit, out=np.zeros_like(at), where=unit > 0)
            moved_by = float(np.sqrt(w @ (rounded - centre - view.centre) ** 2))
            radius, centre, moved = view.radius + moved_by * INFLATE, rounded, row.moved(at)
            if isinstance(moved.derivatives, JetPath):
                return False  # no good eigenvectors there: not worth the time
            order = self._again(moved.pair(order.pair.rival))
            box = BoxQuadratic(order.pair, low - centre, high - centre, _ROUNDS, start=box.shift)
            view = self._view(order, box, low - centre, high - centre, radius)
            if self._deeper is not None and not view.levels < _FEW:
                order = self._deeper(order)
                view = self._view(order, box, low - centre, high - centre, radius)
            self.trail.append(Step(order.pair, radius, width, view.there))
        return view.levels == 0

    def _view(self, order: Order, box: BoxQuadratic, low: Array, high: Array, radius: float) -> View:
        """Linear functions below the margin within the box and |y| <= radius, and the smallest of their caps.

        They are those of theorem 3 and, away from the input, one that touches the margin where it may help.
        """
        pair, w = order.pair, order.pair.row.model.white.w
        rest = order.rest(radius)
        level = pair.margin - rest - pair.value_slack(float((high - low).max()))
        cuts, there = [], None
        for tilt in _TILTS:
            linear = box.minorant(low, high, tilt)
            cuts.append(Minorant(linear.constant + level, linear.slopes))
            if cuts[0].minimum(low, high) > 0:
                return View(0.0, np.zeros(len(low)), 0.0, None)
        bend = order.bend(radius) if order is not self._first else np.inf
        if 4 * bend * radius**2 < _TOO_BENT * self._first.pair.margin:
            bent = BoxQuadratic(pair, low, high, _ROUNDS, bend, box.shift)
            tangent = touching(pair, bent, low, high, radius)
            if tangent is not None:
                cuts.append(tangent.linear)
                there = tangent.there
        deep = -max(cut.minimum(low, high) for cut in cuts)
        centre, smaller = min((cap(cut, low, high, w) for cut in cuts), key=lambda item: item[1])
        return View(_levels(deep, rest, smaller / radius), centre, smaller, there)


def _levels(deep: float, rest: float, shrinkage: float) -> float:
    """How many times the radius must shrink for the bound, now -deep, to be positive; a guess, no bound.

    What is charged beyond the quadratic terms falls like a power of the radius; the rest of the bound stays.
    """
    if deep < 0:
        return 0.0
    share = deep / (_OPTIMISM * rest)
    if share >= 1 or shrinkage >= 1:
        return np.inf
    return max(float(np.log1p(-share) / (_POWER * np.log(shrinkage))), 1e-9)


def cap(cut: Minorant, low: Array, high: Array, w: Array) -> tuple[Array, float]:
    """Centre and radius of a ball in y around the part of the box where the linear function is <= 0.

    For every nu >= 0: with v_i the distance from the corner where the function is least, D minus its minimum,
    and the centre at distance c_i = max(0, u_i / 2 - nu a_i / (2 w_i)) from that corner, u_i the widths,
    the radius is at most the root of nu D + sum w_i c_i^2.
    """
    a, width = np.abs(cut.slopes), high - low
    depth = max(-cut.minimum(low, high), 0.0)
    used = w > 0
    ratio = np.where(used, a / np.where(used, w, 1.0), 0.0)

    def offsets(nu: float) -> Array:
        result: Array = np.maximum(width / 2 - nu / 2 * ratio, 0.0)
        return result

    def square(nu: float) -> float:
        return nu * depth + float(w @ offsets(nu) ** 2)

    with np.errstate(divide="ignore"):
        ends = np.where(ratio > 0, width / ratio, 0.0)
    # The square is convex in nu: golden section between 0 and where the last offset vanishes, or where the
    # first term alone is as large as the square at 0.
    left, right = 0.0, float(ends.max(initial=0.0))
    if depth > 0:
        right = min(right, square(0.0) / depth)
    share = (np.sqrt(5) - 1) / 2
    one, two = right - share * (right - left), left + share * (right - left)
    f_one, f_two = square(one), square(two)
    for _ in range(_SEARCH):
        if f_one < f_two:
            right, two, f_two = two, one, f_one
            one = right - share * (right - left)
            f_one = square(one)
        else:
            left, one, f_one = one, two, f_two
            two = left + share * (right - left)
            f_two = square(two)
    nu = one if f_one < f_two else two
    corner = np.where(cut.slopes > 0, low, high)
    centre = corner + np.sign(low + high - 2 * corner) * offsets(nu)
    return centre, float(np.sqrt(square(nu))) * INFLATE

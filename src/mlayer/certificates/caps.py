"""Where a linear lower bound is not positive, only a cap of the region is left: expand again at its centre.

docs/theory/certificates.md, theorem 8. L-infinity regions only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.ellipsoid import INFLATE
from mlayer.certificates.expansion import Pair
from mlayer.certificates.jets import JetPath
from mlayer.certificates.quadratic import BoxQuadratic, Minorant
from mlayer.certificates.touch import touching

Array = NDArray[np.float64]

_MOST_LEVELS = 7
_HOPELESS = 4.0  # more levels than that are expected: not worth an expansion
_OPTIMISM = 1.5  # the shift of the quadratic terms costs less in smaller caps too
_POWER = 3.5  # of the radius, in what is charged beyond the quadratic terms, roughly
_TILTS = (0.0, 0.25, 0.5)
_ROUNDS = 5  # of the fits of the shift
_SEARCH = 40
_TOO_BENT = 0.4  # times the margin: the function that touches is no use


class Order(Protocol):
    """A Taylor bound of one pair: `SecondOrder`, `ThirdOrder`, `FourthOrder`."""

    pair: Pair

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


class Caps:
    """Proves the margin of one pair positive over a region, by caps within caps.

    Args:
        first: the bound at the input itself.
        again: makes the bound at another centre, from the pair there, the radius, and what may be charged
            beyond the quadratic terms if the cap is to be the last.
    """

    def __init__(self, first: Order, again: Callable[[Pair, float, float], Order]) -> None:
        self._first, self._again = first, again
        self.trail: list[Step] = []  # of the last call of `passes`
        self._box: BoxQuadratic | None = None  # of the first level: a fit serves at other radii too

    def levels(self, eps: float) -> float:
        """About how many caps it will take, cheap to tell; inf if there is no hope, 0 if none is needed."""
        row = self._first.pair.row
        low, high = row.model.region.interval(row.x, eps)
        radius = row.radius(eps)
        cuts = self._first_cuts(low, high, radius)
        deep = -max(cut.minimum(low, high) for cut in cuts)
        smaller = min(cap(cut, low, high, row.model.white.w)[1] for cut in cuts)
        return _levels(deep, self._first.rest(radius), smaller / radius)

    def passes(self, eps: float) -> bool:
        """Is the margin positive over the region of radius eps?"""
        row = self._first.pair.row
        region, w, unit = row.model.region, row.model.white.w, row.model.region.scale.numpy()
        low, high = region.interval(row.x, eps)
        centre, radius, order = np.zeros(len(low)), row.radius(eps), self._first
        cuts = self._first_cuts(low, high, radius)
        width = float((high - low).max())
        self.trail = [Step(order.pair, radius, width, None)]
        for _ in range(_MOST_LEVELS):
            deep = -max(cut.minimum(low - centre, high - centre) for cut in cuts)
            if deep < 0:
                return True
            found = [cap(cut, low - centre, high - centre, w) for cut in cuts]
            step, smaller = min(found, key=lambda item: item[1])
            rest = order.rest(radius)
            if not _levels(deep, rest, smaller / radius) < _HOPELESS:
                break
            at = row.x + (centre + step) * unit
            # The centre in exact arithmetic is the rounded one.
            rounded = np.divide(at - row.x, unit, out=np.zeros_like(at), where=unit > 0)
            radius = smaller + float(np.sqrt(w @ (rounded - centre - step) ** 2)) * INFLATE
            centre, moved = rounded, row.moved(at)
            if isinstance(moved.derivatives, JetPath):
                break  # no good eigenvectors there: not worth the time
            order = self._again(moved.pair(order.pair.rival), radius, rest - deep)
            cuts, there = self._cuts(order, low - centre, high - centre, radius)
            self.trail.append(Step(order.pair, radius, width, there))
        return False

    def _first_cuts(self, low: Array, high: Array, radius: float) -> list[Minorant]:
        pair = self._first.pair
        self._box = self._box or BoxQuadratic(pair, low, high)
        return self._linear(self._first, self._box, low, high, radius)

    @staticmethod
    def _linear(order: Order, box: BoxQuadratic, low: Array, high: Array, radius: float) -> list[Minorant]:
        """Linear functions below the margin within the box and |y| <= radius: theorem 3 and the rest."""
        pair = order.pair
        level = pair.margin - order.rest(radius) - pair.value_slack(float((high - low).max()))
        found = [box.minorant(low, high, tilt) for tilt in _TILTS]
        return [Minorant(linear.constant + level, linear.slopes) for linear in found]

    def _cuts(
        self, order: Order, low: Array, high: Array, radius: float
    ) -> tuple[list[Minorant], Pair | None]:
        """The same, and one that touches the margin where it may help; with the point where it does."""
        pair = order.pair
        cuts = self._linear(order, BoxQuadratic(pair, low, high, _ROUNDS), low, high, radius)
        bend = order.bend(radius)
        if not 4 * bend * radius**2 < _TOO_BENT * self._first.pair.margin:
            return cuts, None
        tangent = touching(pair, BoxQuadratic(pair, low, high, _ROUNDS, bend), low, high, radius)
        return ([*cuts, tangent.linear], tangent.there) if tangent is not None else (cuts, None)


def _levels(deep: float, rest: float, shrinkage: float) -> float:
    """How many times the radius must shrink for the bound, now -deep, to be positive; a guess, no bound.

    What is charged beyond the quadratic terms falls like a power of the radius; the rest of the bound stays.
    """
    if deep < 0:
        return 0.0
    share = deep / (_OPTIMISM * rest)
    if share >= 1 or shrinkage >= 1:
        return np.inf
    return float(np.log1p(-share) / (_POWER * np.log(shrinkage)))


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

"""Second order: linear and quadratic terms together, the rest by the best remainder.

docs/theory/certificates.md, theorems 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mlayer.certificates.bounds.quadratic_terms import BallQuadratic, BoxQuadratic
from mlayer.certificates.bounds.remainder import ReadoutRemainder, norm_curvature, norm_remainder
from mlayer.certificates.problem.expansion import Pair

if TYPE_CHECKING:
    from mlayer.certificates.bounds.of_pair import Bounds

# The shift of the quadratic bound is fitted again when the radius has moved by more than this factor: tightly
# where a radius is to be found (2e-4 is its tolerance, and the bound changes less than the radius), loosely
# where many radii are tried only to see which are promising.
_REFIT = 1.003
_REFIT_LOOSELY = 1.15
# The remainder is mostly a tenth below the one from few nodes: where it would have to be less than this part,
# it is not computed.
_FINE_SHARE = 0.85


class SecondOrder:
    """The bound for one pair, with what it computes once."""

    name, first_cap_trial = "second_order", 1.0

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._ball: BallQuadratic | None = None
        self._box: BoxQuadratic | None = None
        self._plain: BoxQuadratic | None = None
        self._fitted_at = 0.0
        self._remainder: ReadoutRemainder | None = None
        self._level = math.nan, math.nan  # the last eps and `plain_level` there
        self._ceiling = math.nan, math.nan  # likewise

    def quadratic_terms(self, eps: float) -> float:
        """Lower bound of the linear and quadratic terms over the region."""
        row = self.pair.row
        if row.region.norm == "l2":
            self._ball = self._ball or BallQuadratic(self.pair)
            return self._ball.lower(eps)
        return self.box(eps, _REFIT).lower(*row.interval(eps))

    def box(self, eps: float, within: float = _REFIT_LOOSELY) -> BoxQuadratic:
        """The quadratic bound, fitted within this factor of the radius (L-infinity)."""
        row = self.pair.row
        away = max(eps / self._fitted_at, self._fitted_at / eps) if self._fitted_at else math.inf
        if self._box is None or away > within:
            low, high = row.interval(eps)
            self._box, self._fitted_at = BoxQuadratic(self.pair, low, high), eps
        return self._box

    @property
    def readout(self) -> ReadoutRemainder:
        """The remainder with the readout inside."""
        self._remainder = self._remainder or ReadoutRemainder(self.pair)
        return self._remainder

    def wants_readout(self, eps: float) -> bool:
        """Whether `quickly_passes` will compute the remainder with the readout inside."""
        return (
            self._remainder is None
            and self._readout_may_do(eps)
            and 0 < self.plain_level(eps) <= min(self._plain_rest(eps), self._coarse_or_inf(eps))
        )

    def _coarse_or_inf(self, eps: float) -> float:
        """`coarse_rest` of the second order, infinite where it is unknown."""
        unknown = self.pair.coarse is None
        return math.inf if unknown else self.coarse_rest(self.pair.row.radius(eps), 2)

    def _readout_may_do(self, eps: float) -> bool:
        """Whether the remainder may be small enough, by the one from few nodes."""
        least = _FINE_SHARE * self.coarse_rest(self.pair.row.radius(eps), 2)
        return self.ceiling(eps) > least and self.plain_level(eps) > least

    def ceiling(self, eps: float) -> float:
        """The linear and quadratic terms in a corner: no lower bound of them is above."""
        if self._ceiling[0] != eps:
            pair, row = self.pair, self.pair.row
            if row.region.norm == "l2":
                length = float(np.linalg.norm(pair.slopes))
                step = pair.slopes * (-eps / length if length > 0 else 0.0)
            else:
                low, high = row.interval(eps)
                step = np.where(pair.slopes > 0, low, high)
            y = step @ row.model.white.rows
            self._ceiling = eps, pair.margin + float(pair.first @ y) + float(y @ pair.second @ y)
        return self._ceiling[1]

    def coarse_rest(self, radius: float, order: int) -> float:
        """A bound of the terms beyond an order, 2 or 3, by the remainder from few nodes; 0 if unknown."""
        if self.pair.coarse is None:
            return 0.0
        remainder = ReadoutRemainder(self.pair, self.pair.coarse)
        return remainder(radius, order + 1) + self.pair.tensor_slack(radius, order)

    def set_readout(self, remainder: ReadoutRemainder) -> None:
        """Take a remainder that was computed together with those of other rivals."""
        self._remainder = remainder

    def remainder(self, radius: float, K: int) -> float:
        """The smaller of the two remainders from order K on."""
        by_norms = norm_remainder(self.pair, radius, K)
        return 0.0 if by_norms == 0 else min(by_norms, self.readout(radius, K))

    def remainder_curvature(self, radius: float, K: int) -> float:
        """Half the second derivative of the terms from order K on, at most (theorem 7)."""
        by_norms = norm_curvature(self.pair, radius, K)
        return 0.0 if by_norms == 0 else min(by_norms, self.readout.curvature(radius, K))

    def rest(self, radius: float) -> float:
        """A bound of how far the terms beyond the quadratic ones fall below 0, rounding included."""
        pair = self.pair
        return self.remainder(radius, 3) + pair.tensor_slack(radius, 2)

    def rests(self, radius: float) -> Iterator[float]:
        """Such bounds, from cheap to expensive; the last one is `rest`."""
        by_norms = norm_remainder(self.pair, radius, 3)
        if by_norms > 0:
            yield by_norms + self.pair.tensor_slack(radius, 2)
        yield self.rest(radius)

    def curvature(self, radius: float) -> float:
        """Half the second derivative of the margin is at least H minus this, rounding included."""
        return self.remainder_curvature(radius, 3) + self.curvature_slack(radius)

    def curvature_slack(self, radius: float) -> float:
        """Rounding of H, as a norm."""
        return self.pair.tensor_slack(radius, 2) / radius**2 if radius > 0 else 0.0

    def quickly_passes(self, eps: float) -> bool:
        """Whether a weaker bound, at a fraction of the cost, is positive; for rivals far from binding."""
        pair, row = self.pair, self.pair.row
        radius, rest = row.radius(eps), self._plain_rest(eps)
        if row.region.norm == "linf":
            # The two terms apart: no shift to fit.
            level = pair.margin - pair.value_slack(eps)
            if level + pair.linear_term(eps) - pair.fall * radius**2 - rest > 0:
                return True
        if self.ceiling(eps) > rest and self.plain_level(eps) > rest:
            return True
        # The readout's remainder is more expensive: only where it can help.
        may_do = self.ceiling(eps) > 0 and self._readout_may_do(eps) and self.plain_level(eps) > 0
        return may_do and (
            self.plain_level(eps) > self._coarse_or_inf(eps) or self.plain_level(eps) > self.rest(radius)
        )

    def _plain_rest(self, eps: float) -> float:
        radius = self.pair.row.radius(eps)
        return norm_remainder(self.pair, radius, 3) + self.pair.tensor_slack(radius, 2)

    def plain_level(self, eps: float) -> float:
        """A lower bound of the margin without what is beyond the quadratic terms; no shift is fitted."""
        if self._level[0] != eps:
            pair, row = self.pair, self.pair.row
            level = pair.margin - pair.value_slack(eps)
            if row.region.norm == "l2":
                level += self.quadratic_terms(eps)
            else:
                low, high = row.interval(eps)
                self._plain = self._plain or BoxQuadratic(pair, low, high, rounds=1)
                level += self._plain.lower(low, high)
            self._level = eps, level
        return self._level[1]

    def level(self, eps: float) -> float:
        """The same with a fitted shift."""
        return self.pair.margin + self.quadratic_terms(eps) - self.pair.value_slack(eps)

    def lower(self, eps: float) -> float:
        """A lower bound of the margin over the region of radius eps."""
        pair, radius = self.pair, self.pair.row.radius(eps)
        return pair.margin + self.quadratic_terms(eps) - self.rest(radius) - pair.value_slack(eps)


def build(bounds: Bounds) -> SecondOrder:
    """The bound of a pair."""
    return SecondOrder(bounds.pair)

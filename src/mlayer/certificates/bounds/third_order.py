"""Third order: the cubic tensor by its norm, remainders from the fourth order on.

docs/theory/certificates.md, theorem 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlayer.certificates.bounds.cubic_norm import flat_norm, symmetric_norm
from mlayer.certificates.bounds.second_order import SecondOrder

if TYPE_CHECKING:
    from mlayer.certificates.bounds.of_pair import Bounds

# The part of the margin that the cubic term must take before its norm is computed from the symmetrized form,
# which gains a tenth of it and costs 10 ms (n = 20, d = 35): below, a hundredth of the margin is at stake.
_SYMMETRIZE_FROM = 0.1


class ThirdOrder:
    """The bound for one pair, on top of its second-order bound."""

    name, first_cap_trial = "third_order", 0.985

    def __init__(self, second: SecondOrder, symmetrize: bool = True) -> None:
        self.second, self.pair = second, second.pair
        self._norm: float | None = None  # the best one so far
        self._may_symmetrize = symmetrize  # at other centers the simple norm is enough

    def cubic_norm(self, radius: float) -> float:
        """C with |C[y, y, y]| <= c |y|^3."""
        if self._symmetrizes(radius):
            self._norm, self._may_symmetrize = symmetric_norm(self.pair.third), False
        return self._known_norm

    @property
    def _known_norm(self) -> float:
        if self._norm is None:
            self._norm = flat_norm(self.pair.third)
        return self._norm

    def _symmetrizes(self, radius: float) -> bool:
        return self._may_symmetrize and self._known_norm * radius**3 > _SYMMETRIZE_FROM * self.pair.margin

    def rest(self, radius: float) -> float:
        """A bound of how far the terms beyond the quadratic ones fall below 0, rounding included."""
        return self._rest_with(self.cubic_norm(radius), radius)

    def _rest_with(self, norm: float, radius: float) -> float:
        return norm * radius**3 + self.second.remainder(radius, 4) + self.pair.tensor_slack(radius, 3)

    def coarse_rest(self, radius: float) -> float:
        """Such a bound by the remainder from few nodes; infinite where that is unknown."""
        if self.pair.coarse is None:
            return math.inf
        return self._known_norm * radius**3 + self.second.coarse_rest(radius, 3)

    def rests(self, radius: float) -> Iterator[float]:
        """Such bounds, from cheap to expensive; the last one is `rest`."""
        yield from self.second.rests(radius)
        if self._symmetrizes(radius):
            yield self._rest_with(self._known_norm, radius)
        yield self.rest(radius)

    def curvature(self, radius: float) -> float:
        """Half the second derivative of the margin is at least H minus this, rounding included."""
        cubic = 3 * self.cubic_norm(radius) * radius
        return cubic + self.second.remainder_curvature(radius, 4) + 6 * self._slack(radius)

    def _slack(self, radius: float) -> float:
        return self.pair.tensor_slack(radius, 3) / radius**2 if radius > 0 else 0.0

    def lower(self, eps: float) -> float:
        """A lower bound of the margin over the region of radius eps."""
        pair, radius = self.pair, self.pair.row.radius(eps)
        terms = self.second.quadratic_terms(eps) - self.rest(radius)
        return pair.margin + terms - pair.value_slack(eps)


def build(bounds: Bounds) -> ThirdOrder:
    """The bound of a pair."""
    return ThirdOrder(bounds["second_order"])

"""Fourth order: the quartic tensor by the least eigenvalue of its form, remainders from the fifth order on.

docs/theory/certificates.md, theorem 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlayer.certificates.bounds.quartic_tensor import Quartic
from mlayer.certificates.bounds.third_order import ThirdOrder

if TYPE_CHECKING:
    from mlayer.certificates.bounds.of_pair import Bounds


class FourthOrder:
    """The bound for one pair, on top of its third-order bound."""

    name, first_cap_trial = "fourth_order", 0.97

    def __init__(self, third: ThirdOrder) -> None:
        self.third, self.pair = third, third.pair
        self._quartic: Quartic | None = None

    def _fall(self) -> float:
        """c_4 with Q[y, y, y, y] >= -c_4 |y|^4, rounding and quadrature included; inf if there is none."""
        if self._quartic is None:
            # Accurate to three hundredths of what the remainder would charge for the same term.
            readout = self.third.second.readout
            self._quartic = Quartic(self.pair, 0.03 * readout.size_of_order(4))
        return self._quartic.fall

    def rest(self, radius: float) -> float:
        """A bound of how far the terms beyond the quadratic ones fall below 0, rounding included."""
        third = self.third
        cubic, fall = third.cubic_norm(radius) * radius**3, self._fall() * radius**4
        exact = cubic + fall + third.second.remainder(radius, 5) + self.pair.tensor_slack(radius, 3)
        return min(exact, third.rest(radius))

    def rests(self, radius: float) -> Iterator[float]:
        """Such bounds, from cheap to expensive; the last one is `rest`."""
        yield from self.third.rests(radius)
        yield self.rest(radius)

    def curvature(self, radius: float) -> float:
        """Half the second derivative of the margin is at least H minus this, rounding included."""
        third = self.third
        cubic, fall = 3 * third.cubic_norm(radius) * radius, 6 * self._fall() * radius**2
        slack = 6 * self.pair.tensor_slack(radius, 3) / radius**2 if radius > 0 else 0.0
        exact = cubic + fall + third.second.remainder_curvature(radius, 5) + slack
        return min(exact, third.curvature(radius))

    def passes(self, eps: float) -> bool:
        """Whether `lower` is positive; without the quartic tensor where it cannot be."""
        third, pair, radius = self.third, self.pair, self.pair.row.radius(eps)
        level = pair.margin + third.second.quadratic_terms(eps) - pair.value_slack(eps)
        without = third.cubic_norm(radius) * radius**3 + third.second.remainder(radius, 5)
        if not level > min(without, third.rest(radius)):
            return False
        return self.lower(eps) > 0

    def lower(self, eps: float) -> float:
        """A lower bound of the margin over the region of radius eps."""
        pair, radius = self.pair, self.pair.row.radius(eps)
        terms = self.third.second.quadratic_terms(eps) - self.rest(radius)
        return pair.margin + terms - pair.value_slack(eps)


def build(bounds: Bounds) -> FourthOrder:
    """The bound of a pair."""
    return FourthOrder(bounds["third_order"])

"""Third order (T4): the cubic tensor by its norm, remainders from the fourth order on.

docs/theory/certificates.md, theorem 5.
"""

from __future__ import annotations

from mlayer.certificates.cubic import flat_norm, symmetric_norm
from mlayer.certificates.second_order import SecondOrder

# The cubic term is bounded more carefully once it takes more than this part of the margin.
_WORTH_IT = 0.1


class ThirdOrder:
    """The bound for one pair, on top of its second-order bound."""

    name = "third_order"

    def __init__(self, second: SecondOrder, careful: bool = True) -> None:
        self.second, self.pair = second, second.pair
        self._norm: float | None = None
        self._careful = not careful  # at other centres the simple norm will do

    def cubic_norm(self, radius: float) -> float:
        """C with |C[y, y, y]| <= c |y|^3."""
        pair = self.pair
        if self._norm is None:
            self._norm = flat_norm(pair.third)
        if not self._careful and self._norm * radius**3 > _WORTH_IT * pair.margin:
            self._norm, self._careful = symmetric_norm(pair.third), True
        return self._norm

    def rest(self, radius: float) -> float:
        """What lies beyond the quadratic terms is at least minus this, rounding included."""
        cubic = self.cubic_norm(radius) * radius**3
        return cubic + self.second.remainder(radius, 4) + self.pair.tensor_slack(radius, 3)

    def bend(self, radius: float) -> float:
        """Half the second derivative of the margin is at least H minus this, rounding included."""
        cubic = 3 * self.cubic_norm(radius) * radius
        return cubic + self.second.remainder_bend(radius, 4) + 6 * self._slack(radius)

    def _slack(self, radius: float) -> float:
        return self.pair.tensor_slack(radius, 3) / radius**2 if radius > 0 else 0.0

    def lower(self, eps: float) -> float:
        """A lower bound of the margin over the region of radius eps."""
        pair, radius = self.pair, self.pair.row.radius(eps)
        terms = self.second.quadratic_terms(eps) - self.rest(radius)
        return pair.margin + terms - pair.value_slack(eps)

"""Third order (T4): the cubic tensor by its norm, remainders from the fourth order on.

docs/theory/certificates.md, theorem 5.
"""

from __future__ import annotations

from mlayer.certificates.cubic import flat_norm, symmetric_norm
from mlayer.certificates.second_order import SecondOrder

# The cubic term is bounded more carefully once it takes more than this part of the margin.
_WORTH_IT = 0.02


class ThirdOrder:
    """The bound for one pair, on top of its second-order bound."""

    def __init__(self, second: SecondOrder) -> None:
        self.second = second
        self._norm: float | None = None
        self._careful = False

    def cubic_norm(self, radius: float) -> float:
        """C with |C[y, y, y]| <= c |y|^3."""
        pair = self.second.pair
        if self._norm is None:
            self._norm = flat_norm(pair.third)
        if not self._careful and self._norm * radius**3 > _WORTH_IT * pair.margin:
            self._norm, self._careful = symmetric_norm(pair.third), True
        return self._norm

    def lower(self, eps: float) -> float:
        """A lower bound of the margin over the region of radius eps."""
        pair = self.second.pair
        radius = pair.row.radius(eps)
        slack = pair.value_slack(eps) + pair.tensor_slack(radius, 3)
        terms = self.second.quadratic_terms(eps) - self.cubic_norm(radius) * radius**3
        return pair.margin + terms - self.second.remainder(radius, 4) - slack

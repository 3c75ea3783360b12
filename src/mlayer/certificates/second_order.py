"""Second order (E/S3): linear and quadratic terms together, the rest by the best remainder.

docs/theory/certificates.md, theorems 3 and 4.
"""

from __future__ import annotations

from mlayer.certificates.expansion import Pair
from mlayer.certificates.quadratic import BallQuadratic, BoxQuadratic
from mlayer.certificates.remainder import ReadoutRemainder, norm_remainder

# The shift of the quadratic bound is fitted again when the radius has moved by more than this factor.
_REFIT = 1.15


class SecondOrder:
    """The bound for one pair, with what it computes once."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._ball: BallQuadratic | None = None
        self._box: BoxQuadratic | None = None
        self._plain: BoxQuadratic | None = None
        self._fitted_at = 0.0
        self._remainder: ReadoutRemainder | None = None

    def quadratic_terms(self, eps: float) -> float:
        """Lower bound of the linear and quadratic terms over the region."""
        row = self.pair.row
        if row.model.region.norm == "l2":
            self._ball = self._ball or BallQuadratic(self.pair)
            return self._ball.lower(eps)
        away = max(eps / self._fitted_at, self._fitted_at / eps) if self._fitted_at else 2 * _REFIT
        if self._box is None or away > _REFIT:
            self._box, self._fitted_at = BoxQuadratic(self.pair, eps), eps
        return self._box.lower(*row.model.region.interval(row.x, eps))

    def remainder(self, radius: float, K: int) -> float:
        """The smaller of the two remainders from order K on."""
        if self.pair.row.model.constants.delta_F == 0:
            return 0.0
        self._remainder = self._remainder or ReadoutRemainder(self.pair)
        return min(norm_remainder(self.pair, radius, K), self._remainder(radius, K))

    def quick_lower(self, eps: float) -> float:
        """A weaker bound at a fraction of the cost, for rivals that are far from binding."""
        pair, row = self.pair, self.pair.row
        if row.model.region.norm == "l2":
            terms = self.quadratic_terms(eps)
        else:
            self._plain = self._plain or BoxQuadratic(pair, eps, rounds=1)
            terms = self._plain.lower(*row.model.region.interval(row.x, eps))
        radius = row.radius(eps)
        slack = pair.value_slack(eps) + pair.tensor_slack(radius, 2)
        return pair.margin + terms - norm_remainder(pair, radius, 3) - slack

    def lower(self, eps: float) -> float:
        """A lower bound of the margin over the region of radius eps."""
        pair, radius = self.pair, self.pair.row.radius(eps)
        slack = pair.value_slack(eps) + pair.tensor_slack(radius, 2)
        return pair.margin + self.quadratic_terms(eps) - self.remainder(radius, 3) - slack

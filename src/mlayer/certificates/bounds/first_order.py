"""First order: the exact linear term, the rest by norms. docs/theory/certificates.md, theorem 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlayer.certificates.bounds.remainder import norm_remainder
from mlayer.certificates.problem.expansion import Pair

if TYPE_CHECKING:
    from mlayer.certificates.bounds.of_pair import Bounds


class FirstOrder:
    """The bound for one pair."""

    name = "first_order"

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def lower(self, eps: float) -> float:
        """A lower bound of the margin over the region of radius eps."""
        pair = self.pair
        remainder = norm_remainder(pair, pair.row.radius(eps), 2)
        return pair.margin + pair.linear_term(eps) - remainder - pair.value_slack(eps)


def build(bounds: Bounds) -> FirstOrder:
    """The bound of a pair."""
    return FirstOrder(bounds.pair)

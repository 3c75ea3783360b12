"""First order: the exact linear term, the rest by norms. docs/theory/certificates.md, theorem 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlayer.certificates.bounds.remainder import norm_remainder
from mlayer.certificates.problem.expansion import Pair
from mlayer.certificates.problem.margins import Margins, Number

if TYPE_CHECKING:
    from mlayer.certificates.bounds.of_pair import Bounds


def first_order_lower(margins: Margins[Number], linear: Number, eps: float) -> Number:
    """Lower bounds of the margins over the region of radius eps, from the minimum of their linear terms."""
    remainder = norm_remainder(margins, margins.row.radius(eps), 2)
    return margins.margin + linear - remainder - margins.value_slack(eps)


class FirstOrder:
    """The bound for one pair."""

    name = "first_order"

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def lower(self, eps: float) -> float:
        """A lower bound of the margin over the region of radius eps."""
        return first_order_lower(self.pair, self.pair.linear_term(eps), eps)


def build(bounds: Bounds) -> FirstOrder:
    """The bound of a pair."""
    return FirstOrder(bounds.pair)

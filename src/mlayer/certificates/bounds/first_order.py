"""First order: the exact linear term, the rest by norms. docs/theory/certificates.md, theorem 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mlayer.certificates.bounds.quadratic_terms import linear_minimum
from mlayer.certificates.bounds.remainder import norm_remainder
from mlayer.certificates.problem.expansion import Pair

if TYPE_CHECKING:
    from mlayer.certificates.bounds.of_pair import Bounds


def linear_term(pair: Pair, eps: float) -> float:
    """The exact minimum of the linear term over the region."""
    row = pair.row
    if row.model.region.norm == "l2":
        return -eps * float(np.linalg.norm(pair.slopes))
    return linear_minimum(pair.slopes, *row.model.region.interval(row.x, eps))


class FirstOrder:
    """The bound for one pair."""

    name = "first_order"

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def lower(self, eps: float) -> float:
        """A lower bound of the margin over the region of radius eps."""
        pair = self.pair
        remainder = norm_remainder(pair, pair.row.radius(eps), 2)
        return pair.margin + linear_term(pair, eps) - remainder - pair.value_slack(eps)


def build(bounds: Bounds) -> FirstOrder:
    """The bound of a pair."""
    return FirstOrder(bounds.pair)

"""First order (C): the exact linear term, the rest by norms. docs/theory/certificates.md, theorem 2."""

from __future__ import annotations

import numpy as np

from mlayer.certificates.expansion import Pair
from mlayer.certificates.quadratic import linear_minimum
from mlayer.certificates.remainder import norm_remainder


def linear_term(pair: Pair, eps: float) -> float:
    """The exact minimum of the linear term over the region."""
    row = pair.row
    if row.model.region.norm == "l2":
        return -eps * float(np.linalg.norm(pair.slopes))
    return linear_minimum(pair.slopes, *row.model.region.interval(row.x, eps))


def lower(pair: Pair, eps: float) -> float:
    """A lower bound of the margin over the region of radius eps."""
    remainder = norm_remainder(pair, pair.row.radius(eps), 2)
    return pair.margin + linear_term(pair, eps) - remainder - pair.value_slack(eps)

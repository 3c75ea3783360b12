"""Prediction intervals from the errors on rows that a fit has not seen (split conformal prediction).

If new rows come from the same source as those rows, an interval of half-width q holds the truth with a
probability of at least ``coverage``, where q is the k-th smallest of n absolute errors, k = ceil((n + 1)
coverage): Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World" (2005); Lei et al., J. Am.
Stat. Assoc. 113 (2018). For small tables the errors of training rows that were held out in turn are added,
each from a fit to fewer rows, which makes intervals rather wider: q then depends less on which few rows
were held out (cross-conformal prediction: Vovk, Ann. Math. Artif. Intell. 74, 2015); unless those errors are
clearly larger than the fit's.
"""

from __future__ import annotations

import math

import numpy as np

from mlayer.errors import ArgumentError
from mlayer.numerics.arrays import Array

# Errors of fits to fewer rows are alike if their median is larger by a smaller factor than this.
_ALIKE = 1.5
# Fewer errors leave the quantile to chance.
_FEWEST_ALONE = 40


def half_width(errors: Array, coverage: float) -> float:
    """Half of the width of intervals, from absolute errors; infinite if these are too few for the coverage.

    >>> half_width(np.arange(1.0, 20.0), 0.9)
    18.0
    """
    if not 0 < coverage < 1:
        raise ArgumentError("coverage", "a number between 0 and 1", f"{coverage:g}", "For example 0.9.")
    place = math.ceil((len(errors) + 1) * coverage)
    return float(np.sort(errors)[place - 1]) if place <= len(errors) else math.inf


def pooled(errors: Array, others: Array) -> Array:
    """Errors of a fit together with those of fits to fewer rows, unless these are clearly larger.

    On a law without noise a fit to two thirds of the rows may err several times as much. The errors of the
    fit itself are then enough, if they are some dozens.

    >>> len(pooled(np.full(50, 1.0), np.full(100, 1.2))), len(pooled(np.full(50, 1.0), np.full(100, 4.0)))
    (150, 50)
    """
    enough = len(errors) >= _FEWEST_ALONE and len(others) > 0
    if enough and float(np.median(others)) > _ALIKE * float(np.median(errors)):
        return errors
    return np.concatenate([errors, others])


def measured_coverage(errors: Array, coverage: float, seed: int = 0) -> float | None:
    """The share of rows inside intervals made from the other half of them; None for fewer than 20 rows."""
    if len(errors) < 20:
        return None
    order = np.random.default_rng(seed).permutation(len(errors))
    halves = errors[order[::2]], errors[order[1::2]]
    inside = [(one <= half_width(other, coverage)).sum() for one, other in (halves, halves[::-1])]
    return float(sum(inside) / len(errors))

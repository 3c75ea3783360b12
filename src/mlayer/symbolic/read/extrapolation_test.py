"""Whether a formula that is fitted to the middle of the data predicts its ends, as a law does.

For each input the rows below and above a quantile are the ends. The numbers of the formula are fitted to
the rows between them and the errors at the ends are compared with those of the fit to all rows, plus what
the uncertainty of the numbers explains (the predictive test of G. C. Chow, Econometrica 28 (1960) 591). A
law misses the ends by no more than that. A polynomial that follows another curve bends to the ends as soon
as it sees them, and misses them by many times as much if it does not.

The refit is one step of Gauss and Newton from the numbers of the formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlayer.numerics.arrays import Array
from mlayer.symbolic.read.parameters import FormulaNumbers

# The part of the rows at each end of an input, and the distinct values that an input with ends has.
_END = 0.15
_VALUES = 12
_MOST_ROWS = 3000
# Of the target's deviation: errors below it are those of rounding.
_FLOOR = 1e-6
_RANK = 1e-9
# How many times what is expected the errors at the ends may be.
MISSED = 2.0
# The part of the target's deviation that the uncertainty of the numbers may make up at the ends.
_UNCERTAIN = 0.5


@dataclass(frozen=True)
class Ends:
    """The quality of the prediction of the ends of one input.

    Attributes:
        variable: the name of the input.
        error: root mean square error at its ends of the formula refitted to the rows between them.
        expected: what it would be for a law.
        largest: what it may be at most, if the rows between the ends determine the numbers of the formula.
    """

    variable: str
    error: float
    expected: float
    largest: float

    @property
    def ratio(self) -> float:
        """The error relative to the expected one; above MISSED the formula does not reach the ends."""
        return self.error / min(self.expected, self.largest)

    @property
    def reached(self) -> bool:
        """Whether the ends are predicted as a law would."""
        return self.ratio <= MISSED


def worst_ends(expression: Any, variables: list[Any], points: Array, target: Array) -> Ends | None:
    """The input whose ends are predicted worst, or None if no input has ends that can be held out.

    The points, (count, variables), have a column for each of the variables of the formula.
    """
    if len(points) > _MOST_ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(len(points), _MOST_ROWS, replace=False))
        points, target = points[chosen], target[chosen]
    formula = FormulaNumbers(expression, variables)
    slopes = formula.slopes(points, formula.start)
    left = target - formula.at(points, formula.start)
    usable = np.isfinite(slopes).all(1) & np.isfinite(left)
    slopes, left, points = slopes[usable], left[usable], points[usable]
    if not len(left):
        return None
    slopes = slopes / np.maximum(np.sqrt((slopes**2).mean(0)), 1e-300)
    best = left - slopes @ np.linalg.lstsq(slopes, left, rcond=_RANK)[0]
    deviation = float(target.std())
    floor = _FLOOR * deviation
    found = []
    for k, symbol in enumerate(variables):
        if symbol not in expression.free_symbols or len(np.unique(points[:, k])) < _VALUES:
            continue
        low, high = np.quantile(points[:, k], [_END, 1 - _END])
        middle = (points[:, k] >= low) & (points[:, k] <= high)
        ends = _ends(slopes, left, best, middle, floor)
        if ends is not None:
            largest = math.hypot(float(best.std()), _UNCERTAIN * deviation)
            found.append(Ends(str(symbol), *ends, largest))
    return max(found, key=lambda each: each.ratio, default=None)


def _ends(slopes: Array, left: Array, best: Array, middle: Any, floor: float) -> tuple[float, float] | None:
    """The error at the ends after a fit to the middle, and the expected one; None with too few rows."""
    U, sizes, Vh = np.linalg.svd(slopes[middle], full_matrices=False)
    kept = sizes > _RANK * max(float(sizes[0]), 1e-300)
    rank = int(kept.sum())
    free = int(middle.sum()) - rank
    if free < rank or middle.all():
        return None
    onto = Vh[kept].T / sizes[kept]
    change = onto @ (U[:, kept].T @ left[middle])
    inside = left[middle] - slopes[middle] @ change
    noise = float(inside @ inside) / free
    missed = left[~middle] - slopes[~middle] @ change
    leverage = float(((slopes[~middle] @ onto) ** 2).sum(1).mean())
    expected = float((best[~middle] ** 2).mean()) + leverage * noise
    return math.sqrt(float((missed**2).mean())), math.sqrt(expected + floor**2)

"""The selection of terms of a linear model by the data, and of simple numbers for their coefficients.

Terms are dropped one after the other, each time the one whose loss costs the fit least, and the set with
the best score is kept: count * log(mean square) plus a price for each term that grows with the number of
candidates. Then coefficients are moved to simple fractions where the fit allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlayer.numerics.arrays import Array
from mlayer.symbolic.read.formula import simplest

_SIGMAS = 3.0
_LARGEST_DENOMINATOR = 100
# A batch of hopeless terms may go at once; the last ones one by one.
_HOPELESS = 2.0


@dataclass(frozen=True)
class Selection:
    """The chosen terms."""

    terms: list[int]  # numbers of the columns
    coefficients: Array  # of those terms
    errors: Array  # their standard errors
    score: float  # lower is better


def select(columns: Array, target: Array, floor: float, worth: float | None = None) -> Selection:
    """The best set of columns, (count, terms), for a target, (count,).

    A residual whose root mean square is below ``floor`` counts as 0. Where the target has no noise and any
    number of points would support a term, ``worth`` is what a term must gain in the logarithm of the error;
    None: by Schwarz's criterion, for noise.
    """
    count, total = columns.shape
    scales = np.sqrt((columns**2).mean(0))
    alive = [k for k in range(total) if scales[k] > 0]
    # One QR factorization; what follows works on its small triangle.
    R: Any = np.linalg.qr(np.column_stack([columns[:, alive] / scales[alive], target]), mode="r")
    triangle, right = R[:, :-1], R[:, -1]
    # Each of many candidates may fit by chance: the price of a term knows how many there were.
    price = math.log(count) + 2 * math.log(max(2, total)) if worth is None else 2 * count * worth
    best: Selection | None = None
    places = list(range(len(alive)))
    while True:
        chosen, inverse, rest = _solve(triangle[:, places], right)
        square = float(rest @ rest)
        mean = max(square / count + floor**2, np.finfo(np.float64).tiny)  # a target may be met to the bit
        score = count * math.log(mean) + price * len(places)
        if best is None or score <= best.score:
            variance = mean * count / max(1, count - len(places))
            columns_used = [alive[k] for k in places]
            spread = np.sqrt(variance * (inverse**2).sum(1))
            best = Selection(
                columns_used,
                chosen / scales[columns_used],
                spread / scales[columns_used],
                score,
            )
        if not places:
            return best
        cost = chosen**2 / np.maximum((inverse**2).sum(1), 1e-300) / mean
        order = np.argsort(cost)
        hopeless = int((cost < _HOPELESS).sum())
        drop = max(1, min(hopeless, len(places) // 10))
        gone = set(order[:drop].tolist())
        places = [place for k, place in enumerate(places) if k not in gone]


def _solve(triangle: Array, right: Array) -> tuple[Array, Array, Array]:
    """Least squares: the solution, the inverse of R, and what is left."""
    if triangle.shape[1] == 0:
        return np.zeros(0), np.zeros((0, 0)), right
    Q, R = np.linalg.qr(triangle)
    diagonal = np.abs(np.diag(R))
    weak = diagonal < 1e-11 * diagonal.max()
    if weak.any():  # dependent columns: a tiny ridge keeps the rest meaningful
        ridge = 1e-9 * diagonal.max() * np.eye(len(R))
        Q, R = np.linalg.qr(np.vstack([triangle, ridge]))
        Q = Q[: len(triangle)]
    inverse = np.linalg.inv(R)
    solution = inverse @ (Q.T @ right)
    return solution, inverse, right - triangle @ solution


def snapped(
    columns: Array, target: Array, selection: Selection, floor: float, worth: float | None = None
) -> list[float]:
    """The coefficients with those near a simple fraction moved there, the others refitted.

    Columns, target, floor and worth are those of :func:`select`; a fraction may cost as much as a term is
    worth. Fractions come as exactly the double nearest to them.
    """
    values = selection.coefficients.copy()
    count = len(target)
    used = columns[:, selection.terms]
    fixed: dict[int, float] = {}
    base = _residual(used, target, values) ** 2 + floor**2
    # A number that is moved by this many standard errors costs what a term is worth.
    sigmas = _SIGMAS if worth is None else math.sqrt(count * math.expm1(2 * worth))
    for k in np.argsort(np.abs(selection.errors / np.where(values != 0, values, 1))):
        width = max(sigmas * float(selection.errors[k]), 1e-12 * abs(float(values[k])))
        near = near_fraction(float(values[k]), width)
        if near is None:
            continue
        attempt = _refitted(used, target, fixed | {int(k): near})
        mean = _residual(used, target, attempt) ** 2 + floor**2
        # Each fixed number costs about one unit of count * log(mean square) if it is right.
        allowed = _SIGMAS**2 + len(fixed) if worth is None else 2 * count * worth * (1 + len(fixed))
        if count * math.log(mean / base) <= allowed:
            fixed[int(k)] = near
            values = attempt
    return [float(value) for value in values]


def near_fraction(value: float, width: float) -> float | None:
    """The simple fraction that lies within the width and would rarely lie there by chance, or None."""
    fraction = simplest(value, width)
    chance = 2 * width * fraction.denominator**2  # fractions at least so simple are about so dense
    if (
        fraction.denominator > _LARGEST_DENOMINATOR
        or (chance > 0.2 and fraction.denominator > 1)
        or chance > 1
    ):
        return None
    return float(fraction)


def _refitted(columns: Array, target: Array, fixed: dict[int, float]) -> Array:
    free = [k for k in range(columns.shape[1]) if k not in fixed]
    values = np.zeros(columns.shape[1])
    for k, value in fixed.items():
        values[k] = value
    if free:
        rest = target - columns @ values
        values[free] = np.linalg.lstsq(columns[:, free], rest, rcond=None)[0]
    return values


def _residual(columns: Array, target: Array, values: Sequence[float] | Array) -> float:
    return float(np.sqrt(np.mean((target - columns @ np.asarray(values)) ** 2)))

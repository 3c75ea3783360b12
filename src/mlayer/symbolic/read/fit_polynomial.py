"""A polynomial for a layer that has no exact one: Taylor's terms, thinned out and refitted."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from mlayer.errors import ArgumentError
from mlayer.nn import MLayer
from mlayer.numerics.arrays import Array, Flags
from mlayer.symbolic.parse.expressions import sympy_module
from mlayer.symbolic.parse.rationals import rational
from mlayer.symbolic.read.exact import term
from mlayer.symbolic.read.formula import Formula, LayerWeights
from mlayer.symbolic.read.taylor import check_size, is_small, shifted, taylor
from mlayer.symbolic.read.term_selection import select, snapped

_HIGHEST_DEGREE = 8
_MOST_CANDIDATES = 400
# A degree is judged by one row in this many, unless the rows are few.
_PARTS, _FEW = 5, 50
_CLEARLY = 0.97
# Of inputs, outputs and terms of a fit: sums of their products are numbers.
LARGEST = 1e75
_IN_VAIN = 3  # degrees without a gain: even functions gain at every second degree
# What a term of a layer's own formula must gain in the logarithm of its error.
_WORTH = 0.1
# Relative to the spread of the targets: what no fit is asked to explain.
_FLOOR = 1e-7


def fitted_polynomial(  # noqa: PLR0917 - one caller
    layer: MLayer,
    weights: LayerWeights,
    points: Array,
    targets: Array,
    symbols: list[Any],
    degree: int | None,
    tolerance: float | None,
    *,
    own: bool = False,
) -> Formula:
    """The sparse polynomial that fits the targets, its terms proposed by the layer's Taylor expansion.

    ``own``: the targets are the layer's outputs. They have no noise: a layer that has learned a law departs
    from it smoothly, and terms of high degree follow these departures on unseen points too. So each term must
    be worth it, however many points there are.
    """
    worth = _WORTH if own and degree is None else None
    variables = len(symbols)
    inside = (points.min(0) <= 0) & (points.max(0) >= 0)
    point = np.where(inside, 0.0, points.mean(0))
    if degree is None:
        degrees = [d for d in range(1, _HIGHEST_DEGREE + 1) if _affordable(variables, d, layer.matrix_size)]
        degrees = degrees or [1]
    else:
        check_size(variables, degree, layer.matrix_size)
        degrees = [degree]
    largest = float(np.abs(points).max())
    # Terms beyond it are not tried; of degree 1 there are none.
    fitting = [d for d in degrees if d * math.log10(max(largest, 1.0)) <= math.log10(LARGEST)]
    if not fitting and degrees[0] > 1:
        must_be = (
            f"small enough that terms of this degree are below {LARGEST:g}, for inputs up to {largest:.3g}"
        )
        raise ArgumentError("degree", must_be, str(degrees[0]), "Choose a smaller one.")
    degrees = fitting or degrees
    floors = [
        (tolerance or _FLOOR) * max(float(targets[:, m].std()), 1e-300) for m in range(layer.out_features)
    ]
    judge = _judges(len(points))
    best: list[tuple[float, int, list[tuple[int, ...]]] | None] = [None] * layer.out_features
    in_vain = 0
    for d in degrees:
        expansion = taylor(weights, point, d)
        improved = False
        for m in range(layer.out_features):
            candidates = _candidates(shifted(expansion[m], point), points, len(points))
            error, terms = _held_out_error(points, targets[:, m], candidates, judge, floors[m], worth)
            if worth is not None:
                error = max(error, floors[m]) * math.exp(worth * terms)
            before = best[m]
            # A higher degree must be clearly better, or as good with fewer terms: else the lower is simpler.
            fewer = before is not None and terms < before[1] and _CLEARLY * error <= before[0]
            if before is None or error < _CLEARLY * before[0] or fewer:
                best[m] = (error, terms, candidates)
                improved = True
        in_vain = 0 if improved else in_vain + 1
        done = all(b is not None and b[0] <= 2 * f for b, f in zip(best, floors, strict=True))
        if done or in_vain == _IN_VAIN:
            break
    expressions, square = [], 0.0
    for m, found in enumerate(best):
        assert found is not None  # there is a degree
        candidates = found[-1]
        columns = _columns(points, candidates)
        chosen = select(columns, targets[:, m], floors[m], worth)
        values = snapped(columns, targets[:, m], chosen, floors[m], worth)
        fit = columns[:, chosen.terms] @ np.array(values)
        square += float(((fit - targets[:, m]) ** 2).mean())
        written = (
            decimal_or_fraction(value, error) * term(candidates[k], symbols)
            for k, value, error in zip(chosen.terms, values, chosen.errors, strict=True)
        )
        expressions.append(sympy_module().Add(*written))
    return Formula(tuple(expressions), tuple(symbols), "taylor", math.sqrt(square / len(best)))


def _judges(count: int) -> Flags:
    """The rows that a degree is judged by; all, where they are few."""
    if count < _FEW:
        return np.ones(count, dtype=bool)
    return np.asarray(np.random.default_rng(0).permutation(count) % _PARTS == 0)


def _held_out_error(  # noqa: PLR0917 - one caller
    points: Array,
    target: Array,
    candidates: list[tuple[int, ...]],
    judge: Flags,
    floor: float,
    worth: float | None,
) -> tuple[float, int]:
    """Root mean square error on the judging rows of what the others choose, and how many terms that are."""
    learn = np.ones_like(judge) if judge.all() else ~judge
    columns = _columns(points, candidates)
    chosen = select(columns[learn], target[learn], floor, worth)
    left = target[judge] - columns[judge][:, chosen.terms] @ chosen.coefficients
    # Few rows judge themselves; then each term has a price.
    price = math.exp(len(chosen.terms) / len(target)) if judge.all() else 1.0
    return price * math.sqrt(float(np.mean(left**2))), len(chosen.terms)


def _affordable(variables: int, degree: int, n: int) -> bool:
    return math.comb(variables + degree, degree) <= 3000 and is_small(variables, degree, n)


def _candidates(polynomial: dict[tuple[int, ...], float], points: Array, count: int) -> list[tuple[int, ...]]:
    """The terms that matter most on the data, no more than the data can determine."""
    polynomial = _without_squares_of_flags(polynomial, points)
    most = max(1, min(_MOST_CANDIDATES, count // 3))
    powers = sorted(polynomial, key=lambda p: (sum(p), p))
    if len(powers) <= most:
        return powers
    effect = {p: abs(polynomial[p]) * float(np.sqrt((_columns(points, [p]) ** 2).mean())) for p in powers}
    return sorted(sorted(powers, key=lambda p: -effect[p])[:most], key=lambda p: (sum(p), p))


def _without_squares_of_flags(
    polynomial: dict[tuple[int, ...], float], points: Array
) -> dict[tuple[int, ...], float]:
    """Drop higher powers of columns of 0 and 1, which equal the first power."""
    flags = [bool(np.isin(column, (0.0, 1.0)).all()) for column in points.T]
    result: dict[tuple[int, ...], float] = {}
    for powers, value in polynomial.items():
        key = tuple(min(p, 1) if flag else p for p, flag in zip(powers, flags, strict=True))
        result[key] = result.get(key, 0.0) + value
    return result


def _columns(points: Array, powers: list[tuple[int, ...]]) -> Array:
    """The terms at the points; of many inputs most have the power 0, which costs nothing."""
    result = np.ones((len(points), len(powers)))
    for k, each in enumerate(powers):
        for j in np.flatnonzero(each):
            result[:, k] *= points[:, j] ** each[j]
    return result


def decimal_or_fraction(value: float, error: float) -> Any:
    """A fraction if the value is one, else a decimal with the digits that its error leaves."""
    near = Fraction(value).limit_denominator(100)
    if float(near) == value:
        return rational(near)
    digits = 6 if error <= 0 else max(2, min(12, math.ceil(math.log10(abs(value) / error)) + 1))
    return sympy_module().Float(f"{value:.{digits}g}", 15)

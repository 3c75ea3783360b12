"""A polynomial for a layer that has no exact one: Taylor's terms, thinned out and refitted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlayer.errors import ArgumentError
from mlayer.nn import MLayer
from mlayer.symbolic.formula import Array, Formula, Weights, combined
from mlayer.symbolic.read_exact import term
from mlayer.symbolic.reading import sympy_module
from mlayer.symbolic.selection import Selection, select, snapped
from mlayer.symbolic.taylor import check_size, shifted, taylor

_HIGHEST_DEGREE = 8
_MOST_CANDIDATES = 400
# Relative to the spread of the targets: what no fit is asked to explain.
_FLOOR = 1e-7


def fitted_polynomial(  # noqa: PLR0917 - one caller
    layer: MLayer,
    weights: Weights,
    points: Array,
    targets: Array,
    symbols: list[Any],
    degree: int | None,
    tolerance: float | None,
) -> Formula:
    """The sparse polynomial that fits the targets, its terms proposed by the layer's Taylor expansion."""
    variables = len(symbols)
    inside = (points.min(0) <= 0) & (points.max(0) >= 0)
    point = np.where(inside, 0.0, points.mean(0))
    if degree is None:
        degrees = [d for d in range(1, _HIGHEST_DEGREE + 1) if _affordable(variables, d, layer.matrix_size)]
        if not degrees:
            degrees = [1]
    else:
        check_size(variables, degree, layer.matrix_size)
        degrees = [degree]
    best: list[tuple[Selection, list[tuple[int, ...]]] | None] = [None] * layer.out_features
    floors = [
        (tolerance or _FLOOR) * max(float(targets[:, m].std()), 1e-300) for m in range(layer.out_features)
    ]
    expansion: list[dict[tuple[int, ...], float]] = []
    for d in degrees:
        expansion = taylor(weights, point, d)
        improved = False
        for m in range(layer.out_features):
            candidates = _candidates(shifted(expansion[m], point), points, len(points))
            chosen = select(_columns(points, candidates), targets[:, m], floors[m])
            before = best[m]
            if before is None or chosen.score < before[0].score - 1e-9:
                best[m] = (chosen, candidates)
                improved = True
        done = all(b is not None and b[0].residual <= 2 * f for b, f in zip(best, floors, strict=True))
        if done or (not improved and d >= 4):
            break
    expressions, square = [], 0.0
    for m, found in enumerate(best):
        if found is None:  # pragma: no cover - degrees is never empty
            raise ArgumentError("degree", "0 or more", str(degree), "For example 3.")
        chosen, candidates = found
        columns = _columns(points, candidates)
        values = snapped(columns, targets[:, m], chosen, floors[m])
        fit = columns[:, chosen.terms] @ np.array(values)
        square += float(((fit - targets[:, m]) ** 2).mean())
        expressions.append(
            combined(
                [
                    _number(value, error) * term(candidates[k], symbols)
                    for k, value, error in zip(chosen.terms, values, chosen.errors, strict=True)
                ]
            )
        )
    return Formula(tuple(expressions), tuple(symbols), "taylor", math.sqrt(square / len(best)))


def _affordable(variables: int, degree: int, n: int) -> bool:
    try:
        check_size(variables, degree, n)
    except ArgumentError:
        return False
    return math.comb(variables + degree, degree) <= 3000


def _candidates(polynomial: dict[tuple[int, ...], float], points: Array, count: int) -> list[tuple[int, ...]]:
    """The terms that matter most on the data, no more than the data can tell apart."""
    most = max(1, min(_MOST_CANDIDATES, count // 3))
    powers = sorted(polynomial, key=lambda p: (sum(p), p))
    if len(powers) <= most:
        return powers
    effect = {p: abs(polynomial[p]) * float(np.sqrt((_columns(points, [p]) ** 2).mean())) for p in powers}
    return sorted(sorted(powers, key=lambda p: -effect[p])[:most], key=lambda p: (sum(p), p))


def _columns(points: Array, powers: list[tuple[int, ...]]) -> Array:
    return np.stack([np.prod(points ** np.array(p), axis=1) for p in powers], 1)


def _number(value: float, error: float) -> Any:
    """A fraction if the value is one, else a decimal with the digits that its error leaves."""
    from fractions import Fraction

    sympy = sympy_module()
    near = Fraction(value).limit_denominator(100)
    if float(near) == value:
        return sympy.Rational(near.numerator, near.denominator)
    digits = 6 if error <= 0 else max(2, min(12, math.ceil(math.log10(abs(value) / error)) + 1))
    return sympy.Float(f"{value:.{digits}g}", 15)

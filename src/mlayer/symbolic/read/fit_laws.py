"""Laws that are no polynomials: exponentials, logarithms, roots, norms, quotients, bumps and saturations.

Three links turn a target into a sum of few terms: y itself with logarithms, roots and reciprocals of the
inputs, log y (products of powers and exponentials, Gaussian bumps) and 1 / y (quotients); powers of
quadratic forms (norms, distances) are in `mlayer.symbolic.read.fit_roots`. For one input there are also
exp(k x), tanh(k x + b), log(x + b), 1 / (x + b) and a Gaussian bump, times a number and with a constant,
from a grid of starts. All numbers are then refitted to y, and the best law by Schwarz's criterion is
proposed: `mlayer.symbolic.read.to_sympy` compares it with a polynomial or waves.

A product of powers alone, such as m v^2 / r, is a linear model in logarithms, so the columns that matter and
their exponents come from the same selection as the terms of a polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from mlayer.numerics.arrays import Array
from mlayer.symbolic.parse.expressions import sympy_module
from mlayer.symbolic.read.evaluate import values_at
from mlayer.symbolic.read.fit_polynomial import decimal_or_fraction
from mlayer.symbolic.read.fit_roots import rooted
from mlayer.symbolic.read.formula import Formula
from mlayer.symbolic.read.parameters import FormulaNumbers, Solution
from mlayer.symbolic.read.term_selection import select

_FEWEST = 20  # rows
_MOST_INPUTS = 6
_MOST_ROWS = 2000
_FLOOR = 1e-7
# The part of the rows with one sign that a logarithm or a reciprocal asks for: noise may change some.
_OF_ONE_SIGN = 0.8
# Terms smaller than this part of the largest are rounding.
_NOTHING = 1e-9
_CANDIDATES = 20  # of terms: each may fit by chance
# Of a link: terms besides the constant; more of them follow any curve.
_MOST_TERMS = 2
_NEAR = 0.1  # of an exponent to a multiple of one half
_LARGEST_EXPONENT = 6
_LARGEST_SHIFT = 600.0  # exponents of the factor that moves an exponential to the origin
# Changes of k x over the range of the data.
_RATES = tuple(sign * rate for rate in (0.3, 1.0, 3.0, 10.0, 30.0) for sign in (-1, 1))
# What is added to x, as a part of its range, beyond what makes it positive.
_SHIFTS = (0.003, 0.03, 0.3, 2.0)
# Of a step or a bump: its middle and its width as parts of the range.
_PLACES = tuple((middle, width) for middle in (0.0, 0.25, 0.5, 0.75, 1.0) for width in (0.05, 0.15, 0.4))


def fitted_law(points: Array, targets: Array, symbols: list[Any]) -> Formula | None:
    """The law that explains one target best, or None if there is none."""
    if targets.shape[1] != 1 or len(points) < _FEWEST:
        return None
    usable = [k for k in range(points.shape[1]) if len(np.unique(points[:, k])) > 2]
    if not usable or len(usable) > _MOST_INPUTS:
        return None
    target = targets[:, 0]
    floor = _FLOOR * float(target.std())
    few, wanted = points, target
    if len(points) > _MOST_ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(len(points), _MOST_ROWS, replace=False))
        few, wanted = points[chosen], target[chosen]
    best: tuple[float, FormulaNumbers, Solution] | None = None
    with np.errstate(all="ignore"):
        for expression in _proposals(few, wanted, symbols, usable):
            form = FormulaNumbers(expression, symbols)
            found = form.solve(few, wanted)
            if found is None or not found.residual < 0.5 * float(wanted.std()):
                continue
            score = _score(found.residual**2 + floor**2, len(wanted), found.rank)
            if best is None or score < best[0]:
                best = score, form, found
    if best is None:
        return None
    _, form, found = best
    if len(few) < len(points):
        found = form.solve(points, target, found.values) or found
    expression = form.rounded(points, target, found, floor)
    left = values_at(expression, symbols, points) - target
    residual = math.sqrt(float(left @ left) / len(left))
    if not math.isfinite(residual):
        return None
    return Formula((expression,), tuple(symbols), "law", residual)


def fitted_power_law(points: Array, targets: Array, symbols: list[Any]) -> Formula | None:
    """The product of powers of positive columns that fits one positive target, or None if there is none."""
    if targets.shape[1] != 1 or len(points) < _FEWEST or (targets <= 0).any():
        return None
    usable = [k for k in range(points.shape[1]) if (points[:, k] > 0).all() and np.ptp(points[:, k]) > 0]
    if not usable:
        return None
    logs = np.column_stack([np.ones(len(points)), np.log(points[:, usable])])
    target = np.log(targets[:, 0])
    chosen = select(logs, target, _FLOOR * max(float(target.std()), 1e-300))
    powers = {}
    for place, value, error in zip(chosen.terms, chosen.coefficients, chosen.errors, strict=True):
        if place == 0:
            continue
        near = round(2 * value) / 2
        if abs(near - value) > max(_NEAR, 3 * error) or abs(near) > _LARGEST_EXPONENT:
            return None  # not the exponents of a law
        if near:
            powers[usable[place - 1]] = near
    if not powers:
        return None
    product = np.prod([points[:, k] ** a for k, a in powers.items()], axis=0)
    factor = float(product @ targets[:, 0] / (product @ product))
    left = targets[:, 0] - factor * product
    error = math.sqrt(float(left @ left) / max(1, len(left) - 1) / float(product @ product))
    sympy = sympy_module()
    expression = decimal_or_fraction(factor, error)
    for k, a in powers.items():
        expression *= symbols[k] ** sympy.Rational(round(2 * a), 2)
    return Formula((expression,), tuple(symbols), "power law", math.sqrt(float(np.mean(left**2))))


def _score(mean: float, count: int, numbers: int) -> float:
    """Schwarz's criterion, a number priced as that of one of many candidates."""
    return count * math.log(max(mean, 1e-300)) + (math.log(count) + 2 * math.log(_CANDIDATES)) * numbers


def _proposals(points: Array, target: Array, symbols: list[Any], usable: list[int]) -> Iterator[Any]:
    """Expressions whose numbers are near those of a fit."""
    sympy = sympy_module()
    inputs = [(symbols[k], points[:, k]) for k in usable]
    curved = [term for x in inputs for term in _curved(*x)]
    powers = [(x**p, column**p) for x, column in inputs for p in (1, 2)]
    powers += [(x * z, one * two) for (x, one), (z, two) in combinations(inputs, 2)]
    for terms, values in _chosen([*curved, *powers], target):
        if any(term in [each for each, _ in curved] for term in terms):
            yield sum(value * term for term, value in zip(terms, values, strict=True))
    sign = 1 if np.median(target) > 0 else -1
    right = sign * target > 0
    if right.mean() > _OF_ONE_SIGN:
        # The weights of the links: an error e of y is e / y of log y and e / y^2 of 1 / y.
        safe = np.where(right, sign * target, 1.0)
        weight = np.where(right, safe / safe.max(), 0.0)
        logs = [(sympy.log(x), np.log(column)) for x, column in inputs if (column > 0).all()]
        over = [(1 / x, 1 / column) for x, column in inputs if (column > 0).all()]
        most = max(_MOST_TERMS, len(inputs))
        for terms, values in _chosen([*powers, *logs, *over], np.log(safe), most, weight):
            yield sign * _exponential(terms, values, [x for x, _ in inputs])
        for terms, values in _chosen([*powers, *over], sign / safe, weight=weight**2):
            yield _reciprocal(terms, values)
    yield from rooted(inputs, target, math.log(len(target)) + 2 * math.log(_CANDIDATES))
    if len(inputs) == 1:
        for family in (_exponentials, _shifted, _steps, _bumps):
            yield from family(*inputs[0], target)


def _curved(x: Any, column: Array) -> list[tuple[Any, Array]]:
    sympy = sympy_module()
    if (column > 0).all():
        return [(sympy.log(x), np.log(column)), (sympy.sqrt(x), np.sqrt(column)), (1 / x, 1 / column)]
    return [(sympy.sqrt(x), np.sqrt(column))] if (column >= 0).all() else []


def _chosen(
    terms: Sequence[tuple[Any, Array]], target: Array, most: int = _MOST_TERMS, weight: Array | None = None
) -> Iterator[tuple[list[Any], list[float]]]:
    """For each number of terms the best set of them, with and without a constant: terms and coefficients.

    Up to two are found by trying all sets; each further one is the best to add.
    """
    if not np.isfinite(target).all() or not terms:
        return
    one = sympy_module().Integer(1)
    for constant in (True, False):
        names = [one, *(term for term, _ in terms)]
        columns = np.column_stack([np.ones(len(target)), *(column for _, column in terms), target])
        columns = columns if weight is None else columns * weight[:, None]
        scales = np.maximum(np.sqrt((columns**2).mean(0)), 1e-300)
        # One factorization; the sets are solved in its small triangle.
        R: Any = np.linalg.qr(columns / scales, mode="r")
        triangle, right = R[:, :-1], R[:, -1]
        start = (0,) if constant else ()
        sets = [(*start, *more) for size in (1, 2) for more in combinations(range(1, len(names)), size)]
        best: dict[int, tuple[float, tuple[int, ...], Array]] = {}

        for places in sets:
            _keep_better(best, places, triangle, right)
        for size in range(len(start) + 3, len(start) + most + 1):
            if size - 1 in best:
                had = best[size - 1][1]
                for more in set(range(1, len(names))) - set(had):
                    _keep_better(best, (*had, more), triangle, right)
        for _, places, found in best.values():
            if np.abs(found).min() > _NOTHING * np.abs(found).max():
                numbers = [float(found[i] / scales[k] * scales[-1]) for i, k in enumerate(places)]
                yield [names[k] for k in places], numbers


def _keep_better(
    best: dict[int, tuple[float, tuple[int, ...], Array]],
    places: tuple[int, ...],
    triangle: Array,
    right: Array,
) -> None:
    """Try a set of columns against the best of its size."""
    found: Array = np.asarray(np.linalg.lstsq(triangle[:, places], right, rcond=1e-10)[0], dtype=np.float64)
    left = float(np.square(right - triangle[:, places] @ found).sum())
    if len(places) not in best or left < best[len(places)][0]:
        best[len(places)] = left, places, found


def _exponential(terms: list[Any], values: list[float], inputs: list[Any]) -> Any:
    """The exponential of a sum: a factor, powers for logarithms, a bump for a square with a minus."""
    sympy = sympy_module()
    known = dict(zip(terms, values, strict=True))
    factor, power = math.exp(min(700.0, known.pop(sympy.Integer(1), 0.0))), sympy.Integer(1)
    inside = sympy.Integer(0)
    for x in inputs:
        exponent = known.pop(sympy.log(x), 0.0)
        near = round(2 * exponent) / 2
        if exponent and abs(near - exponent) <= _NEAR and abs(near) <= _LARGEST_EXPONENT:
            power *= x ** sympy.Rational(round(2 * near), 2)
        elif exponent:
            return sympy.Integer(0)  # not the exponent of a law
        if len(inputs) == 1 and x in known and known.get(x**2, 0.0) < 0:
            slope, curvature = known.pop(x), known.pop(x**2)
            factor *= math.exp(min(700.0, -(slope**2) / (4 * curvature)))
            inside += curvature * (x + slope / (2 * curvature)) ** 2
    inside += sum(value * term for term, value in known.items())
    return factor * power * sympy.exp(inside)


def _reciprocal(terms: list[Any], values: list[float]) -> Any:
    """One over a sum, the highest power in the denominator without a number."""
    sympy = sympy_module()
    known = list(zip(terms, values, strict=True))
    lowest = {
        x: min(term.as_powers_dict().get(x, 0) for term in terms) for term in terms for x in term.free_symbols
    }
    over = sympy.Mul(*(x ** max(0, -power) for x, power in lowest.items()))
    raised = [(term * over, value) for term, value in known]
    leading = max(raised, key=lambda pair: sum(pair[0].as_powers_dict().values()) if pair[0] != 1 else 0)
    if leading[1] == 0:
        return sympy.Integer(0)
    below = sum(term if term == leading[0] else value / leading[1] * term for term, value in raised)
    return over / leading[1] / below


# ---- One input. --------------------------------------------------------------------------------------------


def _best_starts(
    starts: Sequence[Any], shape: Callable[[Any], Array], target: Array, constant: bool, kept: int = 2
) -> list[tuple[Any, float, float]]:
    """The starts that fit best, with the factor and the constant."""
    found = []
    for start in starts:
        column = shape(start)
        if not np.isfinite(column).all() or not column.any():
            continue
        columns = np.column_stack([column, np.ones(len(column))]) if constant else column[:, None]
        values = np.linalg.lstsq(columns, target, rcond=None)[0]
        left = float(np.square(target - columns @ values).sum())
        found.append((left, start, float(values[0]), float(values[1]) if constant else 0.0))
    found.sort(key=lambda each: each[0])
    return [each[1:] for each in found[:kept]]


def _exponentials(x: Any, column: Array, target: Array) -> Iterator[Any]:
    sympy = sympy_module()
    low, width = float(column.min()), float(np.ptp(column))
    for constant in (True, False):
        for k, factor, level in _best_starts(
            _RATES, lambda k: np.exp(k * (column - low) / width - max(k, 0.0)), target, constant
        ):
            if abs(k * low / width) < _LARGEST_SHIFT:
                size = factor * math.exp(-k * low / width - max(k, 0.0))
                yield size * sympy.exp(k / width * x) + level


def _shifted(x: Any, column: Array, target: Array) -> Iterator[Any]:
    """log(x + b), 1 / (x + b), sqrt(x + b)."""
    sympy = sympy_module()
    low, width = float(column.min()), float(np.ptp(column))
    shapes: list[tuple[Any, Any]] = [(np.log, sympy.log), (np.reciprocal, lambda u: 1 / u)]
    for values, symbol in (*shapes, (np.sqrt, sympy.sqrt)):

        def shape(b: float, of: Any = values) -> Array:
            return np.asarray(of(column - low + b * width))

        for b, factor, level in _best_starts(_SHIFTS, shape, target, True, 1):
            yield factor * symbol(x + (b * width - low)) + level


def _steps(x: Any, column: Array, target: Array) -> Iterator[Any]:
    sympy = sympy_module()
    low, width = float(column.min()), float(np.ptp(column))

    def inside(place: tuple[float, float]) -> tuple[float, float]:
        k = 1 / (place[1] * width)
        return k, -k * (low + place[0] * width)

    for constant in (True, False):
        for place, factor, level in _best_starts(
            _PLACES, lambda p: np.tanh(inside(p)[0] * column + inside(p)[1]), target, constant
        ):
            k, b = inside(place)
            yield factor * sympy.tanh(k * x + b) + level
            if not constant and low < 0 < low + width:
                yield factor * sympy.tanh(k * x)


def _bumps(x: Any, column: Array, target: Array) -> Iterator[Any]:
    """A Gaussian or a Lorentzian bump on a constant."""
    sympy = sympy_module()
    low, width = float(column.min()), float(np.ptp(column))

    def shifted(place: tuple[float, float]) -> Array:
        return np.asarray((column - low - place[0] * width) / (place[1] * width))

    for place, factor, level in _best_starts(_PLACES, lambda p: np.exp(-(shifted(p) ** 2)), target, True):
        yield factor * sympy.exp(-1 / (place[1] * width) ** 2 * (x - (low + place[0] * width)) ** 2) + level
    for place, factor, level in _best_starts(_PLACES, lambda p: 1 / (1 + shifted(p) ** 2), target, True):
        size = (place[1] * width) ** 2
        yield factor * size / ((x - (low + place[0] * width)) ** 2 + size) + level

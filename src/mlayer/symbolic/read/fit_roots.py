"""Powers of quadratic forms: norms, distances, their reciprocals, sqrt(1 - v^2), fields of a charge.

    y = M Q^p,        p in {1/2, -1/2, -1, -3/2},

where M is 1, an input, its reciprocal or a product of two, and Q = c + b . x + x^T A x. For given M and p
the power 1/p of y / M is linear in the numbers of Q, so its terms come from the same selection as those of a
polynomial. Q is also proposed as a sum of squares (A, b, c factored as L D L^T): a squared distance then
cannot become negative at the next point, and (x - z)^2 is written as such.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np

from mlayer.numerics.arrays import Array
from mlayer.symbolic.parse.expressions import sympy_module
from mlayer.symbolic.read.term_selection import select

_POWERS = ((1, 2), (-1, 2), (-1, 1), (-3, 2))
# More terms follow any curve.
_MOST_TERMS = 9
_KEPT = 3  # proposals
# Rows of this part of the root mean square of y weigh no more than those of that size.
_LEAST = 0.05
_OF_ONE_SIGN = 0.8
_FLOOR = 1e-7
_CLOSE = 0.02  # numbers that count as one
# Entries of a factor below this part of the largest are left out of the second proposal.
_SMALL = 0.01

Input = tuple[Any, Array]


def rooted(inputs: Sequence[Input], target: Array, price: float) -> Iterator[Any]:
    """Expressions with numbers near those of a fit, the best first.

    The price of a term is given in units of count * log(mean square).
    """
    sign = 1 if np.median(target) > 0 else -1
    right = sign * target > 0
    if right.mean() <= _OF_ONE_SIGN:
        return
    y = sign * target[right]
    columns = [column[right] for _, column in inputs]
    places: list[tuple[int, ...]] = [()]
    places += [(k,) for k in range(len(inputs))]
    places += list(combinations_with_replacement(range(len(inputs)), 2))
    matrix = np.column_stack(
        [np.prod([columns[k] for k in place], axis=0) * np.ones(len(y)) for place in places]
    )
    found = []
    for factor, values in _factors(inputs, columns):
        for numerator, denominator in _POWERS:
            trial = _quadratic(matrix, y / values, numerator / denominator)
            if trial is None:
                continue
            terms, numbers, fit = trial
            mean = float(np.square(fit * values - y).mean()) + (_FLOOR * float(y.std())) ** 2
            score = len(y) * math.log(max(mean, 1e-300)) + price * len(terms)
            found.append((score, factor, (numerator, denominator), terms, numbers))
    found.sort(key=lambda each: each[0])
    symbols = [symbol for symbol, _ in inputs]
    for _, factor, power, terms, numbers in found[:_KEPT]:
        for whole in _written([places[k] for k in terms], numbers, symbols, power):
            yield sign * factor * whole


def _factors(inputs: Sequence[Input], columns: list[Array]) -> list[Input]:
    """The candidates for the factor of a power of a quadratic form."""
    sympy = sympy_module()
    positive = [(x, column) for (x, _), column in zip(inputs, columns, strict=True) if (column > 0).all()]
    result: list[Input] = [(sympy.Integer(1), np.ones(len(columns[0])))]
    result += [(x, column) for x, column in positive] + [(1 / x, 1 / column) for x, column in positive]
    return result + [(x * z, one * two) for (x, one), (z, two) in combinations(positive, 2)]


def _quadratic(matrix: Array, ratio: Array, power: float) -> tuple[list[int], Array, Array] | None:
    """Terms and numbers of Q with Q^power near the ratio, and Q^power; None without a few such terms."""
    wanted = ratio ** (1 / power)
    size = np.maximum(ratio, _LEAST * math.sqrt(float(np.mean(ratio**2))))
    weight = np.abs(power) * size / size ** (1 / power)
    if not (np.isfinite(wanted).all() and np.isfinite(weight).all() and wanted.std() > 0):
        return None
    weight = weight / weight.max()
    target = wanted * weight
    chosen = select(matrix * weight[:, None], target, _FLOOR * max(float(target.std()), 1e-300))
    if not 2 <= len(chosen.terms) <= _MOST_TERMS:
        return None
    form = matrix[:, chosen.terms] @ chosen.coefficients
    return chosen.terms, chosen.coefficients, np.maximum(form, 1e-12 * float(np.abs(form).max())) ** power


def _written(
    places: list[tuple[int, ...]], numbers: Array, symbols: list[Any], power: tuple[int, int]
) -> Iterator[Any]:
    """The power of Q, term by term and as a sum of squares, one number in front."""
    sympy = sympy_module()
    exponent = sympy.Rational(*power)
    terms = [sympy.Mul(*(symbols[k] for k in place)) for place in places]
    yield _with_factor(terms, list(numbers), exponent)
    squares = _squares(places, numbers, symbols)
    if squares:
        yield _with_factor([term for term, _ in squares], [value for _, value in squares], exponent)


def _with_factor(terms: list[Any], numbers: list[float], exponent: Any) -> Any:
    """The sum to the power, divided by the number that most of its terms share."""
    alike = [sum(abs(abs(one) - abs(other)) <= _CLOSE * abs(one) for other in numbers) for one in numbers]
    leading = max(range(len(numbers)), key=lambda k: (terms[k] != 1, numbers[k] > 0, alike[k], -k))
    unit = abs(numbers[leading])
    whole = sum(
        (1 if value > 0 else -1) * term if k == leading else value / unit * term
        for k, (term, value) in enumerate(zip(terms, numbers, strict=True))
    )
    return unit ** float(exponent) * whole**exponent


def _squares(
    places: list[tuple[int, ...]], numbers: Array, symbols: list[Any]
) -> list[tuple[Any, float]] | None:
    """Q as a sum of numbers times squares of sums, without what is small; None if it has no squares."""
    count = len(symbols)
    A = np.zeros((count + 1, count + 1))
    for place, value in zip(places, numbers, strict=True):
        i, j = (*place, *[count] * (2 - len(place)))
        A[i, j] += value / 2
        A[j, i] += value / 2
    result: list[tuple[Any, float]] = []
    left = [k for k in range(count) if A[k].any()]
    largest = float(np.abs(np.diag(A)[:count]).max())
    while left:
        pivot = max(left, key=lambda k: abs(A[k, k]))
        left.remove(pivot)
        if abs(A[pivot, pivot]) <= _SMALL * largest:
            if np.abs(A[pivot, [*left, count]]).max() > _SMALL * largest:
                return None  # a term without its square
            continue
        row = A[pivot] / A[pivot, pivot]
        d = float(A[pivot, pivot])
        A -= d * np.outer(row, row)
        inside = symbols[pivot] + sum(float(row[k]) * symbols[k] for k in left if abs(row[k]) > _SMALL)
        result.append(((inside + (float(row[count]) if row[count] else 0)) ** 2, d))
    if abs(A[count, count]) > _SMALL * max(abs(d) for _, d in result):
        result.append((sympy_module().Integer(1), float(A[count, count])))
    return result

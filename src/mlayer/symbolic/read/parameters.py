"""The numbers in a formula as parameters: their derivatives, their refit to data, their rounding.

Each term of a sum has its coefficient, at the top and in the arguments of functions. In a power of a sum,
as in A / (x + b), terms without a written number have none. Exponents are structure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlayer.numerics.arrays import Array
from mlayer.symbolic.parse.expressions import sympy_module
from mlayer.symbolic.parse.rationals import rational
from mlayer.symbolic.read.evaluate import values_of
from mlayer.symbolic.read.formula import Formula, simplest

_RANK = 1e-9  # relative size of a singular value below which a direction does nothing
_STEPS = 60
_ENOUGH = 1e-10  # relative gain of a step after which no other follows
_ROUNDING = 1e-15  # of steps and slopes: exact laws are solved to the last digits
_SIGMAS = 3.0
_LARGEST_DENOMINATOR = 20
_MOST_DIGITS = 12


@dataclass(frozen=True)
class Solution:
    """Values of the parameters, their standard errors, the root mean square of what is left, the rank."""

    values: Array
    errors: Array
    residual: float
    rank: int


class FormulaNumbers:
    """An expression with a symbol in place of each number.

    Args:
        expression: of sympy.
        variables: its symbols, in the order of the columns of points.

    >>> import sympy
    >>> t = sympy.Symbol("t")
    >>> FormulaNumbers(3 * sympy.exp(-t / 5) + 1, [t]).start.tolist()
    [1.0, 3.0, -0.2]
    """

    def __init__(self, expression: Any, variables: list[Any]) -> None:
        self.variables = list(variables)
        self.symbols: list[Any] = []
        start: list[float] = []
        self._terms: list[tuple[Any, range]] = []
        self._sympy = sympy_module()
        for term in self._sympy.Add.make_args(expression):
            first = len(start)
            replaced = self._with_symbols(term, start)
            self._terms.append((replaced, range(first, len(start))))
        self.start = np.array(start)
        self._slopes: list[Any] = [None] * len(start)

    def _symbol(self, value: Any, start: list[float]) -> Any:
        start.append(float(value))
        self.symbols.append(self._sympy.Dummy(f"c{len(start)}", real=True))
        return self.symbols[-1]

    def _with_symbols(self, term: Any, start: list[float], written: bool = False) -> Any:
        value, rest = term.as_coeff_Mul()
        if written and value in (1, -1) and rest != 1:
            return value * self._inside(rest, start)
        return self._symbol(value, start) * self._inside(rest, start)

    def _inside(self, part: Any, start: list[float]) -> Any:
        if not part.free_symbols or part.is_Symbol:
            return part
        if part.is_Add:
            return self._sympy.Add(*(self._with_symbols(term, start, written=True) for term in part.args))
        if part.is_Mul:
            return self._sympy.Mul(*(self._inside(each, start) for each in part.args))
        if part.is_Pow:
            return self._inside(part.base, start) ** part.exp
        argument = part.args[0]
        terms = self._sympy.Add.make_args(argument)
        return part.func(self._sympy.Add(*(self._with_symbols(term, start) for term in terms)))

    def _columns(self, points: Array, values: Array) -> dict[Any, Any]:
        known: dict[Any, Any] = dict(zip(self.symbols, map(float, values), strict=True))
        return known | {symbol: points[:, k] for k, symbol in enumerate(self.variables)}

    def at(self, points: Array, values: Array) -> Array:
        """The expression at points (count, variables) with these values.  (count,)"""
        known = self._columns(points, values)
        with np.errstate(all="ignore"):
            parts = [np.broadcast_to(values_of(term, known), len(points)) for term, _ in self._terms]
        return np.asarray(sum(parts, np.zeros(len(points))))

    def slopes(self, points: Array, values: Array) -> Array:
        """Derivatives by the parameters.  (count, parameters)"""
        known = self._columns(points, values)
        result = np.empty((len(points), len(self.symbols)))
        with np.errstate(all="ignore"):
            for term, places in self._terms:
                for place in places:
                    if self._slopes[place] is None:
                        self._slopes[place] = term.diff(self.symbols[place])
                    result[:, place] = values_of(self._slopes[place], known)
        return result

    def expression(self, values: list[Any]) -> Any:
        """The expression with numbers in place of the symbols."""
        known = dict(zip(self.symbols, values, strict=True))
        return self._sympy.Add(*(term.xreplace(known) for term, _ in self._terms))

    def solve(self, points: Array, target: Array, start: Array | None = None) -> Solution | None:
        """Least squares from a start; None if nothing finite is there."""
        from scipy.optimize import least_squares

        first = (self.start if start is None else start).copy()
        if not np.isfinite(self.at(points, first)).all() or not np.isfinite(self.slopes(points, first)).all():
            return None
        try:
            with np.errstate(all="ignore"):  # trial steps may overflow; they are then shortened
                found = least_squares(
                    lambda values: self.at(points, values) - target,
                    first,
                    jac=lambda values: self.slopes(points, values),
                    x_scale="jac",
                    ftol=_ENOUGH,
                    xtol=_ROUNDING,
                    gtol=_ROUNDING,
                    max_nfev=_STEPS,
                )
        except (ValueError, np.linalg.LinAlgError):  # slopes that are not finite on the way
            return None
        values, slopes, square = found.x, found.jac, 2 * float(found.cost)
        scale = np.maximum(np.sqrt((slopes**2).sum(0)), 1e-300)
        if not np.isfinite(slopes).all():
            return None
        _, sizes, Vh = np.linalg.svd(slopes / scale, full_matrices=False)
        kept = sizes > _RANK * sizes[0]
        rank = int(kept.sum())
        spread = np.sqrt(((Vh[kept].T / sizes[kept]) ** 2).sum(1)) / scale
        noise = math.sqrt(square / max(1, len(target) - rank))
        return Solution(values, noise * spread, math.sqrt(square / len(target)), rank)

    def rounded(self, points: Array, target: Array, found: Solution, floor: float) -> Any:
        """The expression with simple fractions where the fit allows, else with the digits that count.

        A residual whose root mean square is below ``floor`` counts as 0.
        """
        allowed = math.hypot(found.residual, floor) * (1 + _SIGMAS**2 / len(target))
        shown: list[Any] = []
        # Numbers that go together need more digits than their errors leave.
        for more in range(2, _MOST_DIGITS):
            shown = [self._shown(v, e, more) for v, e in zip(found.values, found.errors, strict=True)]
            if self._residual(points, target, shown) <= allowed:
                break
        near = [_fraction(v, e) for v, e in zip(found.values, found.errors, strict=True)]
        for place, value in enumerate(near):
            if value is None:
                continue
            trial = [*shown[:place], value, *shown[place + 1 :]]
            if self._residual(points, target, trial) <= allowed:
                shown = trial
        return self.expression(shown)

    def _residual(self, points: Array, target: Array, numbers: list[Any]) -> float:
        left = target - self.at(points, np.array([float(each) for each in numbers]))
        return math.sqrt(float(left @ left) / len(target))

    def _shown(self, value: float, error: float, more: int) -> Any:
        """A decimal with some digits more than its standard error leaves: rounding must not count."""
        whole = round(value)
        if abs(value - whole) <= 1e-12 * abs(whole):
            return self._sympy.Integer(whole)
        digits = _MOST_DIGITS
        if error > 0 and value:
            digits = max(2, min(_MOST_DIGITS, math.ceil(math.log10(abs(value) / error)) + more))
        return self._sympy.Float(f"{value:.{digits}g}", 15)


def _fraction(value: float, error: float) -> Any:
    """The simple fraction within the error that would rarely lie there by chance, or None."""
    width = max(_SIGMAS * error, 1e-9 * abs(value))
    near = simplest(value, width)
    if not near or near.denominator > _LARGEST_DENOMINATOR:
        return None
    if 2 * width * near.denominator**2 > 0.2:
        return None
    return rational(near)


def numbers_in(formula: Formula, points: Array) -> int:
    """The number of constants of a formula that matter at these points: the rank of its derivatives."""
    total = 0
    for expression in formula.expressions:
        form = FormulaNumbers(expression, list(formula.variables))
        slopes = form.slopes(points, form.start)
        slopes = slopes[np.isfinite(slopes).all(1)]
        if not slopes.size:
            total += len(form.start)
            continue
        slopes = slopes / np.maximum(np.sqrt((slopes**2).mean(0)), 1e-300)
        total += int(np.linalg.matrix_rank(slopes, tol=_RANK * np.linalg.norm(slopes, 2)))
    return total

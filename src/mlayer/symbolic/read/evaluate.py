"""Values of a sympy expression at many points, node by node; sympy's ``lambdify`` writes and runs code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlayer.numerics.arrays import Array
from mlayer.symbolic.parse.formula_error import formula_error

_FUNCTIONS = {
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "log": np.log,
}


def values_at(expression: Any, symbols: Sequence[Any], points: Array) -> Array:
    """The expression at points (count, symbols), in double precision; without warnings.  (count,)"""
    columns = {symbol: points[:, k] for k, symbol in enumerate(symbols)}
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.asarray(values_of(expression, columns), dtype=np.float64)
    return np.broadcast_to(found, len(points))


def values_of(expression: Any, columns: Mapping[Any, Array]) -> Any:
    """The value at points given by a column for each symbol: a number, or one of a column's shape.

    >>> import sympy
    >>> x = sympy.Symbol("x")
    >>> values_of(x**2 / 2 + 1, {x: np.array([0.0, 2.0])})
    array([1., 3.])
    """
    if expression in columns:
        return columns[expression]
    if not expression.free_symbols:
        return float(expression)
    if expression.is_Add:
        total: Any = 0.0
        for part in expression.args:
            total = total + values_of(part, columns)
        return total
    if expression.is_Mul:
        product: Any = 1.0
        for part in expression.args:
            product = product * values_of(part, columns)
        return product
    if expression.is_Pow and not expression.exp.free_symbols:
        power = int(expression.exp) if expression.exp.is_Integer else float(expression.exp)
        return values_of(expression.base, columns) ** power
    function = _FUNCTIONS.get(type(expression).__name__)
    if function is None:
        raise formula_error(
            f"made of numbers, variables, + - * / ** and {', '.join(_FUNCTIONS)}",
            str(expression),
            "Other functions have no values here.",
        )
    return function(values_of(expression.args[0], columns))

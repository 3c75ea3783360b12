"""`from_boolean`: any Boolean function of 0/1 inputs as a layer, through a compact polynomial.

On 0 and 1 many polynomials agree. Two families are searched: the multilinear polynomial with every board of
`from_polynomial`, and products of literals, one variable per step; there the width after k variables is
the rank of the truth table cut there (at most the width of a decision diagram in the same order).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

import torch

from mlayer.checks import brief, positive_integer, takes
from mlayer.errors import ArgumentError, ArgumentTypeError, in_one_line
from mlayer.nn import MLayer
from mlayer.symbolic.compile.board import Board
from mlayer.symbolic.compile.lifts import padded, wired
from mlayer.symbolic.compile.minimal import minimal
from mlayer.symbolic.compile.polynomial import LARGEST, PolynomialPlan
from mlayer.symbolic.compile.search import smallest, too_large
from mlayer.symbolic.compile.step_budget import Effort, TooManyStatesError
from mlayer.symbolic.compile.to_layer import Block
from mlayer.symbolic.parse.expressions import read_variables, sympy_module
from mlayer.symbolic.parse.formula_error import formula_error
from mlayer.symbolic.parse.lists import is_listed
from mlayer.symbolic.parse.rationals import rational
from mlayer.symbolic.parse.truth_table import values_of_logic, values_of_text

# A table of 2^k rows is made.
MOST_VARIABLES = 14
_MOST_ROWS = 2**17  # of all tables
_MOST_ORDERS = 24
_MOST_STATES = 1500
_MOST_WORK = 1500  # terms times orders tried

Table = tuple[int, ...]  # 2^k values; the first variable is the slowest


def from_boolean(
    expressions: Any, variables: Any, *, dtype: torch.dtype | None = None, largest: int = LARGEST
) -> MLayer:
    """A layer that computes Boolean functions: 0/1 in, 0/1 out, one output for each function.

    Args:
        expressions: one or several (then a list) of: a string such as ``"a & (b | ~c) ^ d"``, sympy logic, a
            callable of as many Booleans as there are variables, or a truth table: a dict or a string or tuple
            of 2^k values, rows in counting order, the first variable the most significant.
        variables: names or symbols: the inputs, in order.
        dtype: of the layer; torch's default if None.
        largest: the largest matrix allowed.

    >>> import torch
    >>> majority = from_boolean("a & b | a & c | b & c", "a b c")
    >>> majority(torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])).flatten().round().tolist()
    [1.0, 0.0]
    """
    return boolean_plan(expressions, variables, largest=largest).build(dtype)


def boolean_plan(expressions: Any, variables: Any, *, largest: int = LARGEST) -> PolynomialPlan:
    """The plan of :func:`from_boolean`."""
    positive_integer("largest", largest)
    symbols = read_variables(variables)
    count = len(symbols)
    if count > MOST_VARIABLES:
        raise ArgumentError(
            "variables",
            f"at most {MOST_VARIABLES} for a Boolean function",
            str(count),
            "A truth table has 2^k rows; write large functions as polynomials.",
        )
    functions = list(expressions) if isinstance(expressions, list) else [expressions]
    if not functions:
        raise formula_error("one or more", "none", "For example 'a & b'.")
    if len(functions) * 2**count > _MOST_ROWS:
        raise formula_error(
            f"functions with at most {_MOST_ROWS} rows of truth tables in all",
            f"{len(functions)} functions of {2**count} rows",
            "Use several layers.",
        )
    tables = [table_of(one, symbols) for one in functions]
    polynomials = [multilinear(table, count) for table in tables]
    board = _smallest(polynomials, count, largest)
    sympy = sympy_module()
    zeros = (Fraction(0),) * count
    written = tuple(
        sympy.Add(  # at once: one after the other takes the square of the number of terms
            *(
                rational(c) * sympy.Mul(*(s for s, power in zip(symbols, powers, strict=True) if power))
                for powers, c in p.items()
            )
        )
        for p in polynomials
    )
    monomials = {powers for p in polynomials for powers in p if any(powers)}
    products = {powers[:k] for powers in monomials for k in range(1, count + 1) if any(powers[:k])}
    return PolynomialPlan(
        tuple(symbols),
        written,
        (Block(board, zeros, zeros),) if board.size else (),
        tuple(board.constants),
        max((sum(powers) for powers in monomials), default=0),
        len(monomials),
        len(products | {(0,) * k + (1,) for k in range(count)}),
    )


def table_of(function: Any, symbols: Sequence[Any]) -> Table:
    """The truth table of whatever describes a Boolean function."""
    sympy = sympy_module()
    count = len(symbols)
    if isinstance(function, str) and set(function) <= {"0", "1"} and function:
        function = tuple(int(digit) for digit in function)
    if isinstance(function, str):
        return tuple(values_of_text(function, [s.name for s in symbols]).astype(int).tolist())
    if isinstance(function, bool):
        return (int(function),) * 2**count
    if isinstance(function, sympy.Basic):
        return tuple(values_of_logic(function, symbols).astype(int).tolist())
    if isinstance(function, dict):
        found = {tuple(_bit(bit) for bit in _tuple(key)): value for key, value in function.items()}
        missing = [row for row in _rows(count) if row not in found]
        if missing or len(found) != 2**count:
            raise formula_error(
                f"a truth table with all {2**count} rows",
                f"{len(found)} rows" + (f", without {missing[0]}" if missing else ""),
                "Give a value for every combination of inputs.",
            )
        return tuple(_bit(found[row]) for row in _rows(count))
    if callable(function) and not isinstance(function, type | torch.nn.Module):
        if not takes(function, count):
            raise formula_error(
                f"a function of the {count} variables",
                "one that cannot be called with that many",
                "Each argument is the value of a variable, in their order.",
            )
        return tuple(_bit(_called(function, row)) for row in _rows(count))
    if is_listed(function):
        if len(function) != 2**count:
            raise formula_error(
                f"a truth table of {2**count} values for {count} variables",
                f"{len(function)}",
                "Rows in counting order, the first variable the most significant.",
            )
        return tuple(_bit(value) for value in function)
    raise ArgumentTypeError(
        "expressions",
        "strings, sympy logic, callables or truth tables",
        type(function).__name__,
        "For example 'a & ~b'.",
    )


def _called(function: Callable[..., Any], row: Sequence[int]) -> Any:
    try:
        return function(*(bool(bit) for bit in row))
    except Exception as error:
        raise formula_error(
            "a function of Booleans",
            f"one that raises {type(error).__name__}: {in_one_line(error)}",
            "It is called with the value of each variable, in their order.",
        ) from error


def multilinear(table: Table, count: int) -> dict[tuple[int, ...], Fraction]:
    """The multilinear polynomial with the values of the table on 0 and 1 (Moebius transform)."""
    values = list(table)
    for k in range(count):
        step = 1 << k
        for row in range(len(values)):
            if row & step:
                values[row] -= values[row ^ step]
    rows = list(_rows(count))
    return {row: Fraction(value) for row, value in zip(rows, values, strict=True) if value}


def _smallest(polynomials: list[dict[tuple[int, ...], Fraction]], count: int, largest: int) -> Board:
    zero = (0,) * count
    full = [{zero: Fraction(0)} | p for p in polynomials]
    if not any(any(powers) for p in polynomials for powers in p):
        return smallest(full, largest)
    boards = []
    if sum(len(p) for p in polynomials) <= 400:
        boards.append(smallest(full, LARGEST))
    used = [v for v in range(count) if any(powers[v] for p in polynomials for powers in p)]
    # V may take any constant off first: parity less one half is a single product.
    shifts = [p.get(zero, Fraction(0)) for p in polynomials]
    terms = sum(len(p) for p in polynomials)
    effort = Effort()
    for order in itertools.islice(_orders(used), max(1, min(_MOST_ORDERS, _MOST_WORK // terms))):
        for choice in (
            shifts,
            [Fraction(0)] * len(shifts),
            [Fraction(1, 2)] * len(shifts),
            [Fraction(1)] * len(shifts),
        ):
            words = []
            for p, shift in zip(polynomials, choice, strict=True):
                shifted = p | {zero: p.get(zero, Fraction(0)) - shift}
                words.append(padded({powers: c for powers, c in shifted.items() if c}, order))
            if not all(words):
                continue
            try:
                board = wired([dict(w) for w in words], lambda word: len(word) // 2, _MOST_STATES)
            except TooManyStatesError:
                continue
            with suppress(TooManyStatesError):  # as for random tables: it stays unreduced
                board = minimal(board, effort.attempt())
            board.constants = [a + b for a, b in zip(board.constants, choice, strict=True)]
            board.strategy = "literals, one variable per step"
            boards.append(board)
    if not boards:
        return smallest(full, largest)
    best = min(boards, key=lambda board: (board.size, board.weights))
    if best.size > largest:
        raise too_large(largest, str(best.size))
    return best


def _orders(used: list[int]) -> Iterator[list[int]]:
    """The order given first, then others."""
    for order in itertools.permutations(used):
        if order[::-1] >= order:  # the same board backwards
            yield list(order)


def _rows(count: int) -> Iterator[tuple[int, ...]]:
    return itertools.product((0, 1), repeat=count)


def _tuple(key: Any) -> tuple[Any, ...]:
    return tuple(key) if isinstance(key, (tuple, list, str)) else (key,)


def _bit(value: Any) -> int:
    try:
        number = int(value) if float(value) in (0.0, 1.0) else None
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = None
    if number is not None:
        return number
    raise formula_error("a function with values 0 and 1", brief(value), "Use from_polynomial for numbers.")

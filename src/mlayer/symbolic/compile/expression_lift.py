"""The lift that an expression already is: (a + b) (c + 1) needs two edges, however many words it has.

Sums inside a product become parallel paths of one length (shorter ones padded with 1), products become
paths one after the other. Nothing is multiplied out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import factorial
from typing import Any

from mlayer.symbolic.compile.board import ONE, Board, Form, Readout
from mlayer.symbolic.compile.step_budget import TooManyStatesError
from mlayer.symbolic.parse.rationals import exact

_UNIT = Fraction(1)


def from_expressions(
    expressions: Sequence[Any], letters: Mapping[Any, int], pad_in_front: bool, most: int
) -> Board:
    """A board that follows the sums and products of sympy polynomials as they are written."""
    wiring = _Wiring(letters, most, pad_in_front)
    board = wiring.board
    board.constants = [Fraction(0)] * len(expressions)
    root = board.state()
    for m, expression in enumerate(expressions):
        # At the top, sums need no padding: every length has its own end and its own factorial.
        ends: dict[int, int] = {}
        for degree, terms in wiring.by_degree(expression).items():
            if degree == 0:
                board.constants[m] += sum(exact(term) for term in terms)
                continue
            ends.setdefault(degree, board.state())
            for term in terms:
                wiring.wire(term, root, ends[degree], degree, _UNIT)
        target = {end: Fraction(factorial(degree)) for degree, end in ends.items()}
        if target:
            board.readouts.append(Readout(m, {root: _UNIT}, target))
    return board


class _Wiring:
    def __init__(self, letters: Mapping[Any, int], most: int, pad_in_front: bool) -> None:
        self.board = Board()
        self.letters = letters
        self.most = most
        self.pad_in_front = pad_in_front
        self._degrees: dict[Any, int] = {}

    def degree(self, expression: Any) -> int:
        """Length of the paths of an expression: its degree as written, before anything cancels."""
        if expression not in self._degrees:
            if expression in self.letters:
                found = 1
            elif expression.is_Add:
                found = max(self.degree(term) for term in expression.args)
            elif expression.is_Mul:
                found = sum(self.degree(factor) for factor in expression.args)
            elif expression.is_Pow and expression.exp.is_Integer and expression.free_symbols:
                found = int(expression.exp) * self.degree(expression.base)
            else:
                found = 0
            self._degrees[expression] = found
        return self._degrees[expression]

    def by_degree(self, expression: Any) -> dict[int, list[Any]]:
        """The terms of a sum by their degree; what is not a sum is one term."""
        terms: dict[int, list[Any]] = {}
        for term in expression.args if expression.is_Add else (expression,):
            terms.setdefault(self.degree(term), []).append(term)
        return terms

    def wire(self, expression: Any, start: int, end: int, length: int, factor: Fraction) -> None:
        """Paths of the given length from start to end whose products add up to factor * expression."""
        if self.board.size > self.most:
            raise TooManyStatesError
        degree = self.degree(expression)
        if length == 1 and (form := self.form(expression)) is not None:
            self.board.connect(start, end, {key: factor * value for key, value in form.items()})
            return
        if degree < length and not expression.is_Add:  # pad with 1
            between = self.board.state()
            if self.pad_in_front:
                self.board.connect(start, between, {ONE: _UNIT})
                self.wire(expression, between, end, length - 1, factor)
            else:
                self.wire(expression, start, between, length - 1, factor)
                self.board.connect(between, end, {ONE: _UNIT})
            return
        if expression.is_Add:
            for term in expression.args:
                self.wire(term, start, end, length, factor)
            return
        factors: list[Any] = []
        for one in expression.args if expression.is_Mul else (expression,):
            if one.is_Pow and self.degree(one):
                factors.extend([one.base] * int(one.exp))
            elif self.degree(one) == 0:
                factor *= exact(one)
            else:
                factors.append(one)
        # A product: states between its factors.
        here = start
        for k, one in enumerate(factors):
            there = end if k == len(factors) - 1 else self.board.state()
            self.wire(one, here, there, self.degree(one), factor if k == 0 else _UNIT)
            here = there

    def form(self, expression: Any) -> Form | None:
        """A sum of degree 1 as a linear form, or None."""
        total: Form = {}
        for term in expression.args if expression.is_Add else (expression,):
            coefficient, rest = term.as_coeff_Mul()
            if rest in self.letters:
                letter, number = self.letters[rest], exact(coefficient)
            elif self.degree(term) == 0:
                letter, number = ONE, exact(term)
            elif term.is_Mul and sum(self.degree(factor) for factor in term.args) == 1:
                inner = [factor for factor in term.args if self.degree(factor)]
                if inner[0] not in self.letters:
                    return None
                letter = self.letters[inner[0]]
                number = exact(term / inner[0])
            else:
                return None
            total[letter] = total.get(letter, Fraction(0)) + number
        return {key: value for key, value in total.items() if value}

"""The smallest board that the known lifts give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from mlayer.errors import ArgumentError
from mlayer.symbolic.compile.board import Board, Polynomial, Words
from mlayer.symbolic.compile.expression_lift import from_expressions
from mlayer.symbolic.compile.free_entries import with_spare_entries
from mlayer.symbolic.compile.lifts import derivatives, in_order, padded, sharing, variable_orders, wired
from mlayer.symbolic.compile.minimal import minimal
from mlayer.symbolic.compile.step_budget import Effort, TooManyStatesError
from mlayer.symbolic.parse.expanded_size import extent_of, with_named_constants
from mlayer.symbolic.parse.formula_error import formula_error

# States before reduction: beyond this the exact elimination takes minutes.
_MOST_BEFORE_REDUCTION = 1500
_MOST_PADDED = 14
# Other forms of a polynomial are looked for up to this many terms, and terms times degree: sympy takes
# seconds for the Horner form of 141 terms of degree 140.
_MOST_FACTORED, _MOST_HORNER, _MOST_HORNER_VARIABLES = 500, 4_000, 8
# To factor takes time exponential in the degree at worst (the polynomials of Swinnerton and Dyer), and the
# square of the number of variables and more: seconds for a sum of 50 squares.
_HIGHEST_FACTORED, _MOST_FACTORED_VARIABLES = 24, 26

Attempt = tuple[str, Callable[[int, Effort], Board]]


def smallest(
    polynomials: Sequence[Polynomial],
    largest: int,
    written: Sequence[Any] | None = None,
    letters: dict[Any, int] | None = None,
    effort: Effort | None = None,
    *,
    known: dict[tuple[int, ...], Board] | None = None,
) -> Board:
    """The smallest board found for some polynomials in the same variables, one output each.

    Args:
        polynomials: powers -> coefficient.
        largest: matrix size beyond which an error is raised.
        written: the same polynomials as sympy expressions, whose factors may be of use.
        letters: symbols of those expressions -> number of the variable.
        effort: how much may be tried; as much as one search may take if None.
        known: boards of some of the outputs, by the identities of their polynomials.
    """
    count = len(polynomials)
    if not any(any(powers) for p in polynomials for powers in p):
        return Board(0, {}, [], [sum(p.values(), Fraction(0)) for p in polynomials], "constant")
    best: Board | None = None
    effort = Effort() if effort is None else effort
    work = steps_of(polynomials)
    for strategy, attempt in _attempts(polynomials, written, letters):
        share = effort.attempt()
        try:
            share.spend(work)
            board = minimal(attempt(_MOST_BEFORE_REDUCTION, share), share)
        except (
            TooManyStatesError,
            RecursionError,
        ):  # a form nested deeper than Python's stack: other lifts remain
            continue
        board.strategy = strategy
        if best is None or (board.size, board.weights) < (best.size, best.weights):
            best = board
    if best is None:  # too many products for a search: the plain construction, unreduced
        order = next(variable_orders(polynomials))
        words = [in_order(p, order) for p in polynomials]
        try:
            best = wired(words, lambda word: len(word) // 2, largest + count)
        except TooManyStatesError:
            raise too_large(largest, f"more than {largest}") from None
        best.strategy = "products met in the middle, unreduced"
    if count > 1:
        best = _spared(polynomials, best, largest, effort, {} if known is None else known)
    if best.size > largest:
        raise too_large(largest, str(best.size))
    return best


def steps_of(polynomials: Sequence[Polynomial]) -> int:
    """Steps to go once through some polynomials: each term has a power for every variable."""
    return sum(4 * len(p) + sum(map(len, p)) // 16 for p in polynomials)


def _spared(
    polynomials: Sequence[Polynomial],
    whole: Board,
    largest: int,
    effort: Effort,
    known: dict[tuple[int, ...], Board],
) -> Board:
    """The board of all outputs, or a smaller one that reads some of them in entries of the others."""

    def build(few: Sequence[Polynomial]) -> Board:
        if len(few) == len(polynomials):
            return whole
        key = tuple(map(id, few))
        if key not in known:
            effort.spend(steps_of(few))
            known[key] = smallest(few, largest, effort=effort, known=known)
        return known[key]

    try:
        spared = with_spare_entries(polynomials, build, effort)
    except TooManyStatesError:
        return whole
    return min(whole, spared, key=lambda board: (board.size, board.weights))


def too_large(largest: int, got: str) -> ArgumentError:
    """The error for a matrix that would be too large."""
    return formula_error(
        f"small enough for a matrix of size {largest} (`largest`)",
        f"a polynomial that needs size {got}",
        "Write it with common factors, split it over several layers, or raise `largest`.",
    )


def _attempts(
    polynomials: Sequence[Polynomial], written: Sequence[Any] | None, letters: dict[Any, int] | None
) -> Iterator[Attempt]:
    def tries(lift: Callable[[Effort], Sequence[Words]], name: str, middle: bool) -> Iterator[Attempt]:
        def forward(most: int, effort: Effort) -> Board:
            return wired(lift(effort), (lambda word: len(word) // 2) if middle else len, most)

        yield f"{name}, sources shared", forward
        if len(polynomials) > 1:

            def backward(most: int, effort: Effort) -> Board:
                turned = [{word[::-1]: c for word, c in one.items()} for one in lift(effort)]
                return wired(turned, len, most).transposed()

            yield f"{name}, ends shared", backward

    def each(
        lift: Callable[[Polynomial, Sequence[int]], Words], order: Sequence[int], effort: Effort
    ) -> Sequence[Words]:
        # Words are cut at every place, and each piece is looked up.
        effort.spend(sum(1 + sum(powers) ** 2 // 32 for p in polynomials for powers in p))
        return [lift(p, order) for p in polynomials]

    variables = range(len(next(powers for p in polynomials for powers in p)))
    degree = sum(max(max((m[v] for m in p), default=0) for p in polynomials) for v in variables)
    short = max(sum(m) for p in polynomials for m in p) < degree <= _MOST_PADDED
    for order in variable_orders(polynomials):
        yield from tries(partial(each, in_order, order), "products in one order of the variables", True)
        if short:
            yield from tries(partial(each, padded, order), "a place for each variable", True)
    yield from tries(partial(sharing, polynomials), "shared products", False)
    yield "partial derivatives", lambda most, effort: derivatives(polynomials, min(most, 300), effort)
    if written is not None and letters is not None:
        for name, forms in _forms(written, polynomials):
            for front in (True, False):
                yield f"{name}, wired as written", partial(_as_written, forms, letters, front)


def _as_written(
    forms: Sequence[Any], letters: dict[Any, int], front: bool, most: int, effort: Effort
) -> Board:
    del effort  # the states alone
    return from_expressions(forms, letters, front, most)


def _forms(written: Sequence[Any], polynomials: Sequence[Polynomial]) -> Iterator[tuple[str, Sequence[Any]]]:
    import sympy

    yield "the given form", written
    terms = sum(len(p) for p in polynomials)
    degree = max(sum(powers) for p in polynomials for powers in p)
    names: dict[Any, Any] = {}
    named = [with_named_constants(one, names) for one in written]
    symbols = {s for one in named for s in one.free_symbols}
    if names:
        extents = [extent_of(one, len(symbols)) for one in named]
        terms, degree = sum(e.terms for e in extents), max(e.degree for e in extents)
    if terms > _MOST_FACTORED or terms * degree > _MOST_HORNER:
        return
    if degree <= _HIGHEST_FACTORED and len(symbols) <= _MOST_FACTORED_VARIABLES:
        yield "the factored form", [sympy.factor(one) for one in written]
    if len(symbols) <= _MOST_HORNER_VARIABLES:
        yield "the Horner form", [sympy.horner(sympy.expand(one)) for one in written]

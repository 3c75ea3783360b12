"""Entries of exp(M) that come for free.

A board built for one product also holds every stretch of it: x y z gives y z, x y and y in other entries.
Outputs that are combinations of such entries need readouts but no states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import cast

from mlayer.symbolic.compile.board import Board, Polynomial, Powers, Readout, add, powers_from
from mlayer.symbolic.compile.minimal import Span
from mlayer.symbolic.compile.step_budget import Effort

_MOST_STATES = 24
_MOST_TERMS = 4000


def with_spare_entries(
    polynomials: Sequence[Polynomial], build: Callable[[Sequence[Polynomial]], Board], effort: Effort
) -> Board:
    """A board of outputs that share: the highest degrees are built, others read where possible.

    Raises a TooManyStatesError if the effort does not suffice.
    """
    order = sorted(
        range(len(polynomials)),
        key=lambda m: (-max((sum(powers) for powers in polynomials[m]), default=0), -len(polynomials[m]), m),
    )
    core = order[:1]
    board = build([polynomials[m] for m in core])
    free: dict[int, dict[tuple[int, int], Fraction]] = {}
    for m in order[1:]:
        found = combination(board, polynomials[m], effort)
        if found is not None:
            free[m] = found
            continue
        core.append(m)
        board = build([polynomials[k] for k in core])
        # The new board has other entries.
        for k in list(free):
            again = combination(board, polynomials[k], effort)
            if again is None:
                core.append(k)
                del free[k]
                board = build([polynomials[j] for j in core])
            else:
                free[k] = again
    for k in free:  # once more, for the last board
        last = combination(board, polynomials[k], effort)
        if last is None:
            return build(polynomials)
        free[k] = last
    readouts = [replace(r, output=core[r.output]) for r in board.readouts]
    constants = [Fraction(0)] * len(polynomials)
    for number, m in enumerate(core):
        constants[m] = board.constants[number]
    for m, entries in free.items():
        zero = (0,) * len(next(iter(polynomials[m]), ()))
        constants[m] = polynomials[m].get(zero, Fraction(0))
        readouts += [Readout(m, {i: value}, {j: Fraction(1)}) for (i, j), value in entries.items()]
    return Board(board.size, board.edges, readouts, constants, board.strategy + ", spare entries read")


def combination(
    board: Board, polynomial: Polynomial, effort: Effort
) -> dict[tuple[int, int], Fraction] | None:
    """Entries of exp(M) above the diagonal that add up to the polynomial without its constant, or None."""
    wanted = {powers: value for powers, value in polynomial.items() if any(powers)}
    if not wanted:
        return {}
    if board.size > _MOST_STATES:
        return None
    variables = len(next(iter(wanted)))
    span = Span(effort)
    places: list[tuple[int, int]] = []
    for i in range(board.size):
        row = entries_from(board, i, variables)
        if row is None:
            return None
        effort.spend(sum(len(entry) for entry in row.values()) * (1 + variables // 16))
        for j, entry in row.items():
            if j != i and entry:
                places.append((i, j))
                span.insert(len(places) - 1, cast(dict[object, Fraction], dict(entry)))
    rest, found = span.reduce(cast(dict[object, Fraction], dict(wanted)))
    return None if rest else {places[k]: value for k, value in found.items()}


def entries_from(board: Board, start: int, variables: int) -> dict[int, dict[Powers, Fraction]] | None:
    """Row `start` of exp(M) as polynomials; None if they have too many terms."""
    total: dict[int, dict[Powers, Fraction]] = {}
    for row in powers_from(board, start, variables):
        for j, polynomial in row.items():
            add(total.setdefault(j, {}), polynomial, Fraction(1))
        if sum(len(entry) for entry in total.values()) > _MOST_TERMS:
            return None
    return total

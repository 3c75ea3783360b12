"""The smallest board for a given order of the factors: states that depend linearly on others are removed.

Schutzenberger's reduction of a weighted automaton, in exact rational numbers: what can be read from a state
on, its future, is a vector; a state whose future is a combination of the futures of others is replaced by
that combination. Then the same for the pasts. What is left has as many states as the Hankel matrix of the
ordered polynomial has rank (Fliess), see docs/theory/formulas.md.
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction

from mlayer.symbolic.compile.board import Board, Readout, Vector, add, heights, renumbered
from mlayer.symbolic.compile.step_budget import Effort

_Signature = dict[Hashable, Fraction]


class Span:
    """Vectors in echelon form, each with its combination of the vectors that were put in."""

    def __init__(self, effort: Effort | None = None) -> None:
        self._effort = effort
        self._rows: list[tuple[_Signature, Vector]] = []
        self._row_of: dict[Hashable, int] = {}  # pivot -> row

    def reduce(self, vector: _Signature) -> tuple[_Signature, Vector]:
        """The remainder of the vector, and the combination that was subtracted."""
        rest, combination = dict(vector), dict[int, Fraction]()
        while hits := [self._row_of[key] for key in rest if key in self._row_of]:
            row, members = self._rows[min(hits)]
            pivot = next(iter(row))
            factor = rest[pivot]
            if self._effort is not None:
                self._effort.spend_on(len(row) + len(members) + len(rest) // 8, factor)
            add(rest, row, -factor)
            add(combination, members, factor)
        return rest, combination

    def insert(self, name: int, vector: _Signature) -> Vector | None:
        """Put a vector in; if the span has it already, its combination of those that are in."""
        rest, combination = self.reduce(vector)
        if not rest:
            return combination
        pivot = next(iter(rest))
        scale = 1 / rest[pivot]
        members = {name: scale}
        add(members, combination, -scale)
        self._row_of[pivot] = len(self._rows)
        self._rows.append(({key: scale * value for key, value in rest.items()}, members))
        return None


def minimal(board: Board, effort: Effort | None = None) -> Board:
    """The same function with the fewest states for its order of factors."""
    board = _without_dead_ends(board)
    board = _merged(board, effort)
    return _merged(board.transposed(), effort).transposed()


def _merged(board: Board, effort: Effort | None) -> Board:
    """Replace states by combinations of states with the same future in all readouts."""
    height = heights(board)
    targets: dict[int, dict[int, Fraction]] = {}  # state -> readout -> value
    for number, readout in enumerate(board.readouts):
        for state, value in readout.target.items():
            targets.setdefault(state, {})[number] = value
    span = Span(effort)
    became: dict[int, Vector] = {}
    kept: list[int] = []
    edges: dict[int, dict[int, dict[int, Fraction]]] = {}
    # By height: a state then only becomes a combination of states that are no higher, and M stays
    # strictly triangular.
    for i in sorted(range(board.size), key=lambda i: (height[i], i)):
        row: dict[int, dict[int, Fraction]] = {}
        for k, form in board.edges.get(i, {}).items():
            for j, factor in became[k].items():
                add(row.setdefault(j, {}), form, factor)
        signature: _Signature = {("read", f): value for f, value in targets.get(i, {}).items()}
        signature |= {(j, letter): value for j, form in row.items() for letter, value in form.items()}
        combination = span.insert(i, signature)
        if combination is None:
            became[i] = {i: Fraction(1)}
            kept.append(i)
            edges[i] = row
        else:
            became[i] = combination
    readouts = []
    for readout in board.readouts:
        source: Vector = {}
        for i, value in readout.source.items():
            add(source, became[i], value)
        readouts.append(Readout(readout.output, source, readout.target))
    merged = Board(board.size, edges, readouts, list(board.constants), board.strategy)
    return renumbered(merged, reversed(kept))


def _without_dead_ends(board: Board) -> Board:
    """Only states that lie on a path from a source to a target."""
    forward = {i: [j for j, form in row.items() if form] for i, row in board.edges.items()}
    backward: dict[int, list[int]] = {}
    for i, row in forward.items():
        for j in row:
            backward.setdefault(j, []).append(i)
    used = _reached({i for r in board.readouts for i in r.source}, forward)
    used &= _reached({i for r in board.readouts for i in r.target}, backward)
    return renumbered(board, sorted(used))


def _reached(start: set[int], steps: dict[int, list[int]]) -> set[int]:
    found, todo = set(start), list(start)
    while todo:
        for j in steps.get(todo.pop(), ()):
            if j not in found:
                found.add(j)
                todo.append(j)
    return found

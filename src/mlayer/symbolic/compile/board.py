"""The breadboard: an M-layer in exact rational numbers, as a graph whose paths are products.

States are the rows of M, an edge i -> j carries the entry M_ij, a linear form in the inputs and 1. Entry
(i, j) of exp(M) is the sum over all paths from i to j of the product of their edges over (length)!, so that

    p_m(x) = V_m + sum over readouts f of output m:  source_f^T exp(M(x)) target_f.

The theory is in docs/theory/formulas.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from graphlib import TopologicalSorter
from typing import TypeVar

# A word is a product in a fixed order; its letters are the numbers of the variables, or ONE.
ONE = -1
Word = tuple[int, ...]
Vector = dict[int, Fraction]  # state -> number
Form = dict[int, Fraction]  # letter -> coefficient
Words = Mapping[Word, Fraction]
Powers = tuple[int, ...]
Polynomial = Mapping[Powers, Fraction]
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Readout:
    """source^T exp(M) target, added to one output."""

    output: int
    source: Vector
    target: Vector


@dataclass
class Board:
    """An exact M-layer with a nilpotent M."""

    size: int = 0  # n, states
    edges: dict[int, dict[int, Form]] = field(default_factory=dict)  # state -> {state: form}
    readouts: list[Readout] = field(default_factory=list)  # what is read where
    constants: list[Fraction] = field(default_factory=list)  # V, one per output
    strategy: str = ""  # how it was found, for people

    def state(self) -> int:
        """A new state."""
        self.size += 1
        return self.size - 1

    def connect(self, i: int, j: int, form: Mapping[int, Fraction]) -> None:
        """Add a form to the edge i -> j."""
        add(self.edges.setdefault(i, {}).setdefault(j, {}), form, Fraction(1))

    @property
    def weights(self) -> int:
        """Numbers in M that are not 0."""
        return sum(len(form) for row in self.edges.values() for form in row.values())

    @property
    def depth(self) -> int:
        """Length of the longest path: M^(depth + 1) = 0."""
        return max(heights(self), default=0)

    def transposed(self) -> Board:
        """The board read from the end: M and S transposed, the same function."""
        other = Board(self.size, {}, [], list(self.constants), self.strategy)
        for i, row in self.edges.items():
            for j, form in row.items():
                other.edges.setdefault(j, {})[i] = dict(form)
        other.readouts = [Readout(r.output, dict(r.target), dict(r.source)) for r in self.readouts]
        return other


def add(total: dict[_Key, Fraction], other: Mapping[_Key, Fraction], factor: Fraction) -> None:
    """Add factor * other to the total, in place; zeros are dropped."""
    for key, value in other.items():
        new = total.get(key, Fraction(0)) + factor * value
        if new:
            total[key] = new
        else:
            total.pop(key, None)


def heights(board: Board) -> list[int]:
    """Longest path out of each state."""
    height = [0] * board.size
    after = {i: board.edges.get(i, ()) for i in range(board.size)}
    for i in TopologicalSorter(after).static_order():  # what a state leads to comes before it
        height[i] = 1 + max((height[j] for j in after[i]), default=-1)
    return height


def powers_from(board: Board, start: int, variables: int) -> Iterator[dict[int, dict[Powers, Fraction]]]:
    """Row ``start`` of M^k / k! as polynomials by state, for k = 0, 1, ... up to the last that is not 0."""
    row: dict[int, dict[Powers, Fraction]] = {start: {(0,) * variables: Fraction(1)}}
    length = 0
    while row:
        yield row
        length += 1
        after: dict[int, dict[Powers, Fraction]] = {}
        for i, polynomial in row.items():
            for j, form in board.edges.get(i, {}).items():
                for letter, coefficient in form.items():
                    times = {_times(powers, letter): value for powers, value in polynomial.items()}
                    add(after.setdefault(j, {}), times, coefficient / length)
        row = {j: polynomial for j, polynomial in after.items() if polynomial}


def _times(powers: Powers, letter: int) -> Powers:
    if letter == ONE:
        return powers
    return (*powers[:letter], powers[letter] + 1, *powers[letter + 1 :])


def renumbered(board: Board, states: Iterable[int]) -> Board:
    """The board with only the given states, numbered in their order."""
    number = {state: k for k, state in enumerate(states)}

    def kept(vector: Vector) -> Vector:
        return {number[i]: value for i, value in vector.items() if i in number}

    edges: dict[int, dict[int, Form]] = {}
    for i, row in board.edges.items():
        if i in number:
            new = {number[j]: dict(form) for j, form in row.items() if j in number and form}
            if new:
                edges[number[i]] = new
    readouts = [Readout(r.output, kept(r.source), kept(r.target)) for r in board.readouts]
    readouts = [r for r in readouts if r.source and r.target]
    return Board(len(number), edges, readouts, list(board.constants), board.strategy)

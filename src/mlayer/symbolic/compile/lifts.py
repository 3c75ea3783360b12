"""From polynomials to boards: a lift fixes the order of the factors of every product.

A polynomial in commuting variables is the commutative image of many polynomials in words; each choice of
words is a board, and `minimal` makes it as small as that choice allows. Here are the choices that are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import factorial

from mlayer.symbolic.compile.board import ONE, Board, Polynomial, Powers, Readout, Word, Words
from mlayer.symbolic.compile.step_budget import Effort, TooManyStatesError

_ZERO, _UNIT = Fraction(0), Fraction(1)


def wired(outputs: Sequence[Words], cut: Callable[[Word], int], most: int) -> Board:
    """Two tries, of prefixes from one source and of suffixes to one sink, met by the letters between.

    ``cut`` says how many letters of a word belong to the prefix; the next one is the bridge.
    """
    board = Board(constants=[_ZERO] * len(outputs))
    root = board.state()
    # With one output the end of a word is a state; with more, each output needs its own end.
    sinks = [board.state() for _ in outputs]
    prefixes: dict[tuple[int, ...], int] = {(): root}
    suffixes: dict[tuple[int, tuple[int, ...]], int] = {(m, ()): sink for m, sink in enumerate(sinks)}
    for m, words in enumerate(outputs):
        for word, coefficient in words.items():
            if not word:
                board.constants[m] += coefficient
                continue
            middle = min(cut(word), len(word) - 1)
            for k in range(1, middle + 1):
                if word[:k] not in prefixes:
                    prefixes[word[:k]] = board.state()
                    board.connect(prefixes[word[: k - 1]], prefixes[word[:k]], {word[k - 1]: _UNIT})
            for k in range(len(word) - 1, middle, -1):
                if (m, word[k:]) not in suffixes:
                    suffixes[m, word[k:]] = board.state()
                    board.connect(suffixes[m, word[k:]], suffixes[m, word[k + 1 :]], {word[k]: _UNIT})
            if board.size > most:
                raise TooManyStatesError
            # The path has len(word) steps, which the exponential divides by len(word)!.
            weight = coefficient * factorial(len(word))
            board.connect(prefixes[word[:middle]], suffixes[m, word[middle + 1 :]], {word[middle]: weight})
    board.readouts = [Readout(m, {root: _UNIT}, {sink: _UNIT}) for m, sink in enumerate(sinks)]
    return board


def in_order(polynomial: Polynomial, order: Sequence[int]) -> Words:
    """Every monomial written in one order of the variables."""
    return {
        tuple(v for v in order for _ in range(powers[v])): coefficient
        for powers, coefficient in polynomial.items()
    }


def padded(polynomial: Polynomial, order: Sequence[int]) -> Words:
    """Every monomial with a place for each variable; 1 stands where a variable is missing.

    For multilinear polynomials this is the tensor train of their coefficients.
    """
    most = {v: max((powers[v] for powers in polynomial), default=0) for v in order}
    return {
        tuple(v if k < powers[v] else ONE for v in order for k in range(most[v])): coefficient
        for powers, coefficient in polynomial.items()
    }


def sharing(polynomials: Sequence[Polynomial], effort: Effort) -> list[Words]:
    """Orders chosen one monomial after the other, each to begin with the longest product there is."""
    known: dict[Powers, tuple[int, ...]] = {}
    chosen: list[dict[tuple[int, ...], Fraction]] = [{} for _ in polynomials]
    entries = [(powers, m, c) for m, p in enumerate(polynomials) for powers, c in p.items()]
    count = [sum(powers[v] > 0 for powers, _, _ in entries) for v in range(len(entries[0][0]))]
    for powers, m, coefficient in sorted(entries, key=lambda entry: (sum(entry[0]), entry[0])):
        effort.spend((len(known) + sum(powers)) * (1 + len(powers) // 16))
        fitting = [base for base in known if all(b <= p for b, p in zip(base, powers, strict=True))]
        base = max(fitting, key=lambda b: (sum(b), b), default=(0,) * len(powers))
        word = known.get(base, ())
        left = [p - b for b, p in zip(base, powers, strict=True)]
        for v in sorted(range(len(powers)), key=lambda v: -count[v]):
            for _ in range(left[v]):
                word = (*word, v)
                reached = tuple(word.count(u) for u in range(len(powers)))
                known.setdefault(reached, word)
        chosen[m][word] = coefficient
    return list(chosen)


def derivatives(polynomials: Sequence[Polynomial], most: int, effort: Effort) -> Board:
    """All orders with equal weight: p(x) = exp(x . d) p at 0, on the space that the partial derivatives span.

    Taylor's theorem as an M-layer; its generators commute.
    """
    board = Board(constants=[p.get((0,) * len(next(iter(p), ())), _ZERO) for p in polynomials])
    states: dict[tuple[tuple[Powers, Fraction], ...], int] = {}
    sink: dict[int, Fraction] = {}

    def state(q: dict[Powers, Fraction]) -> tuple[int, Fraction]:
        """The state of q up to a factor, and the factor."""
        terms = sorted(q.items())
        lead = terms[-1][1]
        effort.spend_on(3 * len(terms), terms[len(terms) // 2][1] / lead)
        key = tuple((powers, c / lead) for powers, c in terms)
        if key not in states:
            if board.size >= most:
                raise TooManyStatesError
            states[key] = board.state()
            at_zero = q.get((0,) * len(terms[0][0]), _ZERO) / lead
            if at_zero:
                sink[states[key]] = at_zero
            todo.append((states[key], {powers: c / lead for powers, c in terms}))
        return states[key], lead

    todo: list[tuple[int, dict[Powers, Fraction]]] = []
    sources = []
    for p in polynomials:
        rest = {powers: c for powers, c in p.items() if any(powers)}
        sources.append(state(rest) if rest else None)
        while todo:
            i, q = todo.pop()
            effort.spend(len(q) * len(next(iter(q))) // 16)
            for v in range(len(next(iter(q)))):
                derived = {
                    (*powers[:v], powers[v] - 1, *powers[v + 1 :]): c * powers[v]
                    for powers, c in q.items()
                    if powers[v]
                }
                if derived:
                    j, factor = state(derived)
                    board.connect(i, j, {v: factor})
    for m, source in enumerate(sources):
        if source is not None:
            board.readouts.append(Readout(m, {source[0]: source[1]}, sink))
    return board


def variable_orders(polynomials: Sequence[Polynomial]) -> Iterator[list[int]]:
    """Orders of the variables worth trying: as given, by how often they occur, both ways."""
    count = len(next(powers for p in polynomials for powers in p))
    often = [sum(powers[v] for p in polynomials for powers in p) for v in range(count)]
    given = list(range(count))
    seen: list[list[int]] = []
    for order in (given, sorted(given, key=lambda v: -often[v]), sorted(given, key=lambda v: often[v])):
        for one in (order, order[::-1]):
            if one not in seen:
                seen.append(one)
                yield one

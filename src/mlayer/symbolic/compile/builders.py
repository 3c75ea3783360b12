"""Layers for functions worth having by name.

The constructions of the determinant and what bounds them from below are in docs/theory/formulas.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mlayer.checks import brief
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.nn import MLayer
from mlayer.nn.arguments import as_dtype
from mlayer.symbolic.compile.board import Board, Readout
from mlayer.symbolic.compile.minimal import minimal
from mlayer.symbolic.compile.polynomial import PolynomialPlan
from mlayer.symbolic.compile.to_layer import Block
from mlayer.symbolic.parse.expressions import is_sympy, read_expressions, sympy_module
from mlayer.symbolic.parse.lists import listed
from mlayer.symbolic.parse.rationals import exact

_UNIT = Fraction(1)
_X, _Y, _Z = np.array([[0, 1], [1, 0]]), np.array([[0, 1], [-1, 0]]), np.array([[1, 0], [0, -1]])
_LARGEST_DETERMINANT = 12
_LARGEST_PERMANENT = 9
_MOST_NUMBERS = 512  # cosines: a matrix of twice as many rows


def determinant(k: int, *, dtype: torch.dtype | None = None) -> MLayer:
    """The determinant of a k x k matrix, given row by row.

    >>> import torch
    >>> layer = determinant(5, dtype=torch.float64)
    >>> A = torch.eye(5, dtype=torch.float64) * 2
    >>> layer.matrix_size, round(layer(A.flatten()).item(), 6)
    (24, 32.0)
    """
    return determinant_plan(k).build(dtype)


def determinant_plan(k: int) -> PolynomialPlan:
    """The plan of :func:`determinant`: the smallest of three boards."""
    _check_size("k", k, _LARGEST_DETERMINANT)
    builds: list[tuple[str, Callable[[int], Board]]] = [
        ("anticommuting matrices", _by_anticommuting_matrices),
        ("closed walks", _by_closed_walks),
    ]
    if k <= 6:
        builds.insert(0, ("subsets of columns", lambda k: _by_subsets(k, signed=True)))
    boards = []
    for strategy, build in builds:
        board = minimal(build(k))
        board.strategy = strategy
        boards.append(board)
    return _planned(k, min(boards, key=lambda board: (board.size, board.weights)), "det")


def permanent(k: int, *, dtype: torch.dtype | None = None) -> MLayer:
    """The permanent of a k x k matrix, given row by row; n = 2^k."""
    return permanent_plan(k).build(dtype)


def permanent_plan(k: int) -> PolynomialPlan:
    """The plan of :func:`permanent`."""
    _check_size("k", k, _LARGEST_PERMANENT)
    board = _by_subsets(k, signed=False)
    board.strategy = "subsets of columns"
    return _planned(k, board, "per")


def elementary_symmetric(k: int, m: int, *, dtype: torch.dtype | None = None) -> MLayer:
    """The sum of all products of m of k inputs.

    >>> import torch
    >>> elementary_symmetric(4, 2)(torch.ones(4)).round().item()
    6.0
    """
    _check_size("k", k, 60)
    _check_size("m", m, k)
    sympy = sympy_module()
    symbols = sympy.symbols(f"x0:{k}")
    # Read from the left: a state knows how many factors it has and which variable was the last.
    board = Board(constants=[Fraction(0)])
    states = {(0, -1): board.state()}
    for count in range(1, m):
        for last in range(count - 1, k - m + count):
            states[count, last] = board.state()
    end = board.state()
    for (count, last), i in list(states.items()):
        for v in range(last + 1, k - m + count + 1):
            j = end if count + 1 == m else states[count + 1, v]
            board.connect(i, j, {v: _UNIT})
    board.readouts = [Readout(0, {0: _UNIT}, {end: Fraction(math.factorial(m))})]
    board = minimal(board)
    board.strategy = "variables from left to right"
    expression = sympy.Symbol(f"e_{m}")
    return _plan_of_board(board, symbols, expression, m, math.comb(k, m)).build(dtype)


def rotation(omega: float, *, dtype: torch.dtype | None = None) -> MLayer:
    """cos(omega t) and sin(omega t) of one input t (section 3.4 of the paper).

    >>> import torch
    >>> rotation(torch.pi)(torch.tensor([0.5])).round(decimals=3).abs()
    tensor([0., 1.], grad_fn=<AbsBackward0>)
    """
    omega = _number("omega", omega)
    dtype = as_dtype(dtype)
    T = torch.tensor([[[0.0, -omega], [omega, 0.0]]], dtype=dtype)
    S = torch.zeros(2, 2, 2, dtype=dtype)
    S[0, 0, 0] = S[1, 1, 0] = 1
    return MLayer.from_weights(T, S, structure="skew")


def sum_of_cosines(
    amplitudes: Sequence[float],
    frequencies: Sequence[float],
    phases: Sequence[float] | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> MLayer:
    """The sum of amplitude cos(frequency t + phase) of one input t; a block of 2 rows each.

    >>> import torch
    >>> wave = sum_of_cosines([2.0, 1.0], [3.0, 5.0], [0.0, 0.5], dtype=torch.float64)
    >>> wave.matrix_size
    4
    """
    amplitudes, frequencies = _list("amplitudes", amplitudes), _list("frequencies", frequencies)
    phases = [0.0] * len(amplitudes) if phases is None else _list("phases", phases)
    if not amplitudes or not len(amplitudes) == len(frequencies) == len(phases):
        raise ArgumentError(
            "amplitudes, frequencies and phases",
            "of one length, 1 or more",
            f"{len(amplitudes)}, {len(frequencies)} and {len(phases)}",
            "Give one of each for every cosine.",
        )
    n = 2 * len(amplitudes)
    T, S = torch.zeros(1, n, n, dtype=torch.float64), torch.zeros(1, n, n, dtype=torch.float64)
    for k, numbers in enumerate(zip(amplitudes, frequencies, phases, strict=True)):
        a, w, p = (
            _number(name, value)
            for name, value in zip(("amplitudes", "frequencies", "phases"), numbers, strict=True)
        )
        i, j = 2 * k, 2 * k + 1
        T[0, i, j], T[0, j, i] = -w, w
        # a cos(w t + p) = a cos p cos(w t) - a sin p sin(w t), halves from both diagonals.
        S[0, i, i] = S[0, j, j] = a * math.cos(p) / 2
        S[0, j, i], S[0, i, j] = -a * math.sin(p) / 2, a * math.sin(p) / 2
    dtype = as_dtype(dtype)
    return MLayer.from_weights(T.to(dtype), S.to(dtype), structure="skew")


def rigid_body_rotation(
    start: Sequence[float] = (1.0, 0.0, 0.0), *, dtype: torch.dtype | None = None
) -> MLayer:
    """Turn a vector about the axis that is the input, for unit time (section 3.6 of the paper).

    >>> import torch
    >>> about_z = rigid_body_rotation()(torch.tensor([0.0, 0.0, torch.pi]))
    >>> torch.allclose(about_z, torch.tensor([-1.0, 0.0, 0.0]), atol=1e-6)
    True
    """
    numbers = [_number("start", value) for value in _list("start", start)]
    if len(numbers) != 3:
        raise ArgumentError("start", "a vector of 3 numbers", f"{len(numbers)}", "For example (1, 0, 0).")
    dtype = as_dtype(dtype)
    T = torch.zeros(3, 3, 3, dtype=dtype)
    T[0, 1, 2] = T[1, 2, 0] = T[2, 0, 1] = 1
    T[2, 1, 0] = T[1, 0, 2] = T[0, 2, 1] = -1
    S = torch.zeros(3, 3, 3, dtype=dtype)
    for m in range(3):
        S[m, m] = torch.tensor(numbers, dtype=dtype)
    return MLayer.from_weights(T, S, structure="skew")


# ---- Boards of the determinant. ----------------------------------------------------------------------


def _by_subsets(k: int, signed: bool) -> Board:
    """Expansion by rows: a state is the set of columns used so far. 2^k states."""
    board = Board(constants=[Fraction(0)])
    states = {used: board.state() for size in range(k + 1) for used in itertools.combinations(range(k), size)}
    for used, i in states.items():
        for column in set(range(k)) - set(used):
            sign = (-1) ** sum(other > column for other in used) if signed else 1
            board.connect(i, states[tuple(sorted((*used, column)))], {len(used) * k + column: Fraction(sign)})
    end = states[tuple(range(k))]
    board.readouts = [Readout(0, {0: _UNIT}, {end: Fraction(math.factorial(k))})]
    return board


def _by_anticommuting_matrices(k: int) -> Board:
    """Det A = trace of the product over the rows of sum_j A_rj g_j, up to a factor, for odd k.

    The g_j are k anticommuting matrices of size 2^((k - 1) / 2). For even k the last column is used once,
    at any of the rows, and the others in an odd determinant: states are doubled by whether it was.
    """
    odd = k if k % 2 else k - 1
    matrices = _anticommuting(odd)
    gammas, N = [matrix.tolist() for matrix in matrices], len(matrices[0])
    trace = int(np.trace(reduce(np.matmul, matrices)))
    board = Board(constants=[Fraction(0)])
    flags = (0,) if k % 2 else (0, 1)
    states = {
        (level, flag, i): board.state()
        for level in range(k + 1)
        for flag in flags
        if not (flag == 1 and level == 0) and not (k % 2 == 0 and flag == 0 and level == k)
        for i in range(N)
    }
    for (level, flag, i), here in states.items():
        if level == k:
            continue
        for j in range(N):
            form = {level * k + c: Fraction(g[i][j]) for c, g in enumerate(gammas) if g[i][j]}
            if form and (level + 1, flag, j) in states:
                board.connect(here, states[level + 1, flag, j], form)
        if k % 2 == 0 and flag == 0:
            sign = (-1) ** (level + k - 1)
            board.connect(here, states[level + 1, 1, i], {level * k + k - 1: Fraction(sign)})
    weight = Fraction(math.factorial(k), trace)
    board.readouts = [
        Readout(0, {states[0, 0, i]: _UNIT}, {states[k, flags[-1], i]: weight}) for i in range(N)
    ]
    return board


def _by_closed_walks(k: int) -> Board:
    """Mahajan and Vinay's sum over sequences of closed walks: of the order of k^3 states."""
    board = Board(constants=[Fraction(0)])
    states: dict[tuple[int, int, int], int] = {}

    def state(level: int, head: int, at: int) -> int:
        if (level, head, at) not in states:
            states[level, head, at] = board.state()
        return states[level, head, at]

    end = board.state()
    for level in range(k):
        for head in range(k):
            for at in range(head, k):
                here = state(level, head, at)
                if level == k - 1:
                    board.connect(here, end, {at * k + head: Fraction(-1)})
                    continue
                for to in range(head + 1, k):
                    board.connect(here, state(level + 1, head, to), {at * k + to: _UNIT})
                for new in range(head + 1, k):  # close this walk, begin the next at a later head
                    board.connect(here, state(level + 1, new, new), {at * k + head: Fraction(-1)})
    source = {state(0, head, head): _UNIT for head in range(k)}
    board.readouts = [Readout(0, source, {end: Fraction((-1) ** k * math.factorial(k))})]
    return board


def _anticommuting(count: int) -> list[NDArray[np.int64]]:
    """An odd number of real anticommuting matrices whose product is a multiple of the unit matrix."""
    if count == 1:
        return [np.ones((1, 1), dtype=np.int64)]
    inner = _anticommuting(count - 2)
    unit = np.eye(len(inner[0]), dtype=np.int64)
    return [np.kron(g, _X) for g in inner] + [np.kron(unit, _Y), np.kron(unit, _Z)]


def _planned(k: int, board: Board, name: str) -> PolynomialPlan:
    sympy = sympy_module()
    symbols = sympy.symbols(f"a0:{k}_0:{k}")
    return _plan_of_board(board, symbols, sympy.Symbol(name), k, math.factorial(k))


def _plan_of_board(
    board: Board, symbols: Sequence[Any], expression: Any, degree: int, monomials: int
) -> PolynomialPlan:
    zeros = (Fraction(0),) * len(symbols)
    # Of a plain breadboard that shares beginnings in the order of the variables: all partial products.
    partial = (
        sum(math.perm(degree, r) for r in range(2, degree + 1))
        if monomials == math.factorial(degree)
        else (sum(math.comb(len(symbols) - degree + r, r) for r in range(2, degree + 1)))
    )
    products = len(symbols) + partial
    return PolynomialPlan(
        tuple(symbols),
        (expression,),
        (Block(board, zeros, zeros),),
        (Fraction(0),),
        degree,
        monomials,
        products,
    )


def _check_size(name: str, k: Any, most: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int):
        raise ArgumentTypeError(name, "an integer", type(k).__name__, "For example 3.")
    if not 1 <= k <= most:
        raise ArgumentError(name, f"from 1 to {most}", brief(k), "The matrix grows fast with it.")


def _list(name: str, values: Any) -> list[Any]:
    return listed(name, values, "several numbers", _MOST_NUMBERS, "For example [1.0, 2.0].")


def _number(name: str, value: Any) -> float:
    try:
        if is_sympy(value):  # pi/2, say
            value = exact(read_expressions([value], [])[0])
        elif isinstance(value, np.generic | np.ndarray) and np.iscomplexobj(value):  # would lose a part
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ArgumentTypeError(name, "real numbers", brief(value), "For example 3.0.") from None
    if not math.isfinite(number):
        raise ArgumentError(name, "finite", str(number), "For example 3.0.")
    return number

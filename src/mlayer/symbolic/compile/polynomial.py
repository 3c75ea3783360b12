"""`from_polynomial`: formulas in, an exact layer out; and `plan`: how large it will be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from mlayer.checks import positive_integer
from mlayer.nn import MLayer
from mlayer.nn.arguments import as_dtype
from mlayer.symbolic.compile.board import Board, Readout
from mlayer.symbolic.compile.search import smallest, too_large
from mlayer.symbolic.compile.step_budget import Effort
from mlayer.symbolic.compile.to_layer import Block, layer_of
from mlayer.symbolic.compile.wave_terms import Rates, Wave, growth_and_frequency, waves_of
from mlayer.symbolic.parse.expanded_size import (
    MOST_POWERS,
    check_extent,
    check_powers,
    check_terms,
    extent_of,
)
from mlayer.symbolic.parse.expressions import read_expressions, read_variables, sympy_module
from mlayer.symbolic.parse.formula_error import formula_error

# Of the matrix: the compiled kernel knows nilpotent matrices up to this size.
LARGEST = 1024


@dataclass(frozen=True)
class PolynomialPlan:
    """The plan of a compiled formula: an M-layer in exact numbers.

    Attributes:
        variables: sympy symbols, the inputs in order.
        expressions: what is computed, one per output.
        blocks: boards along the diagonal of M.
        constants: V.
        degree: of the polynomials.
        monomials: of the polynomials, counted once.
        products: features, intermediate and final products of a plain breadboard, counted once.
    """

    variables: tuple[Any, ...]
    expressions: tuple[Any, ...]
    blocks: tuple[Block, ...]
    constants: tuple[Fraction, ...]
    degree: int
    monomials: int
    products: int

    @property
    def matrix_size(self) -> int:
        """n, the size of M."""
        return max(1, sum(block.size for block in self.blocks))

    @property
    def depth(self) -> int:
        """The longest product: beyond it the powers of a nilpotent M are 0."""
        return max((block.board.depth for block in self.blocks), default=0)

    @property
    def weights(self) -> int:
        """Numbers in T, B and S that are not 0."""
        layer = self.build(torch.float64)
        tensors = [layer.generators, layer.readout, layer.matrix_bias, layer.output_bias]
        return sum(int(t.count_nonzero()) for t in tensors if t is not None)

    @property
    def parameters(self) -> int:
        """The number of parameters of the layer as a torch module."""
        return sum(p.numel() for p in self.build(torch.float64).parameters())

    @property
    def products_bound(self) -> int:
        """The text's breadboard: one more than features plus intermediate and final products."""
        return self.products + 1

    @property
    def monomial_bound(self) -> int:
        """The text's construction, one block per monomial: t d^2 + 1."""
        return self.monomials * self.degree**2 + 1

    @property
    def strategy(self) -> str:
        """The name of the method that gave the smallest board."""
        return "; ".join(dict.fromkeys(block.board.strategy for block in self.blocks)) or "constant"

    def build(self, dtype: torch.dtype | None = None) -> MLayer:
        """The layer."""
        return layer_of(self.blocks, self.constants, len(self.variables), as_dtype(dtype))

    def __str__(self) -> str:
        """A description for people."""
        return (
            f"n = {self.matrix_size} (breadboard of the text: {self.products_bound}, "
            f"one block per monomial: {self.monomial_bound}), depth {self.depth}, "
            f"{self.weights} weights of {self.parameters} parameters; {self.strategy}"
        )


def plan(expressions: Any, variables: Any, *, largest: int = LARGEST) -> PolynomialPlan:
    """Wire formulas, given as to :func:`from_polynomial`, and say how large the layer will be.

    >>> print(plan("a*b*c*d", "a b c d").matrix_size)
    5
    """
    positive_integer("largest", largest)
    try:
        return _checked_plan(expressions, variables, largest)
    except RecursionError:
        raise formula_error(
            "nested less deeply",
            "one that goes beyond Python's stack",
            "Write it with fewer parentheses, or as a smaller power.",
        ) from None


def _checked_plan(expressions: Any, variables: Any, largest: int) -> PolynomialPlan:
    symbols = read_variables(variables)
    found = read_expressions(expressions, symbols)
    terms = 0
    for expression in found:
        degree = extent_of(expression, len(symbols)).degree
        if degree + 1 > largest:  # M^n = 0, so n is at least one more than the degree
            raise too_large(largest, f"{degree + 1} or more (its degree is {degree})")
        terms += check_extent(expression, len(symbols)).terms
    check_terms(terms)
    check_powers(terms, len(symbols))
    return _plan(symbols, found, largest)


def from_polynomial(
    expressions: Any, variables: Any, *, dtype: torch.dtype | None = None, largest: int = LARGEST
) -> MLayer:
    """A layer that computes polynomials exactly: rounding is the only error.

    M is nilpotent (where exponentials, sines or cosines occur, block diagonal with a nilpotent part), and as
    small as the search of :func:`plan` makes it.

    Args:
        expressions: one or several: strings or sympy expressions. Polynomials, and polynomials times exp,
            sin, cos, sinh or cosh of linear forms.
        variables: names or symbols: the inputs of the layer, in order.
        dtype: of the layer; torch's default if None.
        largest: the largest matrix allowed.

    >>> import torch
    >>> layer = from_polynomial(["x*y + 1", "x**2"], "x y")
    >>> layer(torch.tensor([[2.0, 3.0]])).round(decimals=4)
    tensor([[7., 4.]], grad_fn=<RoundBackward1>)
    """
    as_dtype(dtype)  # before the work
    return plan(expressions, variables, largest=largest).build(dtype)


def _plan(symbols: list[Any], expressions: list[Any], largest: int) -> PolynomialPlan:
    sympy = sympy_module()
    letters = {symbol: k for k, symbol in enumerate(symbols)}
    count = len(expressions)
    waves = waves_of(expressions, symbols)
    kinds: dict[Rates, list[Wave | None]] = {}
    for m, some in enumerate(waves):
        for wave in some:
            kinds.setdefault(wave.rates, [None] * count)[m] = wave
    _check_kinds(kinds, count, len(symbols), largest)
    effort = Effort()
    blocks, constants = [], [Fraction(0)] * count
    monomials: set[tuple[int, ...]] = set()
    for rates, members in kinds.items():
        growth, frequency = growth_and_frequency(rates, len(symbols))
        turns = any(frequency)
        polynomials: list[dict[tuple[int, ...], Fraction]] = []
        for member in members:
            polynomials.append({} if member is None else member.cosine)
            if turns:
                polynomials.append({} if member is None else member.sine)
        monomials |= {powers for p in polynomials for powers in p}
        still = not turns and not any(growth)
        pure = still and len(kinds) == 1 and all(not e.has(sympy.Function, sympy.exp) for e in expressions)
        zero = (0,) * len(symbols)
        padding = [{zero: Fraction(0)} | p for p in polynomials]
        board = smallest(padding, largest, expressions if pure else None, letters if pure else None, effort)
        if still:
            constants = list(board.constants)
        else:
            board = _with_constants_inside(board)
        if board.size:
            blocks.append(Block(board, growth, frequency))
    size = sum(block.size for block in blocks)
    if size > largest:
        raise too_large(largest, str(size))
    return PolynomialPlan(
        tuple(symbols),
        tuple(expressions),
        tuple(blocks),
        tuple(constants),
        max((sum(powers) for powers in monomials), default=0),
        sum(any(powers) for powers in monomials),
        _products(monomials, len(symbols)),
    )


def _check_kinds(kinds: Iterable[Rates], outputs: int, variables: int, largest: int) -> None:
    """Raise if waves of different growth or frequency, a block each, are too many."""
    turns = [any(imaginary for _, _, imaginary in rates) for rates in kinds]
    least = sum(2 if one else 1 for one in turns)
    if len(turns) > 1 and least - 1 > largest:  # one may be without growth and frequency, and constant
        raise too_large(largest, f"{least - 1} or more")
    if len(turns) * outputs * variables > MOST_POWERS:
        raise formula_error(
            f"of at most {MOST_POWERS} different waves times outputs times variables",
            f"{len(turns)} waves, {outputs} outputs, {variables} variables",
        )


def _with_constants_inside(board: Board) -> Board:
    """A constant times a wave is read on the diagonal of exp(M), which holds the wave itself."""
    if board.size == 0:
        board.state()
    for m, value in enumerate(board.constants):
        if value:
            board.readouts.append(Readout(m, {0: value}, {0: Fraction(1)}))
    board.constants = [Fraction(0)] * len(board.constants)
    return board


def _products(monomials: set[tuple[int, ...]], count: int) -> int:
    """Features, intermediate and final products when each monomial is built factor by factor."""
    used = {v for powers in monomials for v in range(count) if powers[v]}
    made = {tuple(int(v == u) for u in range(count)) for v in used}
    for powers in monomials:
        partial = [0] * count
        for v in range(count):
            for _ in range(powers[v]):
                partial[v] += 1
                made.add(tuple(partial))
    return len(made)

"""From a board in exact numbers to the weights of a layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from mlayer.errors import ArgumentError
from mlayer.nn import MLayer
from mlayer.symbolic.compile.board import ONE, Board, heights
from mlayer.symbolic.parse.formula_error import formula_error

Entries = dict[tuple[int, int, int], Fraction]  # matrix, row, column -> number
_LEAST = 2.0**-1022  # below, a double has fewer digits
MOST_WEIGHTS = 2**27  # of a layer, zeros included: a gigabyte


@dataclass(frozen=True)
class Block:
    """A board times a wave: on its diagonal, growth . x + i frequency . x.

    With a frequency every output of the layer has two outputs of the board, the factors of cos and of sin.
    """

    board: Board
    growth: tuple[Fraction, ...]
    frequency: tuple[Fraction, ...]

    @property
    def turns(self) -> bool:
        """Whether there is a frequency."""
        return any(self.frequency)

    @property
    def size(self) -> int:
        """Rows of M that the block takes."""
        return self.board.size * (2 if self.turns else 1)


def layer_of(
    blocks: Sequence[Block],
    constants: Sequence[Fraction],
    variables: int,
    dtype: torch.dtype,
    embedding: tuple[Tensor, Tensor] | None = None,
) -> MLayer:
    """The layer of some blocks along the diagonal of M."""
    n = max(1, sum(block.size for block in blocks))
    outputs = len(constants)
    if (variables + 1 + outputs) * n * n > MOST_WEIGHTS:
        raise formula_error(
            f"small enough for a layer of {MOST_WEIGHTS} weights",
            f"{variables} variables and {outputs} outputs, a matrix of size {n} for each",
        )
    T = torch.zeros(variables + 1, n, n, dtype=torch.float64)  # the last one is B
    S = torch.zeros(outputs, n, n, dtype=torch.float64)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    first = 0
    for block in blocks:
        t, s = dense(block.board, variables, outputs * (2 if block.turns else 1))
        k = len(t[0])
        eye = torch.eye(k, dtype=torch.float64)
        rate = [as_weight(g) for g in block.growth]
        t[:variables] += torch.tensor(rate, dtype=torch.float64)[:, None, None] * eye
        if block.turns:
            unit = torch.eye(2, dtype=torch.float64)
            turning = torch.kron(eye, turn)
            t = torch.stack([torch.kron(one.contiguous(), unit) for one in t])
            frequency = torch.tensor([as_weight(f) for f in block.frequency], dtype=torch.float64)
            t[:variables] += frequency[:, None, None] * turning
            # exp(w x J) has cos in its first entry and sin below it.
            cosine, sine = torch.zeros_like(unit), torch.zeros_like(unit)
            cosine[0, 0] = sine[1, 0] = 1
            s = torch.stack(
                [torch.kron(s[2 * m], cosine) + torch.kron(s[2 * m + 1], sine) for m in range(outputs)]
            )
        last = first + block.size
        T[:, first:last, first:last] = t
        S[:, first:last, first:last] = s
        first = last
    nilpotent = n > 1 and bool((T.tril() == 0).all())
    V = torch.tensor([as_weight(c) for c in constants], dtype=torch.float64)
    return MLayer.from_weights(
        _in(dtype, T[:-1]),
        _in(dtype, S),
        matrix_bias=_in(dtype, T[-1]) if T[-1].any() else None,
        output_bias=_in(dtype, V) if V.any() else None,
        structure="nilpotent" if nilpotent else "full",
        embedding=None if embedding is None else _in(dtype, embedding[0]),
        embedding_bias=None if embedding is None else _in(dtype, embedding[1]),
    )


def entries(board: Board, variables: int) -> tuple[Entries, Entries]:
    """The numbers of M and S that are not 0, exact, by matrix, row and column; strictly upper triangular.

    Matrix number ``variables`` of M is B.
    """
    height = heights(board)
    order = sorted(range(board.size), key=lambda i: (-height[i], i))
    place = {state: k for k, state in enumerate(order)}
    M: Entries = {}
    for i, row in board.edges.items():
        for j, form in row.items():
            for letter, value in form.items():
                M[variables if letter == ONE else letter, place[i], place[j]] = value
    S: Entries = {}
    for readout in board.readouts:
        for i, a in readout.source.items():
            for j, b in readout.target.items():
                key = (readout.output, place[i], place[j])
                S[key] = S.get(key, Fraction(0)) + a * b
    return M, S


def balanced(M: Entries, S: Entries, size: int) -> list[int]:
    """Exponents of a diagonal similarity by powers of 2 after which the weights are of even size.

    No digit changes. The exponents are the least-squares solution that brings all of |T| to one size and all
    of |S| to 1: it spreads the factorials over the path. A weight of d! in one entry would raise the rounding
    error of all others, and not fit into a double from d = 171 on.
    """
    forward, back = _largest(M), _largest(S)
    if not forward:
        return [0] * size
    rows = torch.zeros(len(forward) + len(back), size + 1, dtype=torch.float64)  # the last: the size of |T|
    right = torch.zeros(len(rows), dtype=torch.float64)
    for row, ((i, j), log) in enumerate(forward.items()):
        rows[row, i] += 1
        rows[row, j] -= 1
        rows[row, size] = -1
        right[row] = -log
    for row, ((i, j), log) in enumerate(back.items(), start=len(forward)):
        rows[row, i] -= 1
        rows[row, j] += 1
        right[row] = -log
    gram = rows.mT @ rows + 1e-9 * torch.eye(size + 1, dtype=torch.float64)  # one scale is free
    return [int(e) for e in torch.linalg.solve(gram, rows.mT @ right)[:size].round().tolist()]


def _largest(entries: Entries) -> dict[tuple[int, int], float]:
    """The largest size at each place, over the matrices, as a power of 2."""
    sizes: dict[tuple[int, int], float] = {}
    for (_, i, j), value in sorted(entries.items(), key=lambda entry: entry[0][1:]):
        if value:
            log = math.log2(abs(value.numerator)) - math.log2(value.denominator)
            sizes[i, j] = max(sizes.get((i, j), -math.inf), log)
    return sizes


def dense(board: Board, variables: int, outputs: int) -> tuple[Tensor, Tensor]:
    """T with B as its last matrix, and S, of even size, in double precision."""
    M, reads = entries(board, variables)
    exponents = balanced(M, reads, board.size)
    T = torch.zeros(variables + 1, board.size, board.size, dtype=torch.float64)
    S = torch.zeros(outputs, board.size, board.size, dtype=torch.float64)
    # S : exp(M) is unchanged when exp(M) is scaled by D . D^-1 and S by its inverse.
    for tensor, found, sign in ((T, M, 1), (S, reads, -1)):
        for (number, i, j), value in found.items():
            tensor[number, i, j] = as_weight(value, sign * (exponents[i] - exponents[j]))
    return T, S


def as_weight(value: Fraction, exponent: int = 0) -> float:
    """The value times 2^exponent as a double, or an error if it is too large for one, or too small."""
    try:
        number = math.ldexp(float(value), exponent) if abs(exponent) < 900 else math.nan
    except OverflowError:
        number = math.nan
    if not abs(number) >= _LEAST and value:  # computed exactly where an intermediate double would overflow
        try:
            number = float(value * Fraction(2) ** exponent)
        except OverflowError:
            number = math.inf
    if math.isinf(number) or (value and abs(number) < _LEAST):
        raise _out_of_range("too large" if math.isinf(number) else "too small")
    return number


def _in(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    """The weights in the dtype of the layer, if they fit."""
    converted = tensor.to(dtype)
    if not converted.isfinite().all():
        raise _out_of_range(f"too large for {str(dtype).removeprefix('torch.')}")
    return converted


def _out_of_range(what: str) -> ArgumentError:
    return formula_error(
        "made of coefficients that the weights of a layer can hold",
        f"a weight that is {what}",
        "Scale the variables, take a smaller degree, or give dtype=torch.float64.",
    )

"""From a board in exact numbers to the weights of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from mlayer.nn import MLayer
from mlayer.symbolic.board import ONE, Board, heights


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
        """Is there a frequency?"""
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
    T = torch.zeros(variables + 1, n, n, dtype=torch.float64)  # the last one is B
    S = torch.zeros(outputs, n, n, dtype=torch.float64)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    first = 0
    for block in blocks:
        t, s = balanced(*dense(block.board, variables, outputs * (2 if block.turns else 1)))
        k = len(t[0])
        eye = torch.eye(k, dtype=torch.float64)
        rate = [float(g) for g in block.growth]
        t[:variables] += torch.tensor(rate, dtype=torch.float64)[:, None, None] * eye
        if block.turns:
            unit = torch.eye(2, dtype=torch.float64)
            turning = torch.kron(eye, turn)
            t = torch.stack([torch.kron(one.contiguous(), unit) for one in t])
            frequency = torch.tensor([float(f) for f in block.frequency], dtype=torch.float64)
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
    V = torch.tensor([float(c) for c in constants], dtype=torch.float64)
    return MLayer.from_weights(
        T[:-1].to(dtype),
        S.to(dtype),
        matrix_bias=T[-1].to(dtype) if T[-1].any() else None,
        output_bias=V.to(dtype) if V.any() else None,
        structure="nilpotent" if nilpotent else "full",
        embedding=None if embedding is None else embedding[0].to(dtype),
        embedding_bias=None if embedding is None else embedding[1].to(dtype),
    )


def dense(board: Board, variables: int, outputs: int) -> tuple[Tensor, Tensor]:
    """T with B as its last matrix, and S, strictly upper triangular; in double precision."""
    height = heights(board)
    order = sorted(range(board.size), key=lambda i: (-height[i], i))
    place = {state: k for k, state in enumerate(order)}
    T = torch.zeros(variables + 1, board.size, board.size, dtype=torch.float64)
    S = torch.zeros(outputs, board.size, board.size, dtype=torch.float64)
    for i, row in board.edges.items():
        for j, form in row.items():
            for letter, value in form.items():
                T[variables if letter == ONE else letter, place[i], place[j]] = float(value)
    total: dict[tuple[int, int, int], Fraction] = {}
    for readout in board.readouts:
        for i, a in readout.source.items():
            for j, b in readout.target.items():
                key = (readout.output, place[i], place[j])
                total[key] = total.get(key, Fraction(0)) + a * b
    for key, value in total.items():
        S[key] = float(value)
    return T, S


def balanced(T: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """The same function with weights of even size.

    A diagonal similarity, by powers of 2, so that no digit changes. Its logarithms are the least-squares
    solution that brings all of |T| to one size and all of |S| to 1: it spreads the factorials over the path.
    A weight of d! at one place would lift the rounding error of all others.
    """
    k = len(T[0])
    forward, back = T.abs().amax(0), S.abs().amax(0)
    edges, reads = forward.nonzero().tolist(), back.nonzero().tolist()
    if not edges:
        return T, S
    rows = torch.zeros(len(edges) + len(reads), k + 1, dtype=torch.float64)  # the last: the size of |T|
    right = torch.zeros(len(rows), dtype=torch.float64)
    for row, (i, j) in enumerate(edges):
        rows[row, i] += 1
        rows[row, j] -= 1
        rows[row, k] = -1
        right[row] = -forward[i, j].log2()
    for row, (i, j) in enumerate(reads, start=len(edges)):
        rows[row, i] -= 1
        rows[row, j] += 1
        right[row] = -back[i, j].log2()
    gram = rows.mT @ rows + 1e-9 * torch.eye(k + 1, dtype=torch.float64)  # one scale is free
    exponents = torch.linalg.solve(gram, rows.mT @ right)[:k].round()
    scale = torch.exp2(exponents)
    # S : exp(M) is unchanged when exp(M) is scaled by D . D^-1 and S by its inverse.
    return T * scale[:, None] / scale[None, :], S / scale[:, None] * scale[None, :]

"""Exact read-outs: polynomials of nilpotent layers, and polynomials times waves.

If M(x) = sum of blocks (k_c . x + b_c) 1 + N_c(x) in some basis, with N_c nilpotent, then the outputs are
sums of e^(k_c . x) times polynomials. Nilpotent layers have one block with k = 0; layers whose generators
commute (one input and no matrix bias, for instance) have such a basis too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from math import comb, factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from mlayer.errors import ArgumentError
from mlayer.numerics.arrays import Array
from mlayer.symbolic.compile.board import ONE, Board, add, heights, powers_from
from mlayer.symbolic.read.formula import LayerWeights

Complex = NDArray[np.complex128]
_MOST_WORK = 3_000_000
# Of a block: the null space of its power loses digits with the power.
_LARGEST_CONDITION = 1e7


def acyclic_board(weights: LayerWeights) -> Board | None:
    """The layer as a board, if the pattern of its M has no cycle (M is then nilpotent); else None."""
    pattern = (weights.T != 0).any(0) | (weights.B != 0)
    try:
        TopologicalSorter({i: np.flatnonzero(row).tolist() for i, row in enumerate(pattern)}).prepare()
    except CycleError:
        return None
    board = Board(size=len(pattern))
    for i, j in np.argwhere(pattern):
        form = {a: Fraction(float(T[i, j])) for a, T in enumerate(weights.T) if T[i, j]}
        if weights.B[i, j]:
            form[ONE] = Fraction(float(weights.B[i, j]))
        board.edges.setdefault(int(i), {})[int(j)] = form
    return board


def polynomials_of_board(board: Board, weights: LayerWeights) -> list[dict[tuple[int, ...], Fraction]]:
    """The outputs of a nilpotent layer as polynomials, in exact arithmetic on its weights."""
    variables, n = len(weights.T), len(weights.B)
    depth = max(heights(board), default=0)
    rows = [np.flatnonzero((S != 0).any(1)) for S in weights.S]
    edges = sum(len(row) for row in board.edges.values())
    terms = comb(variables + depth, variables)

    def too_many(terms: str) -> ArgumentError:
        return ArgumentError(
            "layer",
            "one whose polynomial can be written down",
            f"one of degree {depth} in {variables} inputs{terms}",
            "Give `degree` (and data) for an approximation of lower degree.",
        )

    if terms * (edges + n) > _MOST_WORK * 10:
        raise too_many(f": up to {terms} terms")
    results: list[dict[tuple[int, ...], Fraction]] = []
    for m, S in enumerate(weights.S):
        total: dict[tuple[int, ...], Fraction] = {}
        add(total, {(0,) * variables: Fraction(float(weights.V[m]))}, Fraction(1))
        for i in rows[m]:
            for row in powers_from(board, int(i), variables):
                if sum(len(p) for p in row.values()) > _MOST_WORK // 10:
                    raise too_many(" with too many terms")
                for j, polynomial in row.items():
                    if S[i, j]:
                        add(total, polynomial, Fraction(float(S[i, j])))
        results.append(total)
    return results


# ---- Waves. ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WaveBlock:
    """A block of M in a basis of invariant subspaces: rates times the identity plus a nilpotent part."""

    rates: Complex  # of each input, (inputs,)
    bias: complex  # the rate without inputs
    nilpotent: Complex  # what is left, of each input and then of the bias, (inputs + 1, size, size)
    readout: Complex  # (outputs, size, size)

    def values(self, points: Array) -> Complex:
        """The part of the outputs at points (count, inputs) that the block gives, (count, outputs)."""
        size = self.readout.shape[-1]
        inner = np.einsum("ca,aij->cij", np.column_stack([points, np.ones(len(points))]), self.nilpotent)
        power = np.broadcast_to(np.eye(size, dtype=np.complex128), inner.shape)
        total = power
        for degree in range(1, size):
            power = power @ inner / degree
            total = total + power
        waves = np.exp(points @ self.rates + self.bias)
        return np.asarray(waves[:, None] * np.einsum("mij,cij->cm", self.readout, total))

    @property
    def polynomials(self) -> list[dict[Any, complex]]:
        """For each output the polynomial that multiplies the wave, powers -> coefficient."""
        return _block_polynomials(self.nilpotent, self.readout)


def wave_blocks(weights: LayerWeights, gap: float) -> list[WaveBlock] | None:
    """The blocks of M, each a wave times a polynomial in the outputs, or None if M has no such basis.

    Eigenvalues nearer than ``gap`` (relative to the norm) count as one, whose polynomial then has a
    higher degree; there is no division by their difference. Parts of M that no entry connects are taken one
    by one: those of a table with groups have many products of two inputs, all with the eigenvalue 0, and the
    null space of so high a power would have no digits left.
    """
    parts = np.concatenate([weights.T, weights.B[None]])
    count, place = connected_components((parts != 0).any(0))
    blocks: list[WaveBlock] = []
    for component in range(count):
        rows = np.flatnonzero(place == component)
        found = _blocks_of(parts[:, rows[:, None], rows], weights.S[:, rows[:, None], rows], gap)
        if found is None:
            return None
        blocks += found
    return blocks


def _blocks_of(parts: Array, readout: Array, gap: float) -> list[WaveBlock] | None:
    """The blocks of a part of M: (inputs + 1, n, n), the bias last, with the readout (outputs, n, n)."""
    n = parts.shape[1]
    if not readout.any():
        return []
    # A generic combination has the common invariant subspaces, and no others.
    mix = np.random.default_rng(0).uniform(0.5, 1.5, len(parts))
    sizes = np.array([np.linalg.norm(part) for part in parts])
    if not sizes.any():
        return [
            WaveBlock(np.zeros(len(parts) - 1, complex), 0j, parts.astype(complex), readout.astype(complex))
        ]
    mix = np.where(sizes > 0, mix / np.where(sizes > 0, sizes, 1), 0)
    R = np.einsum("a,aij->ij", mix, parts).astype(np.complex128)
    clusters = _clusters(np.linalg.eigvals(R), gap * float(np.linalg.norm(R, 2)))
    bases = []
    for cluster in clusters:
        size = len(cluster)
        shifted = R - cluster.mean() * np.eye(n)
        # The generalized eigenspace: what the power of the shifted matrix sends to 0.
        _, _, Vh = np.linalg.svd(np.linalg.matrix_power(shifted, size))
        bases.append(Vh[n - size :].conj().T)
    P = np.concatenate(bases, 1)
    if not np.linalg.cond(P) < _LARGEST_CONDITION:
        return None
    inverse = np.linalg.inv(P)
    blocks = []
    first = 0
    for cluster in clusters:
        last = first + len(cluster)
        left, right = inverse[first:last], P[:, first:last]
        inner = np.stack([left @ part @ right for part in parts])
        rates = np.trace(inner, axis1=1, axis2=2) / len(cluster)
        nilpotent = inner - rates[:, None, None] * np.eye(len(cluster))
        S = np.einsum("mij,ia,bj->mab", readout, right, left)
        blocks.append(WaveBlock(rates[:-1], complex(rates[-1]), nilpotent, S))
        first = last
    return blocks


def _clusters(values: Complex, width: float) -> list[Complex]:
    """Eigenvalues in groups: chains of neighbors nearer than the width."""
    count, place = connected_components(np.abs(values[:, None] - values) <= width)
    return [values[place == group] for group in range(count)]


def _block_polynomials(inner: Complex, S: Complex) -> list[dict[Any, complex]]:
    """S : exp(N(x)) for nilpotent N(x) = sum_a x_a N_a + N_b, the last of `inner`."""
    variables, size = len(inner) - 1, inner.shape[1]
    zero = (0,) * variables
    power: dict[tuple[int, ...], Complex] = {zero: np.eye(size, dtype=np.complex128)}
    results: list[dict[Any, complex]] = [{} for _ in S]
    for degree in range(size):
        for powers, matrix in power.items():
            for m, one in enumerate(S):
                value = complex((one * matrix).sum()) / factorial(degree)
                results[m][powers] = results[m].get(powers, 0) + value
        after: dict[tuple[int, ...], Complex] = {}
        for powers, matrix in power.items():
            for a in range(variables + 1):
                if not np.abs(inner[a]).max() > 0:
                    continue
                key = powers if a == variables else (*powers[:a], powers[a] + 1, *powers[a + 1 :])
                product = matrix @ inner[a]
                after[key] = after[key] + product if key in after else product
        power = after
        if len(power) * size * size > _MOST_WORK:
            break
    return results


def term(powers: tuple[int, ...], symbols: list[Any]) -> Any:
    """A monomial in sympy."""
    import sympy

    return sympy.Mul(*[s**p for s, p in zip(symbols, powers, strict=True) if p])

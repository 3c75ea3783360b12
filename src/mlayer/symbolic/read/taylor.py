"""The Taylor polynomial of a layer around a point, in several variables.

exp is computed by scaling and squaring, on matrices whose entries are polynomials in the
displacement h, cut off beyond the chosen degree: M(x0 + h) = M0 + sum_a h_a T_a.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlayer.errors import ArgumentError
from mlayer.numerics.arrays import Array
from mlayer.symbolic.read.formula import LayerWeights

_SERIES = 14  # terms of the exponential series, for norms up to 1/2: an error below 1e-16
_MOST_NUMBERS = 30_000_000
_MOST_PRODUCTS = 300_000


@dataclass(frozen=True)
class Monomials:
    """All monomials up to a degree, by degree, and where products of them stand."""

    powers: list[list[tuple[int, ...]]]  # powers[d] is the list of monomials of degree d
    # index[r, s][i, j] is the place of powers[r][i] * powers[s][j] in powers[r + s]
    index: dict[tuple[int, int], NDArray[np.int64]]


def monomials(variables: int, degree: int) -> Monomials:
    """The table of monomials."""
    powers = [
        [
            tuple(chosen.count(v) for v in range(variables))
            for chosen in itertools.combinations_with_replacement(range(variables), d)
        ]
        for d in range(degree + 1)
    ]
    place = [{p: k for k, p in enumerate(some)} for some in powers]
    index = {}
    for r in range(degree + 1):
        for s in range(degree + 1 - r):
            index[r, s] = np.array(
                [
                    [place[r + s][tuple(a + b for a, b in zip(p, q, strict=True))] for q in powers[s]]
                    for p in powers[r]
                ]
            )
    return Monomials(powers, index)


def is_small(variables: int, degree: int, n: int) -> bool:
    """Whether the expansion of an n x n matrix to this degree fits into time and memory."""
    if math.comb(variables + degree, degree) * n * n > _MOST_NUMBERS:  # first: the degree may be of any size
        return False
    products = sum(
        math.comb(variables + r - 1, r) * math.comb(variables + s - 1, s)
        for r in range(degree + 1)
        for s in range(degree + 1 - r)
    )
    return products <= _MOST_PRODUCTS


def check_size(variables: int, degree: int, n: int) -> None:
    """An error before memory is taken for too many monomials."""
    if not is_small(variables, degree, n):
        raise ArgumentError(
            "degree",
            f"small enough for {variables} inputs",
            f"{degree}, which gives {math.comb(variables + degree, degree)} monomials",
            "Choose a smaller degree.",
        )


def taylor(weights: LayerWeights, point: Array, degree: int) -> list[dict[tuple[int, ...], float]]:
    """Coefficients of the outputs in the displacement from a point, one dict per output."""
    variables, n = len(weights.T), len(weights.B)
    check_size(variables, degree, n)
    table = monomials(variables, degree)
    M0 = weights.B + np.einsum("a,aij->ij", point, weights.T)
    norm = float(np.linalg.norm(M0, 1)) + sum(float(np.linalg.norm(T, 1)) for T in weights.T)
    squarings = max(0, math.ceil(math.log2(max(norm, 1e-300) * 2)))
    constant, linear = M0 / 2**squarings, weights.T / 2**squarings
    E = [np.zeros((len(some), n, n)) for some in table.powers]
    E[0][0] = np.eye(n)
    for k in range(_SERIES, 0, -1):  # Horner: E = 1 + X E / k
        E = _times_linear(table, constant, linear, E, k)
        E[0][0] += np.eye(n)
    for _ in range(squarings):
        E = _times(table, E, E)
    results: list[dict[tuple[int, ...], float]] = []
    for m, S in enumerate(weights.S):
        values = {
            p: float(c)
            for d in range(degree + 1)
            for p, c in zip(table.powers[d], np.einsum("ij,kij->k", S, E[d]), strict=True)
        }
        values[(0,) * variables] += float(weights.V[m])
        results.append(values)
    return results


def _times_linear(table: Monomials, constant: Array, linear: Array, E: list[Array], k: int) -> list[Array]:
    result = [constant @ some / k for some in E]
    for d in range(len(E) - 1):
        product = linear[:, None] @ E[d][None] / k  # (variables, monomials of degree d, n, n)
        np.add.at(result[d + 1], table.index[1, d], product)
    return result


def _times(table: Monomials, one: list[Array], other: list[Array]) -> list[Array]:
    result = [np.zeros_like(some) for some in one]
    for (r, s), index in table.index.items():
        np.add.at(result[r + s], index, one[r][:, None] @ other[s][None])
    return result


def shifted(polynomial: dict[tuple[int, ...], float], point: Array) -> dict[tuple[int, ...], float]:
    """A polynomial in x - point as one in x."""
    total: dict[tuple[int, ...], float] = {}
    for powers, coefficient in polynomial.items():
        choices = [
            [(k, math.comb(p, k) * (-point[v]) ** (p - k)) for k in range(p + 1)]
            for v, p in enumerate(powers)
        ]
        for choice in itertools.product(*choices):
            key = tuple(k for k, _ in choice)
            total[key] = total.get(key, 0.0) + coefficient * math.prod(f for _, f in choice)
    return total

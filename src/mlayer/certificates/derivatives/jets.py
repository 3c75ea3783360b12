"""Second and third derivative tensors without eigenvectors: for matrices that have no good ones.

docs/theory/certificates-derivatives.md, theorem 3. exp(M + N(z)) is expanded in z up to the third order
by scaling and squaring in the algebra of truncated polynomials: a jet (E_0, E_1, E_2, E_3) holds the
coefficients over sorted index tuples, and jets are multiplied order by order. Works for every M, nilpotent
ones included; costs some d^3 / 6 matrix products per multiplication.
"""

from __future__ import annotations

import math

import numpy as np

from mlayer.certificates.derivatives.divided_differences import Indices, sorted_tuples
from mlayer.numerics.arrays import Array

Jet = list[Array]

# ||M|| / 2^s <= 1/2: the first term left out is below 0.5^18 / 18! of the jet's size.
_DEGREE = 18
_SMALL = 0.5


class JetPath:
    """Derivatives of exp at one matrix M in the directions T_a; the interface of SpectralPath."""

    def __init__(self, M: Array, T: Array) -> None:
        self._M, self._T = M, T
        self._jet: Jet | None = None

    def _exponential(self, order: int) -> Jet:
        if self._jet is None or len(self._jet) <= order:
            self._jet = _exponential(self._M, self._T, order)
        return self._jet

    distance = 0.0  # of the matrix whose derivatives these are from M

    def rounding(self, W: Array, order: int, plain: float, T_size: float, unit: float) -> float:
        """Bound of the error of the term of an order for |y| <= 1.

        Args:
            W: unused here: the readout.
            order: 2 or 3.
            plain: of W : exp(M) and the products that it is computed from.
            T_size: of all generators together.
            unit: relative rounding of an exponential.
        """
        del W
        # Eight products of matrices are in one product of jets.
        return 8 * unit * plain * T_size**order / math.factorial(order)

    def second(self, W: Array) -> Array:
        """H with P_2 = z^T H z, symmetric.  (d, d)"""
        return self._tensor(W, 2)

    def third(self, W: Array) -> Array:
        """C with P_3 = C[z, z, z], symmetric.  (d, d, d)"""
        return self._tensor(W, 3)

    def _tensor(self, W: Array, order: int) -> Array:
        coefficients = np.tensordot(self._exponential(order)[order], W, 2)
        result: Array = coefficients[sorted_tuples(len(self._T), order)[1]]
        return result


def sorted_pairs(d: int) -> tuple[Indices, Indices]:
    """Pairs (a <= b), one per row, and the place of every pair's sorted form."""
    pairs, place = sorted_tuples(d, 2)
    return pairs.T, place


def _exponential(M: Array, T: Array, order: int) -> Jet:
    n, d = len(M), len(T)
    norm = float(np.linalg.norm(M, 1))
    squarings = max(0, int(np.ceil(np.log2(norm / _SMALL)))) if norm > 0 else 0
    base, slopes = M * 0.5**squarings, T * 0.5**squarings
    counts = (1, d, d * (d + 1) // 2, d * (d + 1) * (d + 2) // 6)[: order + 1]
    term: Jet = [np.zeros((count, n, n)) for count in counts]
    term[0][0] = np.eye(n)
    total: Jet = [array.copy() for array in term]
    linear: Jet = [base[None], slopes]
    for k in range(1, _DEGREE + 4):
        term = [array / k for array in _product(term, linear, d)]
        total = [a + b for a, b in zip(total, term, strict=True)]
    for _ in range(squarings):
        total = _product(total, total, d)
    return total


def _product(A: Jet, B: Jet, d: int) -> Jet:
    """The product of two jets, cut at the order of the first; symmetric coefficients."""
    top = len(A) - 1
    zero = np.zeros((1, 1, 1))
    b = [*B, *([zero] * (top + 1 - len(B)))]
    has = [True] * len(B) + [False] * (top + 1 - len(B))
    result: Jet = []
    for order in range(top + 1):
        total = A[order] @ b[0][0]
        if order and has[order]:
            total = total + A[0][0] @ b[order]
        if order == 2:
            i, j = sorted_tuples(d, 2)[0]
            total = total + (A[1][i] @ b[1][j] + A[1][j] @ b[1][i]) / 2
        if order == 3:
            (i, j, k), place = sorted_tuples(d, 3)[0], sorted_tuples(d, 2)[1]
            for one, rest in ((i, place[j, k]), (j, place[i, k]), (k, place[i, j])):
                total = total + A[2][rest] @ b[1][one] / 3
                if has[2]:
                    total = total + A[1][one] @ b[2][rest] / 3
        result.append(total)
    return result

"""Layers whose expansion ends: matrices that lead one way only.

docs/theory/certificates.md, theorem 10. If no walk of k steps exists along the entries that B and the T_a
have, every product of k of them is 0: exp(M) is a polynomial of degree k - 1 in M, and all terms of the
expansion beyond that degree vanish exactly. Layers compiled from polynomials are of this kind, and the
layers of degree two that are trained for certificates.
"""

from __future__ import annotations

import math

import numpy as np

from mlayer.numerics.arrays import Array


def degree_of(B: Array, T: Array) -> float:
    """The degree of exp(M(x)) as a polynomial in the features; infinite if it is not a polynomial.

    Only zeros count: stored exactly, they stay exactly zero in every product.
    """
    steps = (B != 0) | (T != 0).any(0)
    walks = steps
    for degree in range(len(B)):
        if not walks.any():
            return degree
        walks = (walks.astype(np.int64) @ steps.astype(np.int64)) > 0
    return math.inf


class FinitePath:
    """Derivatives where exp(M) is of degree two: the quadratic term is <W, N^2> / 2, whatever M."""

    def __init__(self, T: Array) -> None:
        self._T = T

    distance = 0.0  # of the matrix whose derivatives these are from M

    def rounding(self, W: Array, order: int, plain: float, T_size: float, unit: float) -> float:
        """Bound of the error of the term of an order for |y| <= 1.

        Args:
            W: the readout.
            order: 2 or 3; there is nothing of third order.
            plain: unused here: of W : exp(M).
            T_size: of all generators together.
            unit: relative rounding of an exponential.
        """
        del plain
        return unit * float(np.linalg.norm(W)) * T_size**2 / 2 if order == 2 else 0.0

    def second(self, W: Array) -> Array:
        """H with P_2 = z^T H z, symmetric.  (d, d)"""
        d = len(self._T)
        # <W, T_a T_b> = <T_a^T W, T_b>
        products = (self._T.mT @ W).reshape(d, -1) @ self._T.reshape(d, -1).T
        result: Array = (products + products.T) / 4
        return result

    def third(self, W: Array) -> Array:
        """Zero: there is no term of third order.  (d, d, d)"""
        d = len(self._T)
        return np.zeros((d, d, d))

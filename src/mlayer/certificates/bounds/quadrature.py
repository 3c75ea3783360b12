"""Gauss's rule for the quartic tensor, and its error.

docs/theory/certificates.md, theorem 6. The rule is for the weight (1 - t) t^2 on [0, 1]. The other factor of
the weight changes with t only as far as N does not commute with M: its derivatives are sums of products of
iterated commutators [M, [M, ... N]], whose norms are known.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

import numpy as np

from mlayer.certificates.derivatives.divided_differences import Indices
from mlayer.certificates.linalg import INFLATE
from mlayer.certificates.problem.expansion import Pair
from mlayer.numerics.arrays import Array

_NODES = range(2, 9)


@lru_cache(maxsize=32)
def gauss_rule(nodes: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss's rule on [0, 1] for the weight (1 - t) t^2.

    Golub and Welsch (Math. Comp. 23, 1969): the eigenvalues of the matrix of the recurrence of the orthogonal
    polynomials (Jacobi's, with the exponents 1 and 2), and the squares of its eigenvectors' first entries.
    """
    k = np.arange(nodes, dtype=np.float64)
    diagonal = 3 / ((2 * k + 3) * (2 * k + 5))
    k = k[1:]
    beside = np.sqrt(k * (k + 1) * (k + 2) * (k + 3) / ((2 * k + 2) * (2 * k + 4))) / (k + 1.5)
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    return (values + 1) / 2, vectors[0] ** 2 / 12


def gauss_error(nodes: int) -> float:
    """Error of `gauss_rule`, in units of the largest derivative of order p = 2 nodes.

    1 / p! times the integral of the weight and the square of the rule's monic polynomial.
    """
    p = 2 * nodes
    f = math.factorial
    square = f(nodes) * f(nodes + 1) * f(nodes + 2) * f(nodes + 3) / ((p + 4) * f(p + 3) ** 2)
    return square / f(p) * INFLATE


def nodes_needed(pair: Pair, tolerance: float) -> tuple[int, float]:
    """Nodes, and the error of the quartic form at |y| = 1; (0, inf) if no rule is good enough."""
    for nodes in _NODES:
        error = gauss_error(nodes) * derivative_bound(pair, 2 * nodes)
        if error <= tolerance:
            return nodes, error
    return 0, math.inf


def derivative_bound(pair: Pair, order: int) -> float:
    """Bound of the derivative of some order of the other factor of the integrand, for |y| <= 1."""
    constants, norms = pair.row.model.constants, pair.row.commutator_norms(order)
    k, expected = _terms(order)
    # Two factors in Frobenius norm let the readout stand with its spectral norm. Commutators have no other.
    ratio = constants.delta_F / constants.delta_2 if constants.delta_2 > 0 else 1.0
    others = 2 - np.minimum((k > 0).sum(1), 2)
    readout = np.minimum(pair.nuclear, pair.spectral * ratio**others)
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(expected @ (readout * norms[k].prod(1)))
    bound = 0.5 * math.factorial(order) * pair.growth * total * INFLATE
    return bound if math.isfinite(bound) else math.inf


@lru_cache(maxsize=16)
def _terms(order: int) -> tuple[Indices, Array]:
    """All k_1 + ... + k_4 = order, and bounds of E |r_1^k_1 r_2^k_2 r_3^k_3 r_4^k_4| / (k_1! ... k_4!).

    r_1 = u, r_2 = u - v_1, r_3 = v_3 - (1 - u), r_4 = 1 - u are how fast the four N move as t does, u uniform
    on [0, 1], (v_1, v_2, v_3) on the simplex. Odd powers of r_2 and r_3, which have both signs, by
    Cauchy-Schwarz from the even ones next to them; those are integrals of polynomials, for which
    Gauss-Legendre's rule is exact.
    """
    points, weights = np.polynomial.legendre.leggauss(order // 2 + 3)
    points, weights = (points + 1) / 2, weights / 2
    u, a, b = np.meshgrid(points, points, points, indexing="ij")
    density = weights[:, None, None] * weights[:, None] * weights * 2 * (1 - a)
    v_1, v_3 = a, (1 - a) * (1 - b)
    r_2, r_3 = u - v_1, v_3 - (1 - u)
    # All means of u^i (1 - u)^l r_2^j r_3^k as one product of matrices: powers at the points of the rule.
    flat, second, third, times = (array.reshape(-1) for array in (u, r_2, r_3, density))
    powers = np.arange(order + 2)[:, None]
    outer = (flat**powers)[:, None] * (times * (1 - flat) ** powers)  # (i, l, points)
    inner = (second**powers)[:, None] * third**powers  # (j, k, points)
    products = outer.reshape(-1, len(flat)) @ inner.reshape(-1, len(flat)).T
    means = products.reshape((order + 2,) * 4)  # (i, l, j, k)

    def mean(k: tuple[int, ...]) -> float:
        return float(means[k[0], k[3], k[1], k[2]])

    chosen = [k for k in product(range(order + 1), repeat=4) if sum(k) == order]
    expected = []
    for one, two, three, four in chosen:
        below = mean((one, two - two % 2, three - three % 2, four))
        above = mean((one, two + two % 2, three + three % 2, four))
        factorials = math.prod(math.factorial(j) for j in (one, two, three, four))
        expected.append(math.sqrt(below * above) / factorials)
    return np.array(chosen, np.intp), np.array(expected) * INFLATE

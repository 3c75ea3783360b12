"""`rigorous=True`: the claim is checked again with f_0, gradient, H and C enclosed by Arb balls.

docs/theory/certificates-rounding.md. The tensors of the float64 bound are compared with their enclosures;
what they can be wrong by at most, times the size of the region, takes the place of the estimated rounding
errors, and the inequality is evaluated again. A claim that fails is lowered by steps until one passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.cascade import CLOSED_FORMS, ORDERS, Answer, Bounds
from mlayer.certificates.expansion import Pair, Row
from mlayer.certificates.jets import sorted_pairs, sorted_triples
from mlayer.errors import MissingPackageError

Array = NDArray[np.float64]

_BITS = 128
_DEGREE = 24
_LOWERING = (1.0, 1 - 1e-6, 1 - 1e-4, 0.999, 0.997, 0.99, 0.9, 0.5)


def require_flint() -> Any:
    """python-flint, or an error that says how to get it."""
    try:
        import flint
    except ImportError:
        raise MissingPackageError("rigorous=True", "python-flint", "pip install 'mlayer[rigorous]'") from None
    return flint


def confirm(row: Row, answer: Answer, method: str, eps: float | None) -> Answer:
    """The answer if it passes in ball arithmetic, else the largest lower one that does."""
    if answer.radius == 0 or math.isinf(answer.radius) or method in CLOSED_FORMS:
        # Closed forms are rounded down by far more than their few operations can be wrong; an infinite
        # radius belongs to a model that does not depend on its input.
        return answer
    orders = ORDERS if method == "best" else (method,)
    check = _Check(row)
    for factor in (1.0,) if eps is not None else _LOWERING:
        radius = answer.radius * factor
        if check.passes(radius, orders):
            return Answer(radius, answer.rival, answer.method)
    return Answer(0.0, answer.rival, answer.method)


class _Check:
    """Enclosures of one row's expansion, order by order when needed."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._flint = require_flint()
        self._jets: dict[int, list[list[Any]]] = {}

    def passes(self, eps: float, orders: Iterable[str]) -> bool:
        """Is every rival's margin positive within eps, with enclosed errors?"""
        rivals = [rival for rival in range(len(self._row.outputs)) if rival != self._row.label]
        return all(self._rival_passes(rival, eps, orders) for rival in rivals)

    def _rival_passes(self, rival: int, eps: float, orders: Iterable[str]) -> bool:
        pair = self._row.pair(rival)
        bounds = Bounds(pair)
        for order in orders:
            # Cheap test first: enclosures only where the float64 bound is positive at all.
            if not bounds.lower(order, eps) > 0:
                continue
            terms = 1 + ORDERS.index(order)
            error = self._error(pair, eps, terms)
            slack = pair.value_slack(eps)
            if terms > 1:
                slack += pair.tensor_slack(self._row.radius(eps), terms)
            # The float64 bound with its estimated slack replaced by the enclosed error; what is left of
            # the slack still covers the few sums of the final inequality.
            if bounds.lower(order, eps) + 0.5 * slack - error > 0:
                return True
        return False

    def _error(self, pair: Pair, eps: float, terms: int) -> float:
        """At most how far the float64 expansion is from the true one, over the region."""
        row, context = self._row, self._flint.ctx
        before = context.prec
        context.prec = _BITS
        try:
            jets = self._enclosures(terms)
            W = [[float(v) for v in line] for line in pair.W]
            bias = row.model.weights.V
            value = self._read(jets[0][0], W) + self._arb(bias[row.label]) - self._arb(bias[pair.rival])
            total = abs(value - self._arb(pair.margin)).upper()
            radius = self._arb(row.radius(eps))
            found: list[Array] = [pair.first]
            d = len(row.model.white.T)
            if terms > 1:
                i, j = sorted_pairs(d)[0].T
                found.append(pair.second[i, j])
            if terms > 2:
                i, j, k = sorted_triples(d)[0].T
                found.append(pair.third[i, j, k])
            times = _multiplicities(d, terms)
            for order, (floats, count) in enumerate(zip(found, times, strict=True), start=1):
                square = self._arb(0)
                for ball, number, copies in zip(jets[order], floats, count, strict=True):
                    # A product: ** of a ball around 0 is not a number.
                    off = abs(self._read(ball, W) - self._arb(number)).upper()
                    square += int(copies) * off * off
                # Frobenius norm of the tensor's error times |y|^order; the upper end, for the root of a ball
                # around 0 has none.
                total = total + square.upper().sqrt() * radius**order
            return float(self._arb(total).upper()) * (1 + 1e-12)
        finally:
            context.prec = before

    def _arb(self, value: Any) -> Any:
        return (
            self._flint.arb(float(value))
            if isinstance(value, float | np.floating)
            else self._flint.arb(value)
        )

    def _read(self, E: Any, W: list[list[float]]) -> Any:
        """W : E"""
        n = len(W)
        total = self._arb(0)
        for r in range(n):
            for c in range(n):
                total += E[r, c] * W[r][c]
        return total

    def _enclosures(self, terms: int) -> list[list[Any]]:
        if terms not in self._jets:
            self._jets[terms] = self._exponential(terms)
        return self._jets[terms]

    def _exponential(self, order: int) -> list[list[Any]]:
        """The jet of exp(M + N(y)) as balls: jets.py, with the rest of the series added as a radius."""
        flint, row = self._flint, self._row
        weights, white = row.model.weights, row.model.white
        mat = flint.arb_mat
        # M(x) itself as balls from the stored weights: its float64 rounding is part of the error.
        n, d0 = weights.n, len(weights.T0)
        features = mat(1, len(row.x), row.x.tolist()) * mat(weights.U0.tolist())
        M = mat(weights.B.tolist())
        for a in range(d0):
            M = M + mat(weights.T0[a].tolist()) * (features[0, a] + flint.arb(float(weights.u[a])))
        T = [mat(matrix.tolist()) for matrix in white.T]
        d = len(T)
        norm = float(np.linalg.norm(row.M, 1)) + 1e-9
        squarings = max(0, math.ceil(math.log2(norm / 0.5)))
        half = flint.arb(2) ** (-squarings)
        base, slopes = M * half, [t * half for t in T]
        counts = (1, d, d * (d + 1) // 2, d * (d + 1) * (d + 2) // 6)[: order + 1]
        zero, one = mat(n, n), mat([[int(r == c) for c in range(n)] for r in range(n)])
        term: list[list[Any]] = [[zero] * count for count in counts]
        term[0] = [one]
        total = [list(level) for level in term]
        for k in range(1, _DEGREE + 1):
            term = [[m / k for m in level] for level in _product(term, [[base], slopes], d)]
            total = [[a + b for a, b in zip(s, t, strict=True)] for s, t in zip(total, term, strict=True)]
        # Left out: sum_{k > D} of the order-r parts, each at most C(k, r) ||base||^(k-r) t^r / k! with
        # t the largest slope; geometric from there on.
        t = max(float(np.linalg.norm(s)) for s in white.T) * 2.0**-squarings + 1e-300
        for r, level in enumerate(total):
            first = 0.51 ** (_DEGREE + 1 - r) * max(t, 1.0) ** r * math.comb(_DEGREE + 1, r)
            ball = flint.arb(0, 4 * first / math.factorial(_DEGREE + 1))
            fuzz = mat([[ball] * n for _ in range(n)])
            total[r] = [m + fuzz for m in level]
        for _ in range(squarings):
            total = _product(total, total, d)
        return total


def _multiplicities(d: int, terms: int) -> list[Array]:
    """How often each sorted index tuple stands in the full tensor."""
    result: list[Array] = [np.ones(d)]
    if terms > 1:
        i, j = sorted_pairs(d)[0].T
        result.append(np.where(i == j, 1.0, 2.0))
    if terms > 2:
        i, j, k = sorted_triples(d)[0].T
        result.append(np.where(i == k, 1.0, np.where((i == j) | (j == k), 3.0, 6.0)))
    return result


def _product(A: list[list[Any]], B: list[list[Any]], d: int) -> list[list[Any]]:
    """jets._product in balls."""
    result = []
    for order in range(len(A)):
        level = [m * B[0][0] for m in A[order]]
        if order and order < len(B):
            level = [m + A[0][0] * b for m, b in zip(level, B[order], strict=True)]
        if order == 2:
            for place, (i, j) in enumerate(sorted_pairs(d)[0].tolist()):
                level[place] = level[place] + (A[1][i] * B[1][j] + A[1][j] * B[1][i]) / 2
        if order == 3:
            pair = sorted_pairs(d)[1]
            for place, (i, j, k) in enumerate(sorted_triples(d)[0].tolist()):
                extra: Any = None
                for one, rest in ((i, pair[j, k]), (j, pair[i, k]), (k, pair[i, j])):
                    part = A[2][rest] * B[1][one]
                    if len(B) > 2:
                        part = part + A[1][one] * B[2][rest]
                    extra = part if extra is None else extra + part
                level[place] = level[place] + extra / 3
        result.append(level)
    return result

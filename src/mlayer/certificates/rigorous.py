"""`rigorous=True`: the claim is checked again with f_0, gradient, H and C enclosed by Arb balls.

docs/theory/certificates-rounding.md. The tensors of the float64 bound are compared with their enclosures: a
proof counts only if they are wrong by no more than the allowance that the bound already contains. A claim
without such a proof is lowered by steps until one is found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlayer.certificates.caps import Step
from mlayer.certificates.cascade import CLOSED_FORMS, ORDERS, Answer, Bounds, radius_of
from mlayer.certificates.expansion import Pair, Row
from mlayer.certificates.jets import sorted_pairs, sorted_triples
from mlayer.errors import MissingPackageError

Array = NDArray[np.float64]

_BITS = 128
_DEGREE = 24
ENCLOSED = ORDERS[:3]
TOUCHING, CAPS = "touching", "caps"
_LOWERING = (1.0, 1 - 1e-6, 1 - 1e-4, 0.999, 0.996, 0.99, 0.98, 0.96, 0.93, 0.9, 0.85, 0.8, 0.7, 0.5)


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
        # Closed forms have their rounding charged to the margin, and are rounded down; an infinite radius
        # belongs to a model that does not depend on its input.
        return answer
    # The quartic tensor has no enclosure: claims that need it are lowered to what the other proofs reach.
    orders = (*ENCLOSED, TOUCHING, CAPS) if method in ("best", "fourth_order") else (method,)
    check = _Check(row)
    radii = [answer.radius] if eps is not None else [answer.radius * factor for factor in _LOWERING]
    if eps is None and method in ("best", "fourth_order"):
        third = radius_of(row, "third_order").radius
        radii = sorted([*radii, third, third * (1 - 1e-4)], reverse=True)
    for radius in radii:
        if radius <= answer.radius and check.passes(radius, orders):
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
        bounds = Bounds(self._row.pair(rival))
        for order in orders:
            if order == TOUCHING:
                found = self._touching_passes(bounds, eps)
            elif order == CAPS:
                found = self._caps_pass(bounds, eps)
            else:
                # Cheap test first: enclosures only where the float64 bound is positive at all.
                found = bounds.lower(order, eps) > 0 and self._covered(
                    bounds.pair, self._row.radius(eps), eps, 1 + ORDERS.index(order)
                )
            if found:
                return True
        return False

    def _covered(self, pair: Pair, radius: float, eps: float, terms: int) -> bool:
        """Is the expansion wrong by no more than its allowance, within |y| <= radius and |delta_i| <= eps?"""
        slack = pair.value_slack(eps)
        if terms > 1:
            slack += pair.tensor_slack(radius, terms)
        errors = self.errors(pair, terms)
        return sum(error * radius**k for k, error in enumerate(errors)) * (1 + 1e-12) <= slack

    def _touching_passes(self, bounds: Bounds, eps: float) -> bool:
        """Theorem 7: H at the centre, value and gradient at the point, enclosed."""
        pair, row = bounds.pair, self._row
        if row.model.region.norm != "linf" or not bounds.touching(bounds.second, eps) > 0:
            return False
        radius = row.radius(eps)
        if self.errors(pair, 2)[2] > bounds.second.bend_slack(radius):
            return False
        there = bounds.touched_at
        assert there is not None
        low, high = row.model.region.interval(row.x, eps)
        return _Check(there.row)._covered(there, 2 * radius, float((high - low).max()), 1)

    def _caps_pass(self, bounds: Bounds, eps: float) -> bool:
        """Theorem 8 from the third order: every expansion on the way enclosed."""
        if self._row.model.region.norm != "linf" or not bounds.caps.passes(eps):
            return False
        return all(_Check(step.pair.row)._step_covered(step) for step in bounds.caps.trail)

    def _step_covered(self, step: Step) -> bool:
        if not self._covered(step.pair, step.radius, step.width, 3):
            return False
        if step.there is None:
            return True
        slack = 6 * step.pair.tensor_slack(step.radius, 3) / step.radius**2
        _, _, second, third = self.errors(step.pair, 3)
        if second + 3 * third * step.radius > slack:
            return False
        return _Check(step.there.row)._covered(step.there, 2 * step.radius, step.width, 1)

    def errors(self, pair: Pair, terms: int) -> list[float]:
        """At most how far value, gradient, H and C are from the true ones, in Frobenius norm."""
        row, context = self._row, self._flint.ctx
        before = context.prec
        context.prec = _BITS
        try:
            jets = self._enclosures(terms)
            W = [[float(v) for v in line] for line in pair.W]
            bias = row.model.weights.V
            value = self._read(jets[0][0], W) + self._arb(bias[row.label]) - self._arb(bias[pair.rival])
            result = [float(abs(value - self._arb(pair.margin)).upper())]
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
                # The upper end, for the root of a ball around 0 has none.
                result.append(float(square.upper().sqrt().upper()) * (1 + 1e-12))
            return result
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

"""Enclosures of W : exp(M) and its derivatives in the directions T_a.

Theorem 2 of docs/theory/certificates-checker.md. One exponential over the ring of matrices with two numbers
alpha, beta adjoined that commute with everything and have alpha^2 = beta^2 = 0:

    exp(M + alpha W^T + beta T_b) = e + alpha l + beta e_b + alpha beta l_b

Then f = <W, e> + b, its derivative in direction T_a is tr(T_a l), and tr(T_a l_b) is the second one.
"""

from __future__ import annotations

from collections.abc import Sequence

import flint

from mlayer.certificates.checker.balls import Ball, Matrix, ProofError, identity, matrix, row_sum_norm

_SMALL = 8  # the scaled matrix has norm at most 2^-8


def _power_of_two(size: Ball) -> int:
    """A k with size <= 2^k."""
    if not size.is_finite():
        raise ProofError("a matrix is not finite")
    if not size > 0:
        return 0
    mantissa, exponent = size.upper().mid().man_exp()
    return int(exponent) + int(mantissa).bit_length()


def _two_to(k: int) -> Ball:
    return flint.arb(2) ** k


class Exponential:
    """e and, for each T_b, e_b: what does not depend on W, with every step on the way to it.

    Scaling and squaring: the Taylor polynomial of X = (M + beta T_b) / 2^s, then s squarings.

    Args:
        M: the matrix.
        T: directions; none if only first derivatives are asked for.
    """

    def __init__(self, M: Matrix, T: Sequence[Matrix]) -> None:
        n = M.nrows()
        # The results are linear in W and in each T_b: scaled to norm <= 1.
        self._sizes = [_power_of_two(row_sum_norm(t)) for t in T]
        norm = row_sum_norm(M) + 2
        self._squarings = max(0, _power_of_two(norm) + _SMALL)
        if self._squarings > flint.ctx.prec // 2:
            raise ProofError("M is too large for this precision")
        self._half = _two_to(-self._squarings)
        self._base = M * self._half
        self._betas = [t * (self._half * _two_to(-size)) for t, size in zip(T, self._sizes, strict=True)]
        zero = matrix(n, n, [0] * n * n)
        terms = [(identity(n), [zero for _ in T])]
        scaled = (norm * self._half).upper()  # |M| + |W| + |T_b|, scaled
        bound, k = flint.arb(1), 0  # of the norm of the k-th term
        while k < 3 or bound > _two_to(-flint.ctx.prec):
            k += 1
            e, eb = terms[-1]
            eb = [(x * self._base + e * beta) / k for x, beta in zip(eb, self._betas, strict=True)]
            terms.append((e * self._base / k, eb))
            bound = (bound * scaled / k).upper()
        self._terms = terms
        # What is left out: terms of norm at most bound scaled / (k + 1), each less than half the one before.
        left_out = (2 * bound * scaled / (k + 1)).upper()
        self._error = matrix(n, n, [flint.arb(0, left_out)] * n * n)
        e = _total([term[0] for term in terms]) + self._error
        eb = [_total([term[1][b] for term in terms]) + self._error for b in range(len(T))]
        self._squares = []
        for _ in range(self._squarings):
            self._squares.append((e, eb))
            eb = [x * e + e * x for x in eb]
            e = e * e
        self.e = e

    def derivatives(self, W: Matrix) -> tuple[Ball, Matrix, list[Matrix]]:
        """tr(W^T e), the matrix l, and the matrices l_b for each T_b."""
        n = W.nrows()
        alpha = W.transpose()
        size = _power_of_two(row_sum_norm(alpha))
        alpha = alpha * (self._half * _two_to(-size))
        zero = matrix(n, n, [0] * n * n)
        term_l, term_lb = zero, [zero for _ in self._betas]
        l, lb = self._error, [self._error for _ in self._betas]  # noqa: E741
        for k, (e, eb) in enumerate(self._terms[:-1], start=1):
            term_lb = [
                (x * self._base + term_l * beta + y * alpha) / k
                for x, y, beta in zip(term_lb, eb, self._betas, strict=True)
            ]
            term_l = (term_l * self._base + e * alpha) / k
            l = l + term_l  # noqa: E741
            lb = [x + term for x, term in zip(lb, term_lb, strict=True)]
        for e, eb in self._squares:
            lb = [x * e + e * x + l * y + y * l for x, y in zip(lb, eb, strict=True)]
            l = l * e + e * l  # noqa: E741
        value = (W.transpose() * self.e).trace()
        units = [_two_to(size + own) for own in self._sizes]
        return value, l * _two_to(size), [x * unit for x, unit in zip(lb, units, strict=True)]


def _total(terms: Sequence[Matrix]) -> Matrix:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total

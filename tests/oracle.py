"""Exact answers, independent of mlayer: Arb balls (python-flint) at a precision that proves itself.

Every function takes tensors in the precision under test, takes their entries as exact numbers, and
computes with `PRECISION` bits; `exact_exp` raises the precision until the ball is narrow enough.
"""

from __future__ import annotations

import math

import flint
from torch import Tensor

PRECISION = 256


def to_arb(matrix: Tensor) -> flint.arb_mat:
    """The entries of a real matrix, exactly."""
    return flint.arb_mat([[flint.arb(x) for x in row] for row in matrix.double().tolist()])


def _norm(matrix: flint.arb_mat) -> flint.arb:
    """Frobenius norm."""
    return sum((x.mid() * x.mid() for x in matrix.entries()), flint.arb(0)).sqrt()


def exact_exp(matrix: flint.arb_mat) -> flint.arb_mat:
    """exp(A) with every entry right to 2^-90 of the largest, doubling the precision until it is."""
    for bits in (PRECISION, 4 * PRECISION, 16 * PRECISION, 64 * PRECISION):
        with flint.ctx.workprec(bits):
            result = matrix.exp()
            largest = max((abs(x.mid()) for x in result.entries()), default=flint.arb(1))
            if all(x.rad() <= largest * flint.arb(2) ** -90 for x in result.entries()):
                return result
    raise ArithmeticError("Arb did not converge; is the matrix huge?")


def exact_frechet(matrix: flint.arb_mat, direction: flint.arb_mat) -> flint.arb_mat:
    """L(A, E), the upper right block of exp([[A, t E], [0, A]]) / t; t keeps the blocks comparable."""
    n = matrix.nrows()
    with flint.ctx.workprec(PRECISION):
        t = _power_of_two_near(_norm(matrix), _norm(direction))
        block = flint.arb_mat(2 * n, 2 * n)
        for i in range(n):
            for j in range(n):
                block[i, j] = block[n + i, n + j] = matrix[i, j]
                block[i, n + j] = direction[i, j] * t
        whole = exact_exp(block)
        return flint.arb_mat([[whole[i, n + j] / t for j in range(n)] for i in range(n)])


def _power_of_two_near(target: flint.arb, value: flint.arb) -> flint.arb:
    if not target > 0 or not value > 0:
        return flint.arb(1)
    return flint.arb(2) ** round(float((target / value).log() / flint.arb(2).log()))


def relative_error(computed: Tensor, exact: flint.arb_mat) -> float:
    """||computed - exact||_F / ||exact||_F; infinite if anything computed is not finite."""
    if not computed.isfinite().all():
        return math.inf
    with flint.ctx.workprec(PRECISION):
        size = _norm(exact)
        difference = _norm(to_arb(computed) - exact)
        if not size > 0:
            return 0.0 if not difference > 0 else math.inf
        return float(difference / size)


def acceptable(error: float, unit: float, norm: float, by_condition: Tensor | None = None) -> bool:
    """Whether error <= unit * max(norm, condition number of exp at the matrix, if one is given).

    The condition number takes a hundred times longer than all the rest, and most errors are below the norm's.
    """
    return error <= unit * norm or (
        by_condition is not None and error <= unit * condition_number(by_condition)
    )


def condition_number(matrix: Tensor) -> float:
    """Relative condition number of exp at A, ||L(A, .)||_F ||A||_F / ||exp(A)||_F, by power iteration.

    The iteration approaches the norm from below, so a test that uses it as its bound is, if
    anything, too strict. For a normal matrix it is ||A||_2 up to the choice of norm.
    """
    a = to_arb(matrix)
    n = a.nrows()
    with flint.ctx.workprec(PRECISION):
        e = flint.arb_mat([[flint.arb(1 + ((3 * i + 7 * j) % 5)) for j in range(n)] for i in range(n)])
        length = _norm(e)
        e = flint.arb_mat(n, n, [(x / length).mid() for x in e.entries()])
        size = flint.arb(0)
        for _ in range(3):
            forward = exact_frechet(a, e)
            size = _norm(forward)
            if not size > 0:
                break
            # Midpoints: any direction will do, and the width of a ball would grow from step to step.
            forward = flint.arb_mat(n, n, [(x / size).mid() for x in forward.entries()])
            back = exact_frechet(a.transpose(), forward)
            length = _norm(back)
            e = flint.arb_mat(n, n, [(x / length).mid() for x in back.entries()])
        return float(size * _norm(a) / _norm(exact_exp(a)))

"""Ball arithmetic for the checker: every operation returns an enclosure of the exact result (Arb).

Comparisons of balls are true only where they hold for every number in the balls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import flint

Ball = Any  # flint.arb; python-flint has no types
Matrix = Any  # flint.arb_mat


class ProofError(Exception):
    """A claim that was not proved; the message says which."""


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Bits of the balls' midpoints; any number of bits is sound."""
    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        yield
    finally:
        flint.ctx.prec = before


def ball(number: float) -> Ball:
    """The exact value of a float."""
    return flint.arb(number)


def matrix(rows: int, columns: int, numbers: Sequence[Any]) -> Matrix:
    """The exact matrix of floats (or balls) in row-major order."""
    return flint.arb_mat(rows, columns, list(numbers))


def identity(n: int) -> Matrix:
    """The identity matrix."""
    return flint.arb_mat(n, n, [int(r == c) for r in range(n) for c in range(n)])


def block(A: Matrix, rows: range, columns: range) -> Matrix:
    """A submatrix."""
    return flint.arb_mat(len(rows), len(columns), [A[r, c] for r in rows for c in columns])


def inverse(A: Matrix, what: str) -> Matrix:
    """The inverse; refused where the balls do not show that there is one."""
    try:
        return A.inv()
    except ZeroDivisionError:
        raise ProofError(f"{what} is not shown to be invertible") from None


def symmetric_part(A: Matrix) -> Matrix:
    """(A + A^T) / 2"""
    return (A + A.transpose()) / 2


def positive_definite(A: Matrix) -> bool:
    """Whether every symmetric matrix within the balls is positive definite.

    LDL^T in blocks: A = [[X, Y], [Y^T, Z]] is positive definite if and only if X and the Schur complement
    Z - Y^T X^-1 Y are. Balls enclose the complement, so a positive last pivot proves it.
    """
    n = A.nrows()
    if n <= 1:
        return n == 0 or bool(A[0, 0] > 0)
    first, second = range(n // 2), range(n // 2, n)
    X = block(A, first, first)
    if not positive_definite(X):
        return False
    Y = block(A, first, second)
    try:
        solved = X.solve(Y)
    except ZeroDivisionError:
        return False
    return positive_definite(block(A, second, second) - Y.transpose() * solved)


def prove_positive_definite(A: Matrix, claim: str) -> None:
    """Refuse unless the symmetric matrix A is proved positive definite."""
    if not positive_definite(A):
        raise ProofError(claim)


def dot(a: Sequence[Ball], b: Sequence[Ball]) -> Ball:
    """The sum of products."""
    if not a:
        return flint.arb(0)
    return (matrix(1, len(a), a) * matrix(len(b), 1, b))[0, 0]


def upper_root(square: Ball) -> Ball:
    """An upper bound of the root of a number >= 0 within the ball."""
    top = square.upper()
    if top > 0:
        return top.sqrt().upper()
    if not top <= 0:
        raise ProofError("a square is not a number")
    return flint.arb(0)


def squared_norm(A: Matrix) -> Ball:
    """The squared Frobenius norm."""
    entries = A.entries()
    return dot(entries, entries)


def row_sum_norm(A: Matrix) -> Ball:
    """An upper bound of the largest row sum of absolute values: a submultiplicative norm."""
    largest = flint.arb(0)
    for row in A.tolist():
        total = sum((abs(entry).upper() for entry in row), flint.arb(0)).upper()
        largest = largest.max(total)
    return largest.upper()


def exponential_tail(q: Ball, first: int) -> Ball:
    """An upper bound of sum_{k >= first} q^k / k! for a ball of numbers >= 0.

    The terms of index K > 2 q at least halve from there on: all from K on sum to at most twice the K-th.
    """
    q = q.upper()
    if not (q >= 0 and q < 1000):
        raise ProofError("the region is too large: e^q overflows")
    term = flint.arb(1)
    for k in range(1, first + 1):
        term = term * q / k
    total = flint.arb(0)
    last = first + 2 * int(float(q)) + 2 + flint.ctx.prec
    for k in range(first, last):
        total += term
        term = term * q / (k + 1)
    return (total + 2 * term).upper()

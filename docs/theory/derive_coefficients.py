"""Derives the numbers of src/mlayer/exponential/schedule.py with mpmath, and prints them.

    python docs/theory/derive_coefficients.py

Polynomials are lists of coefficients, lowest degree first. Takes some ten seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mpmath as mp

LENGTH = 17
TERMS = 120  # of the series of log(exp(-x) T(x)); far more than double precision needs
DERIVATIVE = 5  # truncation error allowed in the derivative, in units of roundoff

Polynomial = list[mp.mpf]


def product(p: Polynomial, q: Polynomial) -> Polynomial:
    result = [mp.mpf(0)] * LENGTH
    for i, a in enumerate(p):
        for j, b in enumerate(q[: LENGTH - i]):
            result[i + j] += a * b
    return result


def combination(*terms: tuple[mp.mpf | int, Polynomial]) -> Polynomial:
    return [mp.fsum(c * p[k] for c, p in terms) for k in range(LENGTH)]


ONE: Polynomial = [mp.mpf(k == 0) for k in range(LENGTH)]
A: Polynomial = [mp.mpf(k == 1) for k in range(LENGTH)]
A2: Polynomial = product(A, A)


def degree_8(e: Sequence[mp.mpf]) -> Polynomial:
    y = product(A2, combination((e[0], A2), (e[1], A)))
    last = product(combination((1, y), (e[2], A2), (e[3], A)), combination((1, y), (e[4], A2)))
    return combination((1, last), (e[5], y), (mp.mpf(1) / 2, A2), (1, A), (1, ONE))


def degree_16(c: Sequence[mp.mpf]) -> Polynomial:
    y = product(A2, combination((c[0], A2), (c[1], A)))
    w = product(combination((1, y), (c[2], A2), (c[3], A)), combination((1, y), (c[4], A2)))
    w = combination((1, w), (c[5], y), (c[6], A2))
    last = product(combination((1, w), (c[7], A2), (c[8], A)), combination((1, w), (c[9], y), (c[10], A)))
    return combination((1, last), (c[11], w), (c[12], y), (c[13], A2), (c[14], A), (1, ONE))


def solve(
    polynomial: Callable[[Sequence[mp.mpf]], Polynomial], start: Sequence[float], degrees: range
) -> list[mp.mpf]:
    """Newton's method for: these coefficients are those of the Taylor series."""

    def residual(*c: mp.mpf) -> list[mp.mpf]:
        p = polynomial(c)
        return [p[k] * mp.factorial(k) - 1 for k in degrees]

    solution = mp.findroot(residual, [mp.mpf(x) for x in start], tol=mp.mpf(10) ** -80, maxsteps=50)
    return [solution[k] for k in range(len(start))]


def logarithm(t: Polynomial) -> Polynomial:
    """Coefficients of log(exp(-x) T(x)), from T' = T (log T)'."""
    t = t + [mp.mpf(0)] * (TERMS - len(t))
    result = [mp.mpf(0)] * TERMS
    for n in range(1, TERMS):
        result[n] = t[n] - mp.fsum(k * result[k] * t[n - k] for k in range(1, n)) / n
    result[1] -= 1
    return result


def largest(condition: Callable[[mp.mpf], bool]) -> mp.mpf:
    """The largest theta up to which a monotone condition holds."""
    low, high = mp.mpf(0), mp.mpf(5)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if condition(middle) else (low, middle)
    return low


def thresholds(taylor: Polynomial, m: int, u: mp.mpf) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
    """For the value on d; for the derivative on d; for the derivative on ||A||. See expm.md."""
    c = [abs(x) for x in logarithm(taylor)]
    odd = [k for k in range(m + 1, TERMS) if k % 2]
    even = [k for k in range(m + 1, TERMS) if k % 2 == 0]

    def value(t: mp.mpf) -> bool:
        return mp.fsum(c[k] * t ** (k - 1) for k in (*odd, *even)) <= u

    def derivative(t: mp.mpf) -> bool:
        return (
            mp.fsum(c[k] * (k + 1) / 2 * t ** (k - 1) for k in odd) <= DERIVATIVE * u
            and mp.fsum(c[k] * k * t ** (k - 2) for k in even) <= DERIVATIVE * u
            and mp.fsum(c[k] * (k - 1) / 2 * t ** (k - 3) for k in odd) <= DERIVATIVE * u / 6
        )

    def derivative_by_norm(t: mp.mpf) -> bool:
        return mp.fsum(k * c[k] * t ** (k - 1) for k in (*odd, *even)) <= DERIVATIVE * u

    # The derivative is that of the disturbed value, so its thresholds never exceed the value's.
    limit = largest(value)
    return limit, min(limit, largest(derivative)), min(limit, largest(derivative_by_norm))


def main() -> None:
    mp.mp.dps = 60
    # Rounded starting points: the solution branch with small coefficients, as published.
    eight = solve(degree_8, [0.005, 0.02, 0.0767, 0.8765, 0.1226, 2.974], range(3, 9))
    start = [4.02e-4, 2.946e-3, -8.71e-3, 0.4018, 0.0323, 5.769, 0.02339, 0.2381, 2.2242, -5.792]
    sixteen = solve(degree_16, [*start, -0.0413, 10.408, -63.317, 0.34847, 1.0], range(1, 16))
    print("EIGHT  ", *(mp.nstr(x, 17) for x in eight), sep="\n  ")
    print("SIXTEEN", *(mp.nstr(x, 17) for x in sixteen), sep="\n  ")
    polynomials = [([1 / mp.factorial(k) for k in range(m + 1)], m) for m in (2, 4)]
    polynomials += [(degree_8(eight), 8), (degree_16(sixteen), 15)]
    print("16! times the coefficient of A^16:", mp.nstr(polynomials[-1][0][16] * mp.factorial(16), 6))
    kinds = ("theta", "theta of the derivative", "norm of the derivative")
    for name, bits in (("single", 24), ("double", 53)):
        columns = zip(*(thresholds(t, m, mp.mpf(2) ** -bits) for t, m in polynomials), strict=True)
        for kind, thetas in zip(kinds, columns, strict=True):
            print(name, kind, *(mp.nstr(t, 12) for t in thetas))


if __name__ == "__main__":
    main()

"""Thresholds of `expm_action`: the largest norms for which Taylor's polynomial of degree m suffices.

    python docs/theory/derive_action.py

theta_m solves  -log(1 - z(theta)) / theta = u  with  z(x) = sum_j x^(m+1+j) / (m! j! (m+1+j)), which bounds
the relative backward error (docs/theory/action.md). Prints the two tables of thresholds.py, rounded down.
"""

from __future__ import annotations

import mpmath

LARGEST_DEGREE = 55
mpmath.mp.dps = 50


def backward_error(m: int, x: mpmath.mpf) -> mpmath.mpf:
    """The bound of the relative backward error at the norm x."""
    z = mpmath.mpf(0)
    term = x ** (m + 1) / mpmath.factorial(m)
    for j in range(400):
        z += term / (m + 1 + j)
        term *= x / (j + 1)
        if term < z * mpmath.mpf(10) ** -40:
            break
    return mpmath.inf if z >= 1 else -mpmath.log(1 - z) / x


def theta(m: int, u: mpmath.mpf) -> mpmath.mpf:
    """The threshold, by bisection: the bound grows with x."""
    low, high = mpmath.mpf(0), mpmath.mpf(40)
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if backward_error(m, middle) <= u else (low, middle)
    return low


def rounded_down(x: mpmath.mpf) -> str:
    """Five digits, never above x."""
    exponent = int(mpmath.floor(mpmath.log10(x)))
    digits = int(mpmath.floor(x / mpmath.mpf(10) ** (exponent - 4)))
    return f"{digits / 10**4:.4f}e{exponent:+03d}"


def main() -> None:
    for name, bits in (("SINGLE", 24), ("DOUBLE", 53)):
        row = [rounded_down(theta(m, mpmath.mpf(2) ** -bits)) for m in range(1, LARGEST_DEGREE + 1)]
        print(f"{name} = (")
        for start in range(0, len(row), 8):
            print("    " + ", ".join(row[start : start + 8]) + ",")
        print(")")


if __name__ == "__main__":
    main()

"""Numbers of sympy as fractions: rational ones exactly, others to 60 digits."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mlayer.errors import ArgumentError

_DIGITS = 60


def exact(number: Any) -> Fraction:
    """A real sympy number as a fraction.

    >>> import sympy
    >>> exact(sympy.Rational(2, 6)), exact(sympy.Float(0.5))
    (Fraction(1, 3), Fraction(1, 2))
    """
    import sympy

    number = sympy.sympify(number)
    if number.is_Rational:
        return Fraction(int(number.p), int(number.q))
    value = number.evalf(_DIGITS)
    if not (value.is_Float or value.is_Rational) or not value.is_finite:
        raise ArgumentError(
            "expressions", "with real, finite coefficients", str(number), "Give numbers, not symbols."
        )
    if number.is_Float:  # a binary number as it is
        return Fraction(*_ratio(number))
    rational = sympy.Rational(value)
    return Fraction(int(rational.p), int(rational.q))


def _ratio(number: Any) -> tuple[int, int]:
    import sympy

    rational = sympy.Rational(number)
    return int(rational.p), int(rational.q)


def rational(number: Fraction) -> Any:
    """A fraction as a sympy number."""
    import sympy

    return sympy.Rational(number.numerator, number.denominator)

"""Numbers of sympy as fractions: rational ones exactly, others to 60 digits; none so long that it hangs.

Every number that is read or computed keeps within ``MOST_BITS``, so that each step is quick, whatever
the text asks for. What ends up as a weight must fit into a double.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any

from mlayer.errors import ArgumentError
from mlayer.symbolic.parse.formula_error import formula_error

_DIGITS = 60
# Of numerator and denominator: 616 digits, the square of the largest double.
MOST_BITS = 2048
_LARGEST_EXPONENT = 600
_LONGEST_LITERAL = 1000


def exact(number: Any) -> Fraction:
    """A real sympy number, or one of Python's, as a fraction.

    >>> import sympy
    >>> exact(sympy.Rational(2, 6)), exact(sympy.Float(0.5))
    (Fraction(1, 3), Fraction(1, 2))
    """
    if isinstance(number, Fraction | int):
        return bounded(Fraction(number))
    if number.is_Rational:
        return bounded(Fraction(int(number.p), int(number.q)))
    # A binary number as it is.
    value = number if number.is_Float else number.evalf(_DIGITS)
    if not (value.is_Float or value.is_Rational) or not value.is_finite:
        raise formula_error("made of real, finite coefficients", str(number), "Give numbers, not symbols.")
    if value.is_Rational:
        return bounded(Fraction(int(value.p), int(value.q)))
    sign, mantissa, exponent, bits = value._mpf_
    if abs(exponent) + bits > MOST_BITS:
        raise too_long()
    found = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -found if sign else found


def bounded(number: Fraction) -> Fraction:
    """``number``, if it is not too long.

    >>> bounded(Fraction(1, 3))
    Fraction(1, 3)
    """
    if bits_of(number) > MOST_BITS:
        raise too_long()
    return number


def bits_of(number: Fraction) -> int:
    """The longer one of numerator and denominator."""
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def too_long() -> ArgumentError:
    """The error for a number that would take long to work with, and that no layer can hold."""
    return formula_error(
        f"made of numbers below 10^{_LARGEST_EXPONENT}, with as small denominators",
        "a longer one, as written or when evaluated",
        "The weights of a layer are at most 1.8e308.",
    )


def literal(text: str) -> Fraction:
    """A decimal number as it is written.

    >>> literal("0.1"), literal("2.5e-1")
    (Fraction(1, 10), Fraction(1, 4))
    """
    exponent = re.search(r"[eE]([+-]?)0*([0-9]*)$", text)
    # Compared by the count of its digits first: int() of thousands of digits is another error.
    if exponent is not None and (len(exponent[2]) > 4 or int(exponent[2] or 0) > _LARGEST_EXPONENT):
        raise too_long()
    if len(text) > _LONGEST_LITERAL:
        raise too_long()
    return bounded(Fraction(text.rstrip(".") if text.endswith(".") else text))


def plain_number(value: Any) -> Fraction | None:
    """A number of Python or numpy as a fraction; None if it is not one.

    >>> plain_number(0.5), plain_number("0.5"), plain_number(True)
    (Fraction(1, 2), None, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, Integral):
        return bounded(Fraction(int(value)))
    if isinstance(value, Rational):
        return bounded(Fraction(int(value.numerator), int(value.denominator)))
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise not_real(str(value))
        if abs(value.adjusted()) > _LARGEST_EXPONENT or len(value.as_tuple().digits) > _LONGEST_LITERAL:
            raise too_long()
        return bounded(Fraction(value))
    if isinstance(value, Real):
        number = float(value)
        if not math.isfinite(number):
            raise not_real(str(number))
        return Fraction(number)
    return None


def not_real(came: str) -> ArgumentError:
    """The error for a number that is complex, infinite or NaN."""
    return formula_error("made of real, finite numbers", came, "M-layers compute real functions.")


def rational(number: Fraction) -> Any:
    """A fraction as a sympy number."""
    import sympy

    return sympy.Rational(number.numerator, number.denominator)

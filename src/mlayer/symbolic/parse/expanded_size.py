"""The size of a formula after expansion, computed without expanding it."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, lcm
from typing import Any

from mlayer.symbolic.parse.formula_error import formula_error
from mlayer.symbolic.parse.rationals import exact, too_long

MOST_TERMS = 20_000
# Terms times bits of their coefficients: some seconds of exact arithmetic.
_MOST_WORK = 10**8
_MANY = 10**12
# Terms times variables: every term is kept with a power for each variable.
MOST_POWERS = 1_000_000
# Of a common denominator; beyond this lcm itself takes long.
_LONGEST = 200_000
# A constant to 60 digits, as it stands before exp, sin and cos of a shifted argument.
_SHIFT_BITS = 400


@dataclass(frozen=True)
class Extent:
    """Upper bounds of a polynomial, multiplied out."""

    degree: int  # in all variables together
    terms: int  # how many
    denominator: int  # a common one of all coefficients
    bits: int  # of the numerators over it


def check_extent(expression: Any, count: int) -> Extent:
    """The extent of an expression in ``count`` variables, or an error if it is too large."""
    extent = extent_of(expression, count)
    check_terms(extent.terms)
    if extent.terms * (extent.bits + extent.denominator.bit_length()) > _MOST_WORK:
        raise too_long()
    return extent


def check_terms(terms: int) -> None:
    """Raise if there are too many terms: of one expression, or of all outputs of a layer."""
    if terms > MOST_TERMS:
        raise formula_error(
            f"of at most {MOST_TERMS} terms when multiplied out",
            "10^12 or more" if terms >= _MANY else f"up to {terms}",
        )


def check_powers(terms: int, variables: int) -> None:
    """Raise if all terms of a layer, each with a power for every variable, take too long to go through."""
    if terms * variables > MOST_POWERS:
        raise formula_error(
            f"of at most {MOST_POWERS} terms times variables",
            f"up to {terms} terms in {variables} variables",
            "Leave out variables that do not occur, or split it over several layers.",
        )


def extent_of(expression: Any, count: int) -> Extent:
    """Upper bounds for an expression in ``count`` variables; nothing is multiplied out."""
    if not expression.free_symbols:
        number = exact(expression)
        return Extent(0, 1, number.denominator, number.numerator.bit_length())
    if expression.is_Symbol:
        return Extent(1, 1, 1, 1)
    if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
        extent = _power(extent_of(expression.base, count), int(expression.exp))
    elif expression.is_Add:
        extent = _sum([extent_of(part, count) for part in expression.args])
    elif expression.is_Mul:
        extent = Extent(0, 1, 1, 1)
        for part in expression.args:
            extent = _product(extent, extent_of(part, count))
    else:  # exp, sin, cos: two factors that are counted as numbers
        shifted = bool(expression.args) and expression.args[0].as_coeff_Add()[0] != 0
        return Extent(0, 2, 1 << (_SHIFT_BITS if shifted else 1), _SHIFT_BITS if shifted else 1)
    terms = extent.terms
    if terms > 1 and extent.degree <= 10**4 and not expression.has(*_waves()):
        terms = min(terms, comb(extent.degree + count, count))
    return Extent(extent.degree, terms, extent.denominator, extent.bits)


def with_named_constants(expression: Any, names: dict[Any, Any]) -> Any:
    """The expression with a symbol for each constant that is not a fraction.

    So does sympy's own algebra: it makes three million terms of the 20th power of a sum of nine roots.

    Args:
        expression: a polynomial.
        names: constant -> symbol; new ones are added.
    """
    import sympy

    if expression.is_Rational or expression.is_Symbol:
        return expression
    if expression.is_Pow and expression.exp.is_Integer:
        return with_named_constants(expression.base, names) ** abs(expression.exp)
    if expression.is_Add or expression.is_Mul:
        parts = [with_named_constants(part, names) for part in expression.args]
        return expression.func(*parts, evaluate=False)
    return names.setdefault(expression, sympy.Dummy())


def _waves() -> tuple[Any, ...]:
    import sympy

    return sympy.Function, sympy.exp


def _short(denominator: int) -> int:
    if denominator.bit_length() > _LONGEST:
        raise too_long()
    return denominator


def _sum(parts: list[Extent]) -> Extent:
    denominator = 1
    for part in parts:
        denominator = _short(lcm(denominator, part.denominator))
    bits = max(p.bits + denominator.bit_length() - p.denominator.bit_length() + 1 for p in parts)
    return Extent(
        max(p.degree for p in parts), sum(p.terms for p in parts), denominator, bits + len(parts).bit_length()
    )


def _product(one: Extent, other: Extent) -> Extent:
    return Extent(
        one.degree + other.degree,
        min(one.terms * other.terms, _MANY),
        _short(one.denominator * other.denominator),
        one.bits + other.bits + min(one.terms, other.terms).bit_length(),
    )


def _power(base: Extent, power: int) -> Extent:
    if (base.denominator.bit_length() - 1) * power > _LONGEST:
        raise too_long()
    if base.terms == 1:
        terms = 1
    elif power > 10**6:
        terms = _MANY
    else:
        terms = comb(power + base.terms - 1, min(power, base.terms - 1))
    bits = (base.bits + (base.terms.bit_length() if base.terms > 1 else 0)) * power
    return Extent(base.degree * power, min(terms, _MANY), base.denominator**power, bits)

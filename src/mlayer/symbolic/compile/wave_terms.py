"""Polynomials times exponentials and cosines of linear forms, taken apart.

Every such expression is a sum of P_k(x) exp(k . x) with complex vectors k, and sums, products and powers of
such sums are such sums. Real ones come in conjugate pairs, each a polynomial times exp times cos or sin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mlayer.errors import ArgumentError
from mlayer.symbolic.parse.expanded_size import MOST_TERMS
from mlayer.symbolic.parse.formula_error import formula_error
from mlayer.symbolic.parse.rationals import exact, not_real

# The variables of k . x, in order, with the real and imaginary parts of their factors; without those of 0.
Rates = tuple[tuple[int, Fraction, Fraction], ...]
_STILL: Rates = ()
_MOST_PRODUCTS = 100_000  # seconds of exact arithmetic
_WAVES = ("exp", "sin", "cos", "sinh", "cosh")


@dataclass
class Wave:
    """e^(growth . x) (cosine(x) cos(frequency . x) + sine(x) sin(frequency . x)); rates: k."""

    rates: Rates
    cosine: dict[tuple[int, ...], Fraction]
    sine: dict[tuple[int, ...], Fraction]


def waves_of(expressions: Sequence[Any], symbols: Sequence[Any]) -> list[list[Wave]]:
    """The waves of expressions; a polynomial is one wave without growth and frequency."""
    from sympy import QQ_I
    from sympy.polys.rings import ring

    names = [f"v{k}" for k in range(len(symbols))]
    _, *generators = ring(names, QQ_I)
    by_symbol = dict(zip(symbols, generators, strict=True))
    return [_waves(_Reader(by_symbol).read(expression)) for expression in expressions]


def growth_and_frequency(rates: Rates, variables: int) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """Growth and frequency, a number for each variable."""
    growth, frequency = [Fraction(0)] * variables, [Fraction(0)] * variables
    for v, real, imaginary in rates:
        growth[v], frequency[v] = real, imaginary
    return tuple(growth), tuple(frequency)


def _waves(parts: dict[Rates, Any]) -> list[Wave]:
    waves = []
    for rates, polynomial in parts.items():
        first = next((imaginary for _, _, imaginary in rates if imaginary), Fraction(0))
        if first < 0 or not polynomial:  # its conjugate stands for both
            continue
        factor = 2 if first else 1
        real = {m: factor * _fraction(c.x) for m, c in polynomial.terms() if c.x}
        imaginary = {m: -factor * _fraction(c.y) for m, c in polynomial.terms() if c.y}
        waves.append(Wave(rates, real, imaginary))
    return waves


def _fraction(number: Any) -> Fraction:
    return Fraction(int(number.numerator), int(number.denominator))


def _sum(one: Rates, other: Rates) -> Rates:
    if not one or not other:
        return one or other
    total = {k: (real, imaginary) for k, real, imaginary in one}
    for k, real, imaginary in other:
        had = total.get(k, (Fraction(0), Fraction(0)))
        total[k] = had[0] + real, had[1] + imaginary
    return tuple((k, *total[k]) for k in sorted(total) if any(total[k]))


class _Reader:
    def __init__(self, generators: dict[Any, Any]) -> None:
        self.generators = generators
        self.ring = next(iter(generators.values())).ring
        self.products = 0

    def read(self, expression: Any) -> dict[Rates, Any]:
        if expression in self.generators:
            return {_STILL: self.generators[expression]}
        if not expression.free_symbols:
            return self._constant(expression)
        if expression.is_Add:
            total: dict[Rates, Any] = {}
            for term in expression.args:
                for rates, polynomial in self.read(term).items():
                    total[rates] = total.get(rates, self.ring.zero) + polynomial
            return total
        if expression.is_Mul:
            product = {_STILL: self.ring.one}
            for factor in expression.args:
                product = self._times(product, self.read(factor))
            return product
        if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
            base, power = self.read(expression.base), int(expression.exp)
            if list(base) == [_STILL]:
                return {_STILL: base[_STILL] ** power}
            product = {_STILL: self.ring.one}
            for _ in range(power):
                product = self._times(product, base)
            return product
        name = type(expression).__name__
        if name in _WAVES:
            return self._wave(name, expression)
        raise self._refusal(expression)

    def _constant(self, number: Any) -> dict[Rates, Any]:
        real, imaginary = number.as_real_imag()
        if imaginary != 0 or not number.is_finite:
            raise not_real(str(number))
        return {_STILL: self._number(exact(real), Fraction(0))}

    def _number(self, real: Fraction, imaginary: Fraction) -> Any:
        from sympy import QQ, QQ_I

        parts = (QQ(value.numerator, value.denominator) for value in (real, imaginary))
        return self.ring.ground_new(QQ_I(*parts))

    def _times(self, one: dict[Rates, Any], other: dict[Rates, Any]) -> dict[Rates, Any]:
        product: dict[Rates, Any] = {}
        self.products += len(one) * len(other)
        if self.products > _MOST_PRODUCTS:
            raise formula_error(
                f"multiplied out with at most {_MOST_PRODUCTS} products of exp, sin and cos",
                "more",
                "Use smaller powers.",
            )
        for rates, p in one.items():
            for more, q in other.items():
                key = _sum(rates, more)
                product[key] = product.get(key, self.ring.zero) + p * q
        if sum(len(p) for p in product.values()) > MOST_TERMS:
            raise formula_error(
                f"of at most {MOST_TERMS} terms", "more when multiplied out", "Use several smaller layers."
            )
        return product

    def _wave(self, name: str, expression: Any) -> dict[Rates, Any]:
        """The waves e^(i y) or e^y of the argument y: linear plus a constant, which becomes a factor."""
        import sympy

        parts = self.read(expression.args[0])
        argument = parts.get(_STILL, self.ring.zero)
        if set(parts) > {_STILL} or any(sum(powers) > 1 for powers in argument.monoms()):
            raise formula_error(
                f"polynomials times {', '.join(_WAVES)} of linear forms",
                str(expression),
                "An M-layer has no exact form of it; use from_function for an approximation.",
            )
        slope: dict[int, Fraction] = {}
        shift = Fraction(0)
        for powers, c in argument.terms():
            value = _fraction(c.x)
            if any(powers):
                slope[powers.index(1)] = value
            else:
                shift = value
        total: dict[Rates, Any] = {}
        half = Fraction(1, 2)
        # (factor as a complex number, sign, is the rate imaginary?)
        kinds: dict[str, list[tuple[tuple[Fraction, Fraction], int, bool]]] = {
            "exp": [((Fraction(1), Fraction(0)), 1, False)],
            "sinh": [((half, Fraction(0)), 1, False), ((-half, Fraction(0)), -1, False)],
            "cosh": [((half, Fraction(0)), 1, False), ((half, Fraction(0)), -1, False)],
            "cos": [((half, Fraction(0)), 1, True), ((half, Fraction(0)), -1, True)],
            "sin": [((Fraction(0), -half), 1, True), ((Fraction(0), half), -1, True)],
        }
        constant = sympy.Rational(shift.numerator, shift.denominator)
        for (re, im), sign, turns in kinds[name]:
            if turns:
                u, v = exact(sympy.cos(constant)), sign * exact(sympy.sin(constant))
                rates = tuple((k, Fraction(0), sign * s) for k, s in sorted(slope.items()))
            else:
                u, v = exact(sympy.exp(sign * constant)), Fraction(0)
                rates = tuple((k, sign * s, Fraction(0)) for k, s in sorted(slope.items()))
            number = self._number(re * u - im * v, re * v + im * u)
            total[rates] = total.get(rates, self.ring.zero) + number
        return total

    def _refusal(self, expression: Any) -> ArgumentError:
        return formula_error(
            f"polynomials, and polynomials times {', '.join(_WAVES)} of linear forms",
            str(expression),
            "An M-layer has no exact form of it; use from_function for an approximation.",
        )

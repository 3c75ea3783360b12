"""Reading what the user wrote: strings, numbers and sympy expressions, checked before any algebra.

Strings may come from anywhere. They go through `notation` alone; sympy's own readers (``sympify``) run
strings as Python code, also those inside lists and arrays, and are not used. Whatever is written, each step
works with numbers of bounded length, so that no short text takes long.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

from mlayer.checks import brief, instance
from mlayer.errors import ArgumentError, ArgumentTypeError, MissingPackageError
from mlayer.symbolic.parse.formula_error import formula_error
from mlayer.symbolic.parse.grammar import MOST_CHARACTERS, Grammar, Node, tree_of
from mlayer.symbolic.parse.lists import is_listed, listed
from mlayer.symbolic.parse.rationals import (
    MOST_BITS,
    bits_of,
    bounded,
    literal,
    not_real,
    plain_number,
    rational,
    too_long,
)
from mlayer.symbolic.parse.sympy_nodes import check_algebra

# Functions and constants that a string may name.
_FUNCTIONS = ("exp", "sin", "cos", "sinh", "cosh", "sqrt")
_CONSTANTS = ("pi", "E")
_ALGEBRA = Grammar(
    infix={"+": 0, "-": 0, "*": 1, "/": 1},
    prefix={"+": 2, "-": 2},
    power=frozenset({"**", "^"}),
    functions=_FUNCTIONS,
    wanted="numbers, variables, + - * / ** and " + ", ".join(_FUNCTIONS),
    example="'2*x**2 + sin(y)'",
)
# Beyond this 60 digits of a constant would take long, and no layer can hold it. A power of 2.
_LARGEST_CONSTANT = 1100
_LARGEST_POWER = 1000  # of a constant that is not a fraction
_LONGEST_ROOT = 32  # bits
# Operations inside each other in a constant that is not a fraction: sympy's time may double with each.
_DEEPEST_CONSTANT = 20
# Of a layer: one for each input, and one for each output.
MOST_VARIABLES, MOST_EXPRESSIONS = 10_000, 1_000
_SHOWN = 40  # names in an error, and characters of each


def sympy_module() -> Any:
    """Sympy, or an error that says how to get it."""
    try:
        import sympy
    except ImportError:
        raise MissingPackageError("formulas", "sympy", "pip install 'mlayer[symbolic]'") from None
    return sympy


def is_sympy(value: Any) -> bool:
    """Whether it is an object of sympy; sympy itself is not imported for that.

    >>> is_sympy(3.0)
    False
    """
    loaded = sys.modules.get("sympy")
    return loaded is not None and isinstance(value, loaded.Basic)


def read_variables(variables: Any) -> list[Any]:
    """Symbols from symbols, names, or one string of names."""
    sympy = sympy_module()
    if isinstance(variables, str):
        if len(variables) > MOST_CHARACTERS:
            raise ArgumentError(
                "variables",
                f"at most {MOST_CHARACTERS} characters long",
                f"{len(variables)}",
                "Use shorter names.",
            )
        variables = variables.replace(",", " ").split()
    variables = listed("variables", variables, "symbols or names", MOST_VARIABLES, "For example 'x y'.")
    symbols = []
    for variable in variables:
        if isinstance(variable, str) and variable.isidentifier():
            symbols.append(sympy.Symbol(variable))
        elif isinstance(variable, sympy.Symbol):
            symbols.append(variable)
        else:
            raise ArgumentTypeError(
                "variables", "symbols or names", brief(variable), "For example ['x', 'y'] or sympy symbols."
            )
    names = [symbol.name for symbol in symbols]
    if not symbols or len(set(names)) < len(names):
        raise ArgumentError(
            "variables", "one or more different names", _some(names) or "none", "One for each input."
        )
    return symbols


def read_expressions(expressions: Any, symbols: Sequence[Any]) -> list[Any]:
    """Expressions in the symbols, from one or several strings, numbers or sympy expressions."""
    sympy = sympy_module()
    if isinstance(expressions, sympy.MatrixBase):
        if expressions.rows * expressions.cols > MOST_EXPRESSIONS:
            raise _too_many(expressions.rows * expressions.cols)
        expressions = expressions.flat()
    elif is_listed(expressions):
        if len(expressions) > MOST_EXPRESSIONS:
            raise _too_many(len(expressions))
        expressions = listed("expressions", expressions, "formulas", MOST_EXPRESSIONS, "Use several layers.")
    else:
        expressions = [expressions]
    by_name = {symbol.name: symbol for symbol in symbols}
    found = [_read(given, by_name) for given in expressions]
    if not found:
        raise formula_error("one or more", "none", "For example 'x*y + 1'.")
    return found


def _read(given: Any, by_name: dict[str, Any]) -> Any:
    sympy = sympy_module()
    if isinstance(given, str):
        return parse(given, by_name)
    number = plain_number(given)
    if number is not None:
        return rational(number)
    instance(
        "expressions", given, sympy.Basic, "sympy expressions, strings or numbers", "For example 'x*y + 1'."
    )
    check_algebra(given)
    return _Converter(by_name).rebuilt(given)


def parse(text: str, by_name: dict[str, Any]) -> Any:
    """A formula in Python's notation as a sympy expression; nothing in it is run.

    >>> import sympy
    >>> parse("0.1*x^2 + sin(2*x)", {"x": sympy.Symbol("x")})
    x**2/10 + sin(2*x)
    """
    return _Converter(by_name).convert(tree_of(text, _ALGEBRA))


class _Converter:
    def __init__(self, by_name: dict[str, Any]) -> None:
        self.sympy = sympy_module()
        self.by_name = by_name

    def convert(self, node: Node) -> Any:
        """The expression of a tree; its constants are real and of bounded size."""
        match node.kind:
            case "number":
                return rational(literal(node.words[0]))
            case "name":
                return self._named(node.words[0])
            case "prefix":
                inner = self.convert(node.parts[0])
                return -inner if node.words.count("-") % 2 else inner
            case "call":
                return self._called(node.words[0], self.convert(node.parts[0]))
            case "power":
                return self._power(self.convert(node.parts[0]), self.convert(node.parts[1]))
            case _:
                parts = [self.convert(part) for part in node.parts]
                return (
                    self._sum(node.words, parts)
                    if node.words[0] in "+-"
                    else self._product(node.words, parts)
                )

    def rebuilt(self, given: Any) -> Any:
        """A sympy expression (one that `check_algebra` accepted), evaluated within the same bounds.

        Symbols of the same name with other assumptions are meant to be the same.
        """
        sympy = self.sympy
        if isinstance(given, sympy.Symbol):
            return self._named(given.name)
        if isinstance(given, sympy.Number | sympy.NumberSymbol):
            return given
        parts = [self.rebuilt(part) for part in given.args]
        if given.is_Add:
            return self._sum("+" * (len(parts) - 1), parts)
        if given.is_Mul:
            return self._product("*" * (len(parts) - 1), parts)
        if isinstance(given, sympy.Pow):
            return self._power(*parts)
        return self._called(type(given).__name__, parts[0])

    def _named(self, name: str) -> Any:
        if name in self.by_name:
            return self.by_name[name]
        if name in _CONSTANTS:
            return getattr(self.sympy, name)
        raise _unknown(name, self.by_name)

    def _called(self, name: str, argument: Any) -> Any:
        if not argument.free_symbols and name == "sqrt" and self._size(argument)[0] < 0:
            raise not_real(f"sqrt({argument})")
        return self._checked(getattr(self.sympy, name)(argument))

    def _sum(self, operators: Sequence[str], parts: Sequence[Any]) -> Any:
        """Like terms are put together here, one after the other, so that no number grows unseen."""
        total: dict[Any, Fraction] = {}
        for operator, part in zip(("+", *operators), parts, strict=True):
            for term in self.sympy.Add.make_args(part):
                coefficient, rest = _split(term)
                signed = coefficient if operator == "+" else -coefficient
                total[rest] = bounded(total.get(rest, Fraction(0)) + signed)
        return self._checked(self.sympy.Add(*(rational(c) * rest for rest, c in total.items() if c)))

    def _product(self, operators: Sequence[str], parts: Sequence[Any]) -> Any:
        number, others = Fraction(1), []
        for operator, part in zip(("*", *operators), parts, strict=True):
            coefficient, rest = _split(part)
            if operator == "/":
                if part == 0 or (not part.free_symbols and self._size(part)[0] == 0):
                    raise _division(f"/ {part}")
                coefficient, rest = 1 / coefficient, 1 / rest
            number = bounded(number * coefficient)
            if rest != 1:
                others.append(rest)
        return self._checked(rational(number) * self.sympy.Mul(*others))

    def _power(self, base: Any, power: Any) -> Any:
        """Refused before it is evaluated: 9**9**9 is a number of 370 million digits."""
        if power.free_symbols:
            return self._checked(base**power)
        sign, size = self._size(power)
        if sign and size > 20:
            raise formula_error("limited to powers below a million", f"**({power})", "See `largest`.")
        if power.is_Rational and int(power.q).bit_length() > _LONGEST_ROOT:  # sympy looks for exact roots
            raise formula_error(
                f"limited to powers whose denominators are below 2^{_LONGEST_ROOT}",
                f"**({power})",
                "Write a third as (1/3).",
            )
        most = ceil(abs(float(power)))
        coefficient, rest = _split(base)
        bits = 0 if coefficient in (-1, 0, 1) else bits_of(coefficient)
        odd = any(not factor.free_symbols and factor != 1 for factor in self.sympy.Mul.make_args(rest))
        if bits * most > MOST_BITS or (odd and most > _LARGEST_POWER):
            raise too_long()
        if not base.free_symbols:
            sign, size = self._size(base)
            if sign < 0 and not power.is_Integer:
                raise not_real(f"({base})**({power})")
            if sign == 0 and self._size(power)[0] < 0:
                raise _division(f"0**({power})")
            if abs(size) * most > MOST_BITS:
                raise too_long()
        return self._checked(base**power)

    def _checked(self, expression: Any) -> Any:
        """``expression``, if its numbers are not too long."""
        for term in self.sympy.Add.make_args(expression):
            bounded(_split(term)[0])
        if not expression.free_symbols and not expression.is_Rational:
            if _depth(expression) > _DEEPEST_CONSTANT:
                came = f"one of {_DEEPEST_CONSTANT + 1} or more"
                must_be = f"made of constants of at most {_DEEPEST_CONSTANT} operations inside each other"
                raise formula_error(must_be, came, "Write the number instead.")
            self._size(expression)
        return expression

    def _size(self, constant: Any) -> tuple[int, int]:
        """Sign of a real constant (0 if it cannot be distinguished from 0), and its size as a power of 2."""
        value = constant if constant.is_Rational else constant.evalf(20)
        if value.is_Rational:
            size = int(value.p).bit_length() - int(value.q).bit_length()
            return (value.p > 0) - (value.p < 0), size
        if not value.is_Float or not value.is_finite:
            raise not_real(str(constant))
        negative, mantissa, exponent, bits = value._mpf_
        if not mantissa or value._prec < 30:  # nothing is left of its digits
            return 0, 0
        if abs(exponent + bits) > _LARGEST_CONSTANT:
            raise too_long()
        return (-1 if negative else 1), exponent + bits


def _depth(constant: Any) -> int:
    return 1 + max(map(_depth, constant.args)) if constant.args else 0


def _some(names: Sequence[str]) -> str:
    """The first names, for an error."""
    return ", ".join(name[:_SHOWN] for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _too_many(count: int) -> ArgumentError:
    return formula_error(
        f"at most {MOST_EXPRESSIONS}, one for each output", str(count), "Use several layers."
    )


def _split(term: Any) -> tuple[Fraction, Any]:
    """A term as a fraction times the rest."""
    coefficient, rest = term.as_coeff_Mul()
    if not coefficient.is_Rational:
        return Fraction(1), term
    return Fraction(int(coefficient.p), int(coefficient.q)), rest


def _division(came: str) -> ArgumentError:
    return formula_error("without division by 0", came, "Write the limit that is meant.")


def _unknown(names: str, by_name: dict[str, Any]) -> ArgumentError:
    return formula_error(
        f"in the variables {_some(list(by_name))}",
        f"an unknown symbol: {names}",
        "List it in `variables`, or give its value with .subs.",
    )

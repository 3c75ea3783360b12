"""Reading what the user wrote: strings and sympy expressions, checked before anything is multiplied out."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from math import comb
from typing import Any

from mlayer.errors import ArgumentError, ArgumentTypeError, MissingPackageError, MLayerError

# Functions and constants that a string may name.
_FUNCTIONS = ("exp", "sin", "cos", "sinh", "cosh", "sqrt")
_CONSTANTS = ("pi", "E")
MOST_TERMS = 20_000


def sympy_module() -> Any:
    """Sympy, or an error that says how to get it."""
    try:
        import sympy
    except ImportError:
        raise MissingPackageError("formulas", "sympy", "pip install 'mlayer[symbolic]'") from None
    return sympy


def read_variables(variables: Any) -> list[Any]:
    """Symbols from symbols, names, or one string of names."""
    sympy = sympy_module()
    if isinstance(variables, str):
        variables = variables.replace(",", " ").split()
    try:
        variables = list(variables)
    except TypeError:
        raise ArgumentTypeError(
            "variables", "a list of symbols or names", type(variables).__name__, "For example 'x y'."
        ) from None
    symbols = []
    for variable in variables:
        if isinstance(variable, str) and variable.isidentifier():
            symbols.append(sympy.Symbol(variable))
        elif isinstance(variable, sympy.Symbol):
            symbols.append(variable)
        else:
            raise ArgumentTypeError(
                "variables", "symbols or names", repr(variable), "For example ['x', 'y'] or sympy symbols."
            )
    names = [symbol.name for symbol in symbols]
    if not symbols or len(set(names)) < len(names):
        raise ArgumentError(
            "variables", "one or more different names", ", ".join(names) or "none", "One for each input."
        )
    return symbols


def read_expressions(expressions: Any, symbols: Sequence[Any]) -> list[Any]:
    """Expressions in the symbols, from one or several strings or sympy expressions."""
    sympy = sympy_module()
    if isinstance(expressions, (str, sympy.Basic)):
        expressions = [expressions]
    try:
        expressions = list(expressions)
    except TypeError:  # one number, say
        expressions = [expressions]
    by_name = {symbol.name: symbol for symbol in symbols}
    found = []
    for given in expressions:
        try:
            expression = parse(given, by_name) if isinstance(given, str) else sympy.sympify(given)
            # Symbols of the same name with other assumptions are meant to be the same.
            foreign = {s: by_name[s.name] for s in expression.free_symbols if s.name in by_name}
            expression = expression.xreplace(foreign)
        except (sympy.SympifyError, AttributeError, TypeError, ValueError, RuntimeError) as error:
            if isinstance(error, MLayerError):
                raise
            raise ArgumentTypeError(
                "expressions",
                "sympy expressions or strings",
                type(given).__name__,
                "For example 'x*y + 1'.",
            ) from None
        unknown = sorted(str(s) for s in expression.free_symbols - set(symbols))
        if unknown:
            raise _unknown(", ".join(unknown), by_name)
        if not isinstance(expression, sympy.Expr):
            raise ArgumentTypeError(
                "expressions", "algebraic expressions", str(expression), "Use from_boolean for logic."
            )
        found.append(expression)
    if not found:
        raise ArgumentError("expressions", "one or more", "none", "For example 'x*y + 1'.")
    return found


def parse(text: str, by_name: dict[str, Any]) -> Any:
    """A formula in Python's notation as a sympy expression; nothing in it is run.

    >>> import sympy
    >>> parse("0.1*x^2 + sin(2*x)", {"x": sympy.Symbol("x")})
    x**2/10 + sin(2*x)
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ArgumentError(
            "expressions",
            "formulas",
            f"{text!r} ({type(error).__name__})",
            "Write them as in Python: 2*x**2 + y.",
        ) from None
    # A caret binds as in mathematics, tighter than a product, which Python's grammar does not give.
    if any(isinstance(node, ast.BitXor) for node in ast.walk(tree)):
        return parse(text.replace("^", "**"), by_name)
    return _converted(tree.body, text, by_name)


def _converted(node: ast.expr, text: str, by_name: dict[str, Any]) -> Any:
    sympy = sympy_module()

    def go(one: ast.expr) -> Any:
        return _converted(one, text, by_name)

    match node:
        case ast.Constant(value=bool() | str() | bytes() | None):
            pass
        case ast.Constant(value=int()):
            return sympy.Integer(node.value)
        case ast.Constant(value=float()):
            written = ast.get_source_segment(text.strip(), node)
            return sympy.Rational(written.replace("_", "") if written else str(node.value))  # as written
        case ast.Name(id=name):
            if name in by_name:
                return by_name[name]
            if name in _CONSTANTS:
                return getattr(sympy, name)
            raise _unknown(name, by_name)
        case ast.UnaryOp(op=ast.USub()):
            return -go(node.operand)
        case ast.UnaryOp(op=ast.UAdd()):
            return go(node.operand)
        case ast.BinOp(op=ast.Add()):
            return go(node.left) + go(node.right)
        case ast.BinOp(op=ast.Sub()):
            return go(node.left) - go(node.right)
        case ast.BinOp(op=ast.Mult()):
            return go(node.left) * go(node.right)
        case ast.BinOp(op=ast.Div()):
            below = go(node.right)
            if below != 0:
                return go(node.left) / below
        case ast.BinOp(op=ast.Pow()):
            base, power = go(node.left), go(node.right)
            # 9**9**9 would be worked out at once: a number of 370 million digits.
            if base.free_symbols or (abs(power) <= 1000 and abs(base) < 1e100):
                return base**power
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return getattr(sympy, name)(go(argument))
        case _:
            pass
    raise ArgumentError(
        "expressions",
        "made of numbers, variables, + - * / ** and " + ", ".join(_FUNCTIONS),
        repr(ast.get_source_segment(text.strip(), node) or text),
        "Write for example '2*x**2 + sin(y)'.",
    )


def _unknown(names: str, by_name: dict[str, Any]) -> ArgumentError:
    return ArgumentError(
        "expressions",
        f"in the variables {', '.join(by_name)}",
        f"an unknown symbol: {names}",
        "List it in `variables`, or give its value with .subs.",
    )


def degree_and_terms(expression: Any, count: int) -> tuple[int, int]:
    """Upper bounds of the degree of a polynomial and of its number of terms; nothing is multiplied out."""
    if not expression.free_symbols:
        return 0, 1
    if expression.is_Symbol:
        return 1, 1
    parts = [degree_and_terms(part, count) for part in expression.args]
    if expression.is_Add:
        degree, terms = max(d for d, _ in parts), sum(t for _, t in parts)
    elif expression.is_Mul:
        degree, terms = sum(d for d, _ in parts), 1
        for _, t in parts:
            terms = min(terms * t, 10**12)
    elif expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
        power = int(expression.exp)
        degree = power * parts[0][0]
        if parts[0][1] == 1:
            terms = 1
        elif power > 10**6:
            terms = 10**12
        else:
            terms = comb(power + parts[0][1] - 1, min(power, parts[0][1] - 1))
    else:  # exp, sin, cos: a factor that is counted as one
        return 0, 2
    if degree <= 10**4:
        terms = min(terms, comb(degree + count, count))
    return degree, terms

"""Expressions of sympy, checked before anything is computed with them.

A sympy expression may be unevaluated (a tower of powers that no computer can evaluate), may share its parts
(40 nodes in memory that are 2^40 when traversed), and may hold objects that are not formulas (matrices,
roots, cases). Its nodes are counted and each is one of a fixed list of kinds, or it is refused.
"""

from __future__ import annotations

from typing import Any

from mlayer.errors import ArgumentTypeError
from mlayer.symbolic.parse.formula_error import formula_error
from mlayer.symbolic.parse.rationals import MOST_BITS, not_real, too_long

# Shared parts counted as often as they occur: a polynomial of 20,000 short terms.
MOST_NODES = 200_000
# Levels; each takes a few frames of Python's stack.
MOST_LEVELS = 400
# Of which a layer has an exact form, and others that may stand before a variable as a constant.
FUNCTIONS = (
    *("exp", "sin", "cos", "sinh", "cosh"),
    *("tan", "tanh", "log", "asin", "acos", "atan", "asinh", "acosh", "atanh", "Abs"),
)
LOGIC = ("And", "Or", "Not", "Xor", "Nand", "Nor", "Xnor", "Implies", "Equivalent", "ITE")


def check_algebra(expression: Any) -> None:
    """Raise unless it is made of numbers, symbols, sums, products, powers and known functions."""
    import sympy

    known = {sympy.Add, sympy.Mul, sympy.Pow, *(getattr(sympy, name) for name in FUNCTIONS)}
    for node in _nodes(expression):
        if isinstance(node, sympy.Symbol | sympy.NumberSymbol) or type(node) in known:
            continue
        if isinstance(node, sympy.Rational):
            _check_bits(max(int(node.p).bit_length(), int(node.q).bit_length()))
        elif isinstance(node, sympy.Float) and not node.is_finite:
            raise not_real(str(node))
        elif isinstance(node, sympy.Float):
            _check_bits(int(node._mpf_[3]) + abs(int(node._mpf_[2])))
        elif isinstance(node, sympy.Number) or node in (sympy.I, sympy.zoo):
            raise not_real(str(node))
        elif isinstance(node, sympy.logic.boolalg.Boolean):
            raise ArgumentTypeError(
                "expressions", "algebraic expressions", _kind(node), "Use from_boolean for logic."
            )
        else:
            raise _foreign(
                node,
                f"made of numbers, symbols, sums, products, powers and {', '.join(FUNCTIONS)}",
                "Use from_function for an approximation of other functions.",
            )


def check_logic(expression: Any) -> None:
    """Raise unless it is made of symbols, true, false and sympy's logic."""
    import sympy

    logic = sympy.logic.boolalg
    true_or_false = (logic.BooleanTrue, logic.BooleanFalse)
    known = {getattr(logic, name) for name in LOGIC}
    for node in _nodes(expression):
        if not isinstance(node, (sympy.Symbol, *true_or_false)) and type(node) not in known:
            raise _foreign(node, f"{', '.join(LOGIC)} of the variables", "Use from_polynomial for numbers.")


def _nodes(expression: Any) -> Any:
    """Every node, from the top down, as often as it occurs; an error if they are too many or too deep."""
    import sympy

    left = [(expression, 1)]
    count = 0
    while left:
        node, level = left.pop()
        count += 1
        if count + len(left) > MOST_NODES:
            raise formula_error(f"of at most {MOST_NODES} nodes", "more")
        if level > MOST_LEVELS:
            raise formula_error(
                f"nested at most {MOST_LEVELS} deep", "a deeper one", "Write it with less nesting."
            )
        yield node
        if not isinstance(node, sympy.Symbol | sympy.Number):
            left.extend((part, level + 1) for part in node.args)


def _check_bits(bits: int) -> None:
    if bits > MOST_BITS:
        raise too_long()


def _foreign(node: Any, must_be: str, hint: str) -> ArgumentTypeError:
    return ArgumentTypeError("expressions", must_be, _kind(node), hint)


def _kind(node: Any) -> str:
    """The name of the node's class; printing the node itself may take forever."""
    return f"sympy's {type(node).__name__}"

"""Truth tables of formulas in Boolean logic: strings and sympy's logic, evaluated on all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import and_, or_, xor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlayer.errors import ArgumentError
from mlayer.symbolic.parse.expressions import sympy_module
from mlayer.symbolic.parse.formula_error import formula_error
from mlayer.symbolic.parse.grammar import Grammar, Node, tree_of
from mlayer.symbolic.parse.sympy_nodes import check_logic

Column = NDArray[np.bool_]  # the value of a piece of the formula in each row of the table
_LOGIC = Grammar(
    infix={"or": 0, "and": 1, "|": 3, "^": 4, "&": 5, ">>": 6},
    prefix={"not": 2, "~": 7},
    power=frozenset(),
    functions=(),
    wanted="names, 0, 1 and & | ^ ~ >> (or `and`, `or`, `not`)",
    example="'a & (b | ~c)'",
)

_all, _any, _odd = np.logical_and.reduce, np.logical_or.reduce, np.logical_xor.reduce
_JOINED: dict[str, Callable[[Column, Column], Column]] = {
    **dict.fromkeys(("|", "or"), or_),
    **dict.fromkeys(("&", "and"), and_),
    "^": xor,
    ">>": lambda left, right: ~left | right,  # sympy's implication
}
_LOGIC_OF_SYMPY: dict[str, Callable[[list[Column]], Column]] = {
    "And": _all,
    "Or": _any,
    "Xor": _odd,
    "Not": lambda parts: ~parts[0],
    "Nand": lambda parts: ~_all(parts),
    "Nor": lambda parts: ~_any(parts),
    "Xnor": lambda parts: ~_odd(parts),
    "Implies": lambda parts: ~parts[0] | parts[1],
    "Equivalent": lambda parts: _all(parts) | ~_any(parts),
    "ITE": lambda parts: np.where(*parts),
}


def values_of_text(text: str, names: Sequence[str]) -> Column:
    """The truth table of a string, rows in counting order."""
    tree, columns = tree_of(text, _LOGIC), _columns(names)
    return _of_node(tree, columns)


def values_of_logic(function: Any, symbols: Sequence[Any]) -> Column:
    """The truth table of sympy's logic."""
    check_logic(function)
    by_name = {s.name: s for s in symbols}
    unknown = sorted(s.name for s in function.free_symbols if s.name not in by_name)
    if unknown:
        raise _unknown(", ".join(unknown), by_name)
    return _of_logic(function, _columns(list(by_name)))


def _columns(names: Sequence[str]) -> dict[str, Column]:
    """The variables' own columns; the first is the slowest."""
    rows = np.arange(2 ** len(names))
    return {name: (rows >> (len(names) - 1 - k)) % 2 == 1 for k, name in enumerate(names)}


def _of_node(node: Node, columns: Mapping[str, Column]) -> Column:
    rows = 2 ** len(columns)
    match node.kind:
        case "name":
            name = node.words[0]
            if name in ("True", "False"):
                return np.full(rows, name == "True")
            if name not in columns:
                raise _unknown(name, columns)
            return columns[name]
        case "number" if node.words[0] in ("0", "1"):
            return np.full(rows, node.words[0] == "1")
        case "prefix":
            inner = _of_node(node.parts[0], columns)
            return ~inner if len(node.words) % 2 else inner
        case "chain":
            value = _of_node(node.parts[0], columns)
            for word, part in zip(node.words, node.parts[1:], strict=True):
                value = _JOINED[word](value, _of_node(part, columns))
            return value
        case _:
            raise formula_error(
                f"made of {_LOGIC.wanted}", repr(node.words[0]), f"For example {_LOGIC.example}."
            )


def _of_logic(function: Any, columns: Mapping[str, Column]) -> Column:
    sympy = sympy_module()
    rows = 2 ** len(columns)
    if function in (sympy.true, sympy.false):
        return np.full(rows, function == sympy.true)
    if isinstance(function, sympy.Symbol):
        return columns[function.name]
    parts = [_of_logic(part, columns) for part in function.args]
    return _LOGIC_OF_SYMPY[type(function).__name__](parts)  # `check_logic` accepts nothing else


def _unknown(names: str, known: Iterable[str]) -> ArgumentError:
    return formula_error(
        f"in the variables {', '.join(known)}", f"an unknown symbol: {names}", "List it in `variables`."
    )

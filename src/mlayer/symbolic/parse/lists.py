"""Several formulas, names or numbers: lists, tuples and 1-d arrays, counted before they are iterated.

Other things that can be iterated over may never end (``sympy.IndexedBase``, generators) or hold more than
memory does (``range(10**9)``).
"""

from __future__ import annotations

from typing import Any

from mlayer.checks import brief
from mlayer.errors import ArgumentError, ArgumentTypeError, in_one_line


def is_listed(value: Any) -> bool:
    """Whether it is a list, a tuple or a 1-d array (numpy, torch, pandas), which know how many they hold.

    >>> is_listed(["x"]), is_listed("x"), is_listed(range(3))
    (True, False, False)
    """
    if isinstance(value, list | tuple):
        return True
    return not isinstance(value, type) and getattr(value, "ndim", None) == 1 and hasattr(value, "tolist")


def listed(argument: str, value: Any, must_be: str, most: int, hint: str) -> list[Any]:
    """The items of a list, a tuple or a 1-d array; at most ``most``.

    >>> listed("variables", ("x", "y"), "names", 10, "For example ['x', 'y'].")
    ['x', 'y']
    """
    if not is_listed(value):
        raise ArgumentTypeError(argument, f"a list of {must_be}, a tuple or a 1-d array", brief(value), hint)
    if len(value) > most:
        raise ArgumentError(argument, f"at most {most} {must_be}", str(len(value)), hint)
    try:
        return list(value) if isinstance(value, list | tuple) else list(value.tolist())
    except Exception as error:  # a tensor without numbers, for one
        raise ArgumentTypeError(argument, f"a list of {must_be}", in_one_line(error), hint) from None

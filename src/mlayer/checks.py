"""Checks at the door that several rooms share. Each error names the argument, what it must be, what came."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from mlayer.errors import ArgumentError, ArgumentTypeError


def did_you_mean(name: str, known: Iterable[str], otherwise: str, *, most: int = 1) -> str:
    """A hint at the known names (``most`` of them) nearest to a misspelt one, in any case of letters.

    >>> did_you_mean("Nilpotant", ["full", "nilpotent"], "See the documentation.")
    "Did you mean 'nilpotent'?"
    >>> did_you_mean("quaternion", ["full", "nilpotent"], "See the documentation.")
    'See the documentation.'
    """
    by_lower = {one.lower(): one for one in known}
    near = [repr(by_lower[match]) for match in get_close_matches(name.strip().lower(), by_lower, most)]
    return f"Did you mean {' or '.join(near)}?" if near else otherwise


def one_of(argument: str, value: object, known: Iterable[str], otherwise: str, *, more: str = "") -> None:
    """Raise if ``value`` is none of the ``known`` names; ``more`` says what else it may be."""
    names = list(known)
    must_be = f"one of {', '.join(map(repr, names))}{more}"
    if not isinstance(value, str):
        raise ArgumentTypeError(argument, must_be, brief(value), otherwise)
    if value not in names:
        raise ArgumentError(argument, must_be, repr(value), did_you_mean(value, names, otherwise))


def positive_integer(argument: str, value: object) -> int:
    """``value``, if it is one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(argument, "a positive integer", type(value).__name__, "For example 30.")
    if value < 1:
        raise ArgumentError(argument, "a positive integer", str(value), "For example 30.")
    return value


def integer(argument: str, value: object, least: int) -> None:
    """Raise if ``value`` is no integer of at least ``least``."""
    must_be = f"an integer of at least {least}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(argument, must_be, brief(value), "Give a whole number.")
    if value < least:
        raise ArgumentError(argument, must_be, repr(value), "Give a larger number.")


def number(argument: str, value: object, *, least: float | None = None, above: float | None = None) -> None:
    """Raise if ``value`` is no finite number, or too small."""
    bound = f"above {above:g}" if above is not None else f"at least {least:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(argument, f"a number {bound}", brief(value), "For example 0.001.")
    too_small = (above is not None and value <= above) or (least is not None and value < least)
    if not math.isfinite(value) or too_small:
        raise ArgumentError(argument, f"a finite number {bound}", repr(value), "For example 0.001.")


def between(argument: str, value: object, low: float, high: float, hint: str) -> None:
    """Raise if ``value`` is no number strictly between the two."""
    must_be = f"between {low:g} and {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(argument, f"a number {must_be}", brief(value), hint)
    if not low < value < high:
        raise ArgumentError(argument, must_be, repr(value), hint)


def flag(argument: str, value: object) -> bool:
    """``value``, if it is True or False."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(argument, "True or False", brief(value), f"Give bool({argument}).")
    return value


def function(argument: str, value: object, like: str) -> None:
    """Raise if ``value`` is neither None nor callable."""
    if value is not None and not callable(value):
        raise ArgumentTypeError(argument, f"a callable {like}, or None", brief(value), "Give a function.")


def file_path(argument: str, value: object) -> Path:
    """``value`` as a path."""
    if not isinstance(value, str | os.PathLike):
        raise ArgumentTypeError(argument, "a path", brief(value), "Give a string or a pathlib.Path.")
    return Path(value)


def brief(value: object) -> str:
    """Something that came, in a few words: numbers and short strings as they are, of others the type."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        written = repr(value)
        return written if len(written) <= 60 else f"{written[:57]}..."
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"of type {type(value).__name__}"

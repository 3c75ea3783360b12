"""Argument checks of all packages. Each error names the argument, what it must be and what it was."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import signature
from itertools import islice
from numbers import Integral, Number, Real
from pathlib import Path
from types import UnionType
from typing import Any, SupportsFloat, cast
from unicodedata import normalize

from mlayer.errors import ArgumentError, ArgumentTypeError

_MOST = 1_000_000  # entries of an argument that is a list: names of columns, seeds


def did_you_mean(name: str, known: Iterable[str], otherwise: str, *, most: int = 1) -> str:
    """A hint at the known names (``most`` of them) nearest to a misspelled one, ignoring case.

    >>> did_you_mean("Nilpotant", ["full", "nilpotent"], "See the documentation.")
    "Did you mean 'nilpotent'?"
    >>> did_you_mean("quaternion", ["full", "nilpotent"], "See the documentation.")
    'See the documentation.'
    """
    by_lower = {one.lower(): one for one in known}
    plain = name.strip().lower()
    alike = [one for one in by_lower.values() if _looks(one) == _looks(name) and one.strip().lower() != plain]
    if alike:  # such as an accent that is a separate character, or a space of another width
        return f"Did you mean {alike[0]!a}, which looks like {name!a}?"
    near = [repr(by_lower[match]) for match in get_close_matches(plain, by_lower, most)]
    return f"Did you mean {' or '.join(near)}?" if near else otherwise


def _looks(name: str) -> str:
    """The same for names that look alike."""
    return " ".join(normalize("NFKC", name).split()).lower()


def one_of(argument: str, value: object, known: Iterable[str], otherwise: str) -> None:
    """Raise if ``value`` is none of the ``known`` names."""
    names = list(known)
    must_be = f"one of {', '.join(map(repr, names))}"
    if not isinstance(value, str):
        raise ArgumentTypeError(argument, must_be, brief(value), otherwise)
    if value not in names:
        raise ArgumentError(argument, must_be, brief(value), did_you_mean(value, names, otherwise))


def instance(argument: str, value: object, kind: type | UnionType, must_be: str, hint: str) -> None:
    """Raise unless ``value`` is of this class, or of one of these."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(argument, must_be, brief(value), hint)


def positive_integer(argument: str, value: object) -> int:
    """``value``, if it is one; numpy's too, because sizes often come from arrays."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ArgumentTypeError(argument, "a positive integer", type(value).__name__, "For example 30.")
    whole = int(value)
    if not 1 <= whole < 2**63:
        raise ArgumentError(argument, "a positive integer", brief(whole), "For example 30.")
    return whole


def integer(argument: str, value: object, least: int) -> None:
    """Raise unless ``value`` is an integer of at least ``least``."""
    must_be = f"an integer of at least {least}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(argument, must_be, brief(value), _plain(argument, value, "int"))
    if not least <= value < 2**63:
        hint = "Give a larger number." if value < least else "Give one below 2**63."
        raise ArgumentError(argument, must_be, brief(value), hint)


def is_finite(value: SupportsFloat) -> bool:
    """Whether a number is one of float64's, and no infinity or NaN. Integers may be larger than all of them.

    >>> is_finite(3.0), is_finite(10**400), is_finite(math.nan)
    (True, False, False)
    """
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def number(argument: str, value: object, *, least: float | None = None, above: float | None = None) -> None:
    """Raise unless ``value`` is a finite number that is large enough."""
    bound = f" above {above:g}" if above is not None else f" at least {least:g}" if least is not None else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(argument, f"a number{bound}", brief(value), _plain(argument, value, "float"))
    too_small = (above is not None and value <= above) or (least is not None and value < least)
    if not is_finite(value) or too_small:
        raise ArgumentError(argument, f"a finite number{bound}", brief(value), "For example 0.001.")


def _plain(argument: str, value: object, kind: str) -> str:
    """The hint for a number that is not Python's own: numpy's cannot be written to files unchanged."""
    if isinstance(value, Real):
        return f"Give {kind}({argument})."
    return "Give a whole number." if kind == "int" else "For example 0.001."


def between(argument: str, value: object, low: float, high: float, hint: str) -> None:
    """Raise unless ``value`` is a number strictly between the two."""
    must_be = f"between {low:g} and {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(argument, f"a number {must_be}", brief(value), hint)
    if not low < value < high:
        raise ArgumentError(argument, must_be, brief(value), hint)


def flag(argument: str, value: object) -> bool:
    """``value``, if it is True or False."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(argument, "True or False", brief(value), f"Give bool({argument}).")
    return value


def function(argument: str, value: object, like: str, count: int = 1) -> None:
    """Raise if ``value`` is neither None nor callable with this many arguments."""
    must_be = f"a callable {like}, or None"
    if value is None:
        return
    if not callable(value):
        raise ArgumentTypeError(argument, must_be, brief(value), "Give a function.")
    if not takes(value, count):
        came = "one that cannot be called so"
        raise ArgumentTypeError(argument, must_be, came, f"Give a function of {count} argument(s).")


def is_several(value: object) -> bool:
    """Whether it holds several things, one after the other: not text, not a dict, not a 0-d array.

    >>> is_several((1, 2)), is_several("ab"), is_several({"a": 1}), is_several(3)
    (True, False, False, False)
    """
    if isinstance(value, str | bytes | Mapping | type) or not isinstance(value, Iterable):
        return False
    return getattr(value, "ndim", 1) != 0


def several(argument: str, value: object, must_be: str, hint: str) -> tuple[Any, ...]:
    """The entries of ``value``, if there are several, as `is_several` says, but not too many."""
    if not is_several(value):
        raise ArgumentTypeError(argument, must_be, brief(value), hint)
    listed = tuple(islice(cast(Iterable[Any], value), _MOST + 1))
    if len(listed) > _MOST:  # such as range(10**12), which memory does not hold
        raise ArgumentError(argument, f"{must_be}, at most {_MOST}", "more", hint)
    return listed


def texts(argument: str, value: object, of: str, example: str) -> tuple[str, ...]:
    """``value``, if it is several texts."""
    listed = several(argument, value, f"several {of}", f"For example {example}.")
    for one in listed:
        if not isinstance(one, str):
            raise ArgumentTypeError(
                argument, f"several {of}", f"{brief(one)} in it", f"For example {example}."
            )
    return listed


def takes(function: Callable[..., object], count: int) -> bool:
    """Whether it can be called with this many arguments, as far as Python can tell.

    >>> takes(lambda x: x, 1), takes(lambda x: x, 2), takes(max, 2)
    (True, False, True)
    """
    try:
        signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        pass
    return True


def file_path(argument: str, value: object) -> Path:
    """``value`` as a path."""
    if not isinstance(value, str | os.PathLike):
        raise ArgumentTypeError(argument, "a path", brief(value), "Give a string or a pathlib.Path.")
    text = os.fspath(value)
    if not isinstance(text, str):
        raise ArgumentTypeError(argument, "a path", brief(text), "Use os.fsdecode.")
    if "\0" in text or not text:
        raise ArgumentError(argument, "a path", brief(text), "A name has one character or more, and no NUL.")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:  # half of a pair, which no name of a file holds
        raise ArgumentError(argument, "a path", ascii(text)[:100], "It has a surrogate: use text.") from None
    return Path(text)


def brief(value: object) -> str:
    """A short description of a value: numbers and short strings as they are, the type of others."""
    if value is None or isinstance(value, Number | str | bytes):
        try:
            written = repr(value[:100] if isinstance(value, str | bytes) else value)
        except Exception:  # integers beyond 4300 digits; any exception of a user's class
            return f"of type {type(value).__name__}, which cannot be written"
        return written if len(written) <= 60 else f"{written[:57]}..."
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"of type {type(value).__name__}"


def written_out(text: str) -> str:
    r"""The text with characters that XML does not allow, or that turn the direction of others, as escapes.

    >>> written_out("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(ascii(c)[1:-1] if _NOT_IN_PAGES.match(c) else c for c in text)


# Control characters, halves of pairs, the two that are no characters, and marks of direction.
_NOT_IN_PAGES = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufffe\\uffff\\u202a-\\u202e\\u2066-\\u2069]"
)

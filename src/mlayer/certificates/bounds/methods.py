"""The table of bounds. A new bound is one file here, one row and its name in the documentation.

Every list of bounds derives from the table: the methods that `certify` and the command line offer, and the
order of cost. "best" tries a new bound after those that it was tuned with (solve/strategy.py). Nothing heavy
is imported here, so that `mlayer certify --help` can list the methods; a bound's file is imported when it is
first used.

The file of a Taylor bound has ``build(bounds)``, which makes a `protocol.Bound` for one pair of classes; it
gets the cheaper bounds of the pair as ``bounds[name]``. That of a closed form has ``<name>_radius(row)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mlayer.errors import ArgumentError

STRATEGY = "best"  # not a bound: tries them, the cheap ones first


@dataclass(frozen=True)
class Method:
    """The properties of a bound.

    Attributes:
        name: as ``method=`` and ``--method`` take it.
        module: the file in this folder.
        cost: milliseconds for one pair of the authors' CIFAR-10 model (n = 20, d = 35), rounded to a power of
            ten; the order in which bounds are tried.
        norms: of the regions it is made for.
        closed_form: whether the radius is a formula (``<name>_radius(row)``), with nothing to search.
        offered: whether a user may choose it by name; the others are parts of "best".
        theorem: in docs/theory/certificates.md.
    """

    name: str
    module: str
    cost: float
    norms: tuple[str, ...]
    closed_form: bool
    offered: bool
    theorem: int

    def load(self, norm: str) -> Any:
        """The bound's file, for regions of this norm; refused if the bound is made for others."""
        if norm not in self.norms:
            raise ArgumentError(
                "norm",
                f"one of those that {self.name!r} is made for, {', '.join(self.norms)}",
                repr(norm),
                "Use another method.",
            )
        return import_module(f"mlayer.certificates.bounds.{self.module}")


_BOTH, _LINF = ("linf", "l2"), ("linf",)

METHODS: tuple[Method, ...] = (
    #      name            file            cost   norms  closed offered theorem
    Method("paper", "paper", 0.1, _BOTH, True, True, 1),
    Method("lipschitz", "paper", 0.1, _BOTH, True, True, 1),
    Method("first_order", "first_order", 0.1, _BOTH, False, True, 2),
    Method("second_order", "second_order", 1.0, _BOTH, False, True, 4),
    Method("tangent", "tangent", 1.0, _LINF, False, False, 7),
    Method("third_order", "third_order", 10.0, _BOTH, False, True, 5),
    Method("fourth_order", "fourth_order", 100.0, _BOTH, False, True, 6),
    Method("caps", "caps", 100.0, _LINF, False, False, 8),
)


def method_named(name: str) -> Method:
    """The row of a bound."""
    return next(row for row in METHODS if row.name == name)


def names(norm: str | None = None) -> tuple[str, ...]:
    """The values of ``method=``, for one norm or any: the bounds from cheap to expensive, and "best"."""
    return (*(row.name for row in METHODS if row.offered and (norm is None or norm in row.norms)), STRATEGY)


def taylor_bounds() -> tuple[Method, ...]:
    """The bounds that are a lower bound of a pair's margin at any radius, from cheap to expensive."""
    return tuple(row for row in METHODS if row.offered and not row.closed_form)


def is_closed_form(name: str) -> bool:
    """Whether this bound is given by a formula."""
    return any(row.name == name and row.closed_form for row in METHODS)


def rank(name: str) -> int:
    """The place of a bound in the order of cost; a certificate is named after the costliest one."""
    return [row.name for row in METHODS].index(name)

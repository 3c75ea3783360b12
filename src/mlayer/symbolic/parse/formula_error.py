"""The error for a formula that cannot be used."""

from __future__ import annotations

from mlayer.errors import ArgumentError


def formula_error(must_be: str, came: str, hint: str = "Split it over several layers.") -> ArgumentError:
    """The error that names what ``expressions`` must be, what it was and what to do."""
    return ArgumentError("expressions", must_be, came, hint)

"""The error for a formula that cannot be used."""

from __future__ import annotations

from mlayer.errors import ArgumentError


def formula_error(must_be: str, came: str, hint: str = "Split it over several layers.") -> ArgumentError:
    """The error that says what ``expressions`` must be, what came, and what to do."""
    return ArgumentError("expressions", must_be, came, hint)

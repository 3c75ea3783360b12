"""A limit of exact arithmetic in a search, counted in steps, so that it is the same on every machine."""

from __future__ import annotations

from fractions import Fraction

# Some seconds in all.
MOST_STEPS = 1_200_000


class TooManyStatesError(Exception):
    """A lift was given up: others may be smaller. Never leaves this package."""


class Effort:
    """Steps that are left; each attempt of a search may take a quarter of them, so that all get some.

    >>> effort = Effort(8)
    >>> effort.attempt().left, effort.left
    (2, 8)
    """

    def __init__(self, steps: int = MOST_STEPS, parent: Effort | None = None) -> None:
        self.left = steps
        self._parent = parent

    def attempt(self) -> Effort:
        """A budget for one attempt; what it spends is spent here too."""
        return Effort(self.left // 4, self)

    def spend(self, steps: int) -> None:
        """Count steps before they are done."""
        if steps > self.left:
            raise TooManyStatesError
        self.left -= steps
        if self._parent is not None:
            self._parent.left -= steps

    def spend_on(self, count: int, number: Fraction) -> None:
        """Count operations with a number; to reduce a fraction takes the square of its length."""
        bits = number.numerator.bit_length() + number.denominator.bit_length()
        self.spend(count * (1 + (bits // 300) ** 2))

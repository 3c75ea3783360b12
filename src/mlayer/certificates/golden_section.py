"""Golden section: the approximate minimum of a unimodal function of one number."""

from __future__ import annotations

import math
from collections.abc import Callable

_SHARE = (math.sqrt(5) - 1) / 2


def least_of(
    function: Callable[[float], float], left: float, right: float, rounds: int
) -> tuple[float, float]:
    """The better of the last two points tried, and the value there; one evaluation per round.

    >>> at, value = least_of(lambda t: (t - 1) ** 2, -3.0, 4.0, 40)
    >>> abs(at - 1) < 1e-6, value < 1e-12
    (True, True)
    """
    one, two = right - _SHARE * (right - left), left + _SHARE * (right - left)
    at_one, at_two = function(one), function(two)
    for _ in range(rounds):
        if at_one < at_two:
            right, two, at_two = two, one, at_one
            one = right - _SHARE * (right - left)
            at_one = function(one)
        else:
            left, one, at_one = one, two, at_two
            two = left + _SHARE * (right - left)
            at_two = function(two)
    return (one, at_one) if at_one < at_two else (two, at_two)

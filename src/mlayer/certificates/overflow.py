"""Numbers beyond the range of float64 are not bounds: what is computed from them proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Instead = TypeVar("Instead")


def unless_out_of_range(
    instead: Instead,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result | Instead]]:
    """The function gives ``instead`` where its numbers overflow, or where LAPACK refuses them.

    Comparisons with the NaN that infinities give are False, so no proof rests on them; what Python and
    LAPACK raise for the same reason must not end a whole batch.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result | Instead]:
        @wraps(function)
        def guarded(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result | Instead:
            with np.errstate(over="ignore", invalid="ignore"):
                try:
                    return function(*args, **kwargs)
                except (OverflowError, ZeroDivisionError, np.linalg.LinAlgError):
                    return instead

        return guarded

    return decorate

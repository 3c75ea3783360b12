"""Durations and times of the day as a clock shows them: 1:30:00, 08:30, 2 days 03:00:00. Read as hours."""

from __future__ import annotations

import math
import re

# In place of the decimal sign in the notation of such a column.
CLOCK = ":"
HOURS = "hours"
_CLOCK = re.compile(
    r"(?P<minus>[-\u2212])?(?:(?P<days>\d{1,5})\s*d(?:ays?)?,?\s*)?(?P<hours>\d{1,5}):(?P<minutes>[0-5]\d)"
    r"(?::(?P<seconds>[0-5]\d(?:[.,]\d{1,9})?))?(?:\s*(?P<half>[ap])\.?m\.?)?",
    re.IGNORECASE,
)


def hours(text: str) -> float:
    """Hours of "h:mm" or "h:mm:ss", with days in front or am and pm behind; NaN for anything else.

    >>> hours("1:30:00"), hours("08:45"), hours("2 days 12:00:00"), hours("1:15 pm"), hours("7,5")
    (1.5, 8.75, 60.0, 13.25, nan)
    """
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return math.nan
    whole = float(found["hours"])
    if found["half"]:
        if found["days"] or not 1 <= whole <= 12:
            return math.nan
        whole = whole % 12 + 12 * (found["half"] in "pP")
    seconds = float((found["seconds"] or "0").replace(",", "."))
    value = 24 * float(found["days"] or 0) + whole + float(found["minutes"]) / 60 + seconds / 3600
    return -value if found["minus"] else value

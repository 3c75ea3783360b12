"""Durations and times of the day: 1:30:00, 08:30, 2 days 03:00:00, 1h 30m, 5 pm. Read as hours."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

# In place of the decimal sign in the notation of such a column.
CLOCK = ":"
HOURS = "hours"
_SHOWN = re.compile(
    r"(?P<minus>[-\u2212])?(?:(?P<days>\d{1,5})\s*d(?:ays?)?,?\s*)?(?P<hours>\d{1,5}):(?P<minutes>[0-5]\d)"
    r"(?::(?P<seconds>[0-5]\d(?:[.,]\d{1,9})?))?(?:\s*(?P<half>[ap])\.?m\.?)?",
    re.IGNORECASE,
)
_OF_THE_DAY = re.compile(r"(1[0-2]|0?[1-9])\s*([ap])\.?m\.?", re.IGNORECASE)
# At least two of the parts: "45 min" alone is an amount in minutes.
_IN_LETTERS = re.compile(
    r"(?:PT?)?(?:(\d+)\s*d(?:ays?)?T?[\s,]*)?(?:(\d+)\s*h(?:rs?|ours?)?[\s,]*)?(?:(\d+)\s*m(?:in(?:ute)?s?)?[\s,]*)?"
    r"(?:(\d+(?:\.\d+)?)\s*s(?:ec(?:ond)?s?)?)?",
    re.IGNORECASE,
)
_HOURS_OF_PARTS = (24.0, 1.0, 1 / 60, 1 / 3600)


def hours(text: str, fewest: int = 2) -> float:
    """Hours of "h:mm" or "h:mm:ss", with days in front or am and pm behind, or of parts; NaN otherwise.

    Args:
        text: the cell.
        fewest: parts in letters; in a column of durations one is enough.

    >>> hours("1:30:00"), hours("08:45"), hours("2 days 12:00:00"), hours("1:15 pm"), hours("7,5")
    (1.5, 8.75, 60.0, 13.25, nan)
    >>> hours("1h 30m"), hours("PT45M"), hours("5 pm"), hours("45 min")
    (1.5, 0.75, 17.0, nan)
    >>> hours("45 min", fewest=1)
    0.75
    """
    text = text.strip()
    if found := _OF_THE_DAY.fullmatch(text):
        return int(found[1]) % 12 + 12.0 * (found[2] in "pP")
    if found := _IN_LETTERS.fullmatch(text):
        parts = [float(part or 0) * size for part, size in zip(found.groups(), _HOURS_OF_PARTS, strict=True)]
        named = sum(part is not None for part in found.groups())
        return sum(parts) if named >= fewest or (named and text[0] in "pP") else math.nan
    found = _SHOWN.fullmatch(text)
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


def are_clocks(texts: Iterable[str]) -> bool:
    """Whether times without seconds are hours and minutes of a day.

    28:31 may be a score, 1:20 a ratio; 53:38 among 1:12:05 has minutes and seconds. Zeros in front say so.

    >>> are_clocks(["08:30", "17:45"]), are_clocks(["9:00", "9:30"]), are_clocks(["1:30:00", "0:45:10"])
    (True, True, True)
    >>> are_clocks(["28:31", "30:29"]), are_clocks(["1:10", "1:50"]), are_clocks(["53:38", "1:12:05"])
    (False, False, False)
    """
    shown = [found for text in texts if (found := _SHOWN.fullmatch(text)) and not found["half"]]
    short = [found for found in shown if found["seconds"] is None and found["days"] is None]
    if not short:
        return True
    of_a_day = len(short) == len(shown) and all(int(found["hours"]) < 24 for found in short)
    return of_a_day and any("0" in (found["hours"][:-1], found["minutes"][0]) for found in short)


def duration(days: float) -> str:
    """A period in words, in the unit that suits it.

    >>> duration(7.0), duration(0.5), duration(0.01)
    ('7.0 days', '12.0 hours', '14.4 minutes')
    """
    for unit, length in (("days", 1.0), ("hours", 1 / 24), ("minutes", 1 / 1440)):
        if days >= 1.75 * length:
            return f"{days / length:.1f} {unit}"
    return f"{days * 86400:.1f} seconds"

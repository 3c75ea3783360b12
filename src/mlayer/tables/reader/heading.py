"""The head of a text table: title lines above the names, names in two lines, a line of units below them.

Reports put a title, a date and blank lines above a table; pandas writes columns of two levels as two lines
(and the name of the index as a third), spreadsheets write one name for several merged cells; exports of
instruments have a line of units below the names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Row = tuple[str, ...]

_MOST_TITLES = 20  # lines
_NUMBER = re.compile(r"^[+\-\u2212]?(\d[\d.,' ]*|\.\d+)([eE][+-]?\d+)?$")
_LETTER = re.compile(r"[^\W\d_]|[%°]")
_MISSING = frozenset({"na", "n/a", "nan", "null", "none", "-", "?", "nil", "missing", "unknown"})
# A column is one of numbers if this part of its cells are, of this number of cells or more.
_MOSTLY, _FEWEST = 0.9, 3


@dataclass(frozen=True)
class Heading:
    """The names of the columns, and the lines that are not rows.

    Attributes:
        names: of the columns.
        titles: rows above the names.
        below: rows of the head after the first of the names.
        description: for messages, or empty.
    """

    names: Row
    titles: int = 0
    below: int = 0
    description: str = ""


def heading(rows: Sequence[Row]) -> Heading:
    """The names of the columns: the first row, unless others look like titles, names or units."""
    titles = _titles(rows)
    top, rest = rows[titles], rows[titles + 1 :]
    said = (
        [] if not titles else ["a title line left out" if titles == 1 else f"{titles} title lines left out"]
    )
    names, below, words = _second_line(top, rest)
    return Heading(names, titles, below, ", ".join([*said, *words]))


def _titles(rows: Sequence[Row]) -> int:
    """The number of rows above the names: a few cells from the left, or none, where others have many."""
    width = Counter(len(row) for row in rows).most_common(1)[0][0]
    if width < 2:
        return 0
    for place, row in enumerate(rows[: _MOST_TITLES + 1]):
        filled = sum(map(bool, row))
        if len(row) == width and 2 * filled > width and filled >= 2:
            names = [cell for cell in row if cell]
            plain = not any(_NUMBER.match(cell) for cell in names)
            return place if plain or place == 0 else 0
        # A title starts in the first cell and fills it only, or a few by the commas in it.
        first = bool(row) and bool(row[0])
        if filled and not (first and all(row[:filled])):
            return 0
        if place == 0 and not filled:
            return 0
    return 0


def _second_line(top: Row, rest: Sequence[Row]) -> tuple[Row, int, list[str]]:
    """The names of all columns, how many rows below the first one belong to the head, and what was done."""
    if not rest or len(rest[0]) != len(top):
        return top, 0, []
    second, below = rest[0], 1
    index = len(rest) > 1 and bool(rest[1]) and bool(rest[1][0]) and not any(rest[1][1:])
    index = index and not second[0] and not top[0]
    if index:  # the line in which pandas names the index
        below = 2
    if not _is_no_row(second, rest[below:]):
        return top, 0, []
    names = [cell for cell in top if cell]
    if len(set(names)) == len(names) and (len(names) == len(top) or all(top[1:])):
        return top, 1, ["a line of units left out"]
    joined, last = [], ""
    for upper, lower in zip(top, second, strict=True):
        last = upper or last
        joined.append("_".join(part for part in (last, lower) if part))
    if index:
        joined[0] = rest[1][0]
    if len({*filter(None, joined)}) < sum(map(bool, joined)):
        return top, 0, []
    return tuple(joined), below, ["names from two lines"]


def _is_no_row(second: Row, rows: Sequence[Row]) -> bool:
    """Whether words stand where all rows below have numbers: in half of the columns of numbers, or more."""
    words = columns = 0
    for place, cell in enumerate(second):
        below = [row[place] for row in rows if len(row) > place and row[place]]
        numbers = sum(bool(_NUMBER.match(value)) for value in below)
        if len(below) < _FEWEST or numbers < _MOSTLY * len(below):
            if cell and not _LETTER.search(cell):
                return False
            continue
        columns += 1
        if not cell:
            continue
        if _NUMBER.match(cell) or cell.lower() in _MISSING or not _LETTER.search(cell):
            return False
        words += 1
    return words >= 2 and 2 * words >= columns

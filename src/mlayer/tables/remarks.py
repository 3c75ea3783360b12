"""Remarks for the user about a table: one sentence each, with the column and a count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mlayer.checks import did_you_mean

_LONGEST_CELL, _LONGEST_TEXT = 100, 2000


@dataclass(frozen=True)
class Remark:
    """One thing that was done with a table and that its owner should know.

    Attributes:
        kind: a short word for scripts, for example "dropped" or "unseen".
        column: the column, or "" for the table as a whole.
        count: cells or rows that it is about.
        text: the sentence.
        strict: whether `--strict` refuses it.
        example: one of the cells.
        one: the sentence for a count of 1; "" where the count is not written.
    """

    kind: str
    column: str
    count: int
    text: str
    strict: bool = False
    example: str = ""
    one: str = ""

    def __str__(self) -> str:
        """The remark as a sentence."""
        where = f"column {cut(self.column)!r}: " if self.column else ""
        number = f"{self.count} " if self.count else ""
        example = f", for example {cut(self.example)!r}" if self.example else ""
        text = self.one if self.count == 1 and self.one else self.text
        return f"{where}{number}{cut(text, _LONGEST_TEXT)}{example}"

    def as_json(self) -> dict[str, Any]:
        """A JSON object for `--json` and for the model file."""
        entry = asdict(replace(self, example=cut(self.example, _LONGEST_TEXT)))
        return {name: value for name, value in entry.items() if name != "one"}


def cut(text: str, longest: int = _LONGEST_CELL) -> str:
    """The start of a text that nobody would read to its end: cells may have millions of characters.

    >>> cut("abcdef", 4)
    'abcd... (6 characters)'
    """
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "column"), counted(2000, "row")
    ('1 column', '2000 rows')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """Words of a sentence, one after the other.

    >>> listed(["7.0 days"]), listed(["365.2 days", "30.4 days", "7.0 days"])
    ('7.0 days', '365.2 days, 30.4 days and 7.0 days')
    """
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def merged(remarks: Iterable[Remark]) -> list[Remark]:
    """One remark for each kind, column and sentence, counts added: for tables read in pieces."""
    sums: dict[tuple[str, str, str], Remark] = {}
    for remark in remarks:
        key = (remark.kind, remark.column, remark.text)
        old = sums.get(key)
        sums[key] = remark if old is None else replace(old, count=old.count + remark.count)
    return list(sums.values())


def near_columns(name: str, names: Sequence[str]) -> str:
    """A hint for a wrong name: near names, or all of a few.

    >>> near_columns("pricee", ["price", "size"])
    "Did you mean 'price'?"
    >>> near_columns("PRICE", ["price", "size"])
    "Did you mean 'price'?"
    >>> near_columns("zzz", ["price", "size"])
    'The columns are: price, size.'
    >>> near_columns("zzz", [])
    'The table has no such columns.'
    """
    if not names:
        return "The table has no such columns."
    shown = ", ".join(names[:12])
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return did_you_mean(str(name), names, f"The columns are: {shown}{more}.", most=3)

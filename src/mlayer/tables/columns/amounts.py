"""Numbers as people write them (`amount_cells`), and clocks (`durations`): the notation of a column.

What one column means by its commas, points and units is settled once, from the training table, and kept in
the model file, so that later tables are read in the same way. A single comma or point before exactly three
digits is ambiguous. It is settled by the other cells of the column; where none of them tells, a comma
separates thousands, and so does a point in an amount of money.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlayer.tables.columns.amount_cells import (
    CURRENCIES,
    ONES,
    AmountParts,
    amount,
    common_unit,
    taken_apart,
)
from mlayer.tables.columns.cells import (
    Parsed,
    as_numbers,
    is_boolean,
    is_date,
    is_number,
    is_text,
    parse_text,
    plain,
)
from mlayer.tables.columns.durations import CLOCK, HOURS, are_clocks, hours
from mlayer.tables.columns.stand_ins import stand_ins
from mlayer.tables.remarks import Remark

if TYPE_CHECKING:
    from pandas import Series

# Share of the cells of a text column that must be read for it to be one of numbers.
ENOUGH = 0.9
# Share of limits such as "<0.5" or "10+" from which on they are names: "<=50K" and ">50K" are classes.
_LIMITS = 0.5


@dataclass(frozen=True)
class Notation:
    """The notation of the amounts of a column.

    Attributes:
        decimal: "." or ","; ":" for hours, minutes and seconds.
        unit: of all cells that name one: a currency, "%", "kg"; "" for none.

    >>> import pandas
    >>> Notation(",", "EUR").read(pandas.Series(["1.234,50 EUR", "(7)", "12 GBP"])).values.tolist()
    [1234.5, -7.0, nan]
    """

    decimal: str
    unit: str = ""

    def read(self, series: Series) -> Parsed:
        """Numbers, NaN where missing; cells in another unit are not read."""
        series = plain(series)
        return parse_text(series, lambda text: np.array([self._value(cell) for cell in text], dtype=float))

    def _value(self, text: str) -> float:
        return hours(text, 1) if self.decimal == CLOCK else amount(text, self.decimal, self.unit)

    @property
    def description(self) -> str:
        """A description for users."""
        if self.decimal == CLOCK:
            return f"in {self.unit}: clocks or durations"
        sign = "a decimal comma" if self.decimal == "," else "a decimal point"
        if self.unit == ONES:
            return f"with magnitudes (k, M and the like are factors), written with {sign}"
        return f"in {self.unit}, written with {sign}" if self.unit else f"written with {sign}"


def read_numbers(name: str, series: Series) -> tuple[Parsed, Notation | None, list[Remark]]:
    """The numbers of a column of the training table, how they are written, and remarks.

    Args:
        name: of the column.
        series: its cells.
    """
    numbers = as_numbers(series)
    learned = learn_notation(series) if numbers.unreadable else None
    if learned is None:
        return numbers, None, []
    notation, doubt = learned
    if notation is None:
        return numbers, None, [Remark("ambiguous", name, 0, doubt)]
    written = notation.read(series)
    if written.unreadable >= numbers.unreadable:
        return numbers, None, []
    new = np.isfinite(written.values) & ~np.isfinite(numbers.values)
    example = str(series.iloc[int(new.argmax())]).strip()
    remarks = [Remark("written", name, 0, f"cells are amounts {notation.description}", example=example)]
    limits = [cell for cell in map(str, series[new]) if (parts := taken_apart(cell.strip())) and parts.limit]
    if limits and notation.decimal != CLOCK:
        rest = ", a limit or an estimate, count as that number"
        several, one = f"cells{rest}", f"cell{rest.replace('count', 'counts')}"
        remarks.append(Remark("limits", name, len(limits), several, example=limits[0].strip(), one=one))
    return written, notation, remarks + ([Remark("ambiguous", name, 0, doubt)] if doubt else [])


def learn_notation(series: Series) -> tuple[Notation | None, str] | None:
    """The notation of the amounts of a text column, and what is doubtful; None if they are not amounts.

    The notation is None where they have none in common, and the doubt says so.

    >>> import pandas
    >>> learn_notation(pandas.Series(["£1,200", "£950.50"]))
    (Notation(decimal='.', unit='GBP'), '')
    >>> learn_notation(pandas.Series(["1,200", "3,400"]))[1]
    "'1,200' was read as 1200: the comma separates thousands"
    """
    series = plain(series)
    if is_number(series) or is_boolean(series) or is_date(series) or not is_text(series):
        return None
    texts = [str(cell).strip() for cell in series.dropna()]
    texts = [text for text in texts if text]
    clock = {text: hours(text) for text in set(texts)}
    if not all(map(np.isnan, clock.values())):  # then "19h" among "2h 50m" is one too
        clock = {text: hours(text, 1) for text in clock}
    if are_clocks(clock) and sum(not np.isnan(clock[text]) for text in texts) >= ENOUGH * len(texts) > 0:
        return Notation(CLOCK, HOURS), ""
    cells = {text: taken_apart(text) for text in set(texts)}
    missing = stand_ins((t for t in texts if cells[t] is None), (t for t in texts if cells[t]))
    texts = [text for text in texts if text not in missing]
    read = [cell for text in texts if (cell := cells[text]) is not None]
    limits = sum(cell.limit for cell in read)
    if not read or len(read) < ENOUGH * len(texts) or limits > _LIMITS * len(read):
        return None
    money = any(cell.unit in CURRENCIES for cell in read)
    decimal, doubt = _decimal(texts, cells, read, money=money)
    unit = common_unit(read, decimal)
    if unit is None:
        examples = {cell.unit: text for text in reversed(texts) if (cell := cells[text]) is not None}
        if "" not in examples:
            return None
        shown = " and ".join(repr(examples[unit]) for unit in sorted(examples)[:2])
        return None, f"cells such as {shown} are taken as names: as numbers they may differ in their unit"
    notation = Notation(decimal, unit)
    unread = sum(np.isnan(notation._value(text)) for text in texts)
    return (notation, doubt) if len(texts) - unread >= ENOUGH * len(texts) else None


def _decimal(
    texts: Iterable[str], cells: dict[str, AmountParts | None], read: list[AmountParts], *, money: bool
) -> tuple[str, str]:
    proofs = Counter(proof for cell in read if (proof := cell.proves) is not None)
    if proofs:
        return proofs.most_common(1)[0][0], ""
    for sign, name, other in ((",", "comma", "."), (".", "point", ",")):
        for text in texts:
            cell = cells[text]
            if cell is None or sign not in cell.digits:
                continue
            if sign == "." and not money:
                return ".", ""
            said = f"{text!r} was read as {cell.value(other):g}: the {name} separates thousands"
            return other, said
    return ".", ""

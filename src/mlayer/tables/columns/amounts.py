"""Numbers as people write them: "£1,234.50", "1.234,50 EUR", "(1,200)", "12 %", "3.5km", "1:30:00".

What one column means by its commas, points and units is settled once, from the training table, and kept in
the model file, so that later tables are read in the same way. A single comma or point before exactly three
digits is ambiguous. It is settled by the other cells of the column; where none of them tells, a comma
separates thousands, and so does a point in an amount of money.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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
from mlayer.tables.columns.durations import CLOCK, HOURS, hours
from mlayer.tables.columns.stand_ins import stand_ins
from mlayer.tables.remarks import Remark

if TYPE_CHECKING:
    from pandas import Series

_SIGNS = {"£": "GBP", "$": "USD", "US$": "USD", "€": "EUR", "¥": "JPY", "₹": "INR", "₩": "KRW", "₽": "RUB"}
_SIGNS |= {"₺": "TRY", "₪": "ILS", "zł": "PLN", "kč": "CZK", "R$": "BRL", "A$": "AUD", "C$": "CAD"}
_CODES = frozenset(
    [
        "USD",
        "EUR",
        "GBP",
        "CHF",
        "JPY",
        "CNY",
        "INR",
        "KRW",
        "AUD",
        "CAD",
        "NZD",
        "SEK",
        "NOK",
        "DKK",
        "PLN",
        "CZK",
        "HUF",
        "BRL",
        "MXN",
        "ZAR",
        "TRY",
        "ILS",
        "SGD",
        "HKD",
    ]
)
_MONEY = "|".join(sorted(map(re.escape, (*_SIGNS, *_CODES)), key=len, reverse=True))
_RAISED = "\u00b2\u00b3"
_UNIT = rf"[%\u2030\u00b0]?[A-Za-z\u00b5\u03bc\u03a9]{{0,12}}[{_RAISED}]?(?:/[A-Za-z]{{1,6}}[{_RAISED}]?)?"
_MINUS = "\u2212-"  # the hyphen last: it stands in a class of characters
# Between thousands: spaces (also those that do not break a line, and thin ones) and apostrophes.
_APART = " '\u2019\u00a0\u202f\u2009"
_CELL = re.compile(
    rf"^(?P<open>\()?\s*(?P<minus>[+{_MINUS}])?\s*(?P<money>{_MONEY})?\s*(?P<late>[+{_MINUS}])?"
    rf"(?P<digits>\d[\d.,{_APART}]*?|[.,]\d+)\s*(?P<unit>{_MONEY}|{_UNIT})\s*(?P<close>\))?$",
    re.IGNORECASE,
)
_GROUPS = {sign: re.compile(rf"^\d{{1,3}}(?:{re.escape(sign)}\d{{3}})+$") for sign in ".,"}
_SPACED = re.compile(rf"^\d{{1,3}}(?:[{_APART}]\d{{3}})+(?:[.,]\d+)?$")
# Share of the cells of a text column that must be read for it to be one of numbers.
ENOUGH = 0.9
_LONGEST = 40  # characters of an amount


@dataclass(frozen=True)
class _AmountParts:
    """One cell, taken apart."""

    negative: bool
    digits: str
    unit: str

    @property
    def proves(self) -> str | None:
        """The decimal sign, if this cell leaves no doubt about it."""
        found = [sign for sign in ".," if sign in self.digits]
        if len(found) == 2:
            return max(found, key=self.digits.rindex)
        if not found:
            return None
        (sign,) = found
        whole, _, part = self.digits.partition(sign)
        if self.digits.count(sign) > 1:
            return "," if sign == "." else "."
        return sign if len(part) != 3 or whole in ("", "0") or len(whole) > 3 else None

    def value(self, decimal: str) -> float:
        """The number; NaN if it cannot be one with this decimal sign."""
        other = "." if decimal == "," else ","
        whole, _, part = self.digits.partition(decimal)
        if other in part or decimal in part or (other in whole and not _GROUPS[other].match(whole)):
            return np.nan
        number = float(f"{whole.replace(other, '') or '0'}.{part or '0'}")
        return -number if self.negative else number


def _taken_apart(text: str) -> _AmountParts | None:
    match = _CELL.match(text) if len(text) <= _LONGEST else None
    if match is None or (match["open"] is None) != (match["close"] is None):
        return None
    digits = match["digits"].strip()
    if any(c in digits for c in _APART) and not _SPACED.match(digits):
        return None  # two numbers, or a telephone number
    if match["money"] and match["unit"]:
        return None
    signs = [sign for sign in (match["minus"], match["late"]) if sign]
    if len(signs) > 1:
        return None
    negative = match["open"] is not None or (bool(signs) and signs[0] != "+")
    digits = "".join(c for c in digits if c not in _APART).rstrip(".,")
    return _AmountParts(negative, digits, _unit(match["money"] or match["unit"]))


def _unit(text: str) -> str:
    """One name for each unit: £ is GBP, KG is kg.

    >>> _unit("£"), _unit("eur"), _unit("KG"), _unit("")
    ('GBP', 'EUR', 'kg', '')
    """
    for sign, code in _SIGNS.items():
        if text.casefold() == sign.casefold():
            return code
    return text.upper() if text.upper() in _CODES else text.casefold()


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
        if self.decimal == CLOCK:
            return hours(text)
        cell = _taken_apart(text)
        return np.nan if cell is None or cell.unit not in ("", self.unit) else cell.value(self.decimal)

    @property
    def description(self) -> str:
        """A description for users."""
        if self.decimal == CLOCK:
            return f"in {self.unit}, written as hours:minutes:seconds or hours:minutes"
        sign = "a decimal comma" if self.decimal == "," else "a decimal point"
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
    written = notation.read(series)
    if written.unreadable >= numbers.unreadable:
        return numbers, None, []
    new = np.isfinite(written.values) & ~np.isfinite(numbers.values)
    example = str(series.iloc[int(new.argmax())]).strip()
    remarks = [Remark("written", name, 0, f"cells are amounts {notation.description}", example=example)]
    return written, notation, remarks + ([Remark("ambiguous", name, 0, doubt)] if doubt else [])


def learn_notation(series: Series) -> tuple[Notation, str] | None:
    """The notation of the amounts of a text column, and what is doubtful; None if they are not amounts.

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
    if sum(not np.isnan(clock[text]) for text in texts) >= ENOUGH * len(texts) > 0:
        return Notation(CLOCK, HOURS), ""
    cells = {text: _taken_apart(text) for text in set(texts)}
    missing = stand_ins((t for t in texts if cells[t] is None), (t for t in texts if cells[t]))
    texts = [text for text in texts if text not in missing]
    read = [cell for text in texts if (cell := cells[text]) is not None]
    if not read or len(read) < ENOUGH * len(texts):
        return None
    units = Counter(cell.unit for cell in read if cell.unit)
    unit = units.most_common(1)[0][0] if units else ""
    decimal, doubt = _decimal(texts, cells, read, money=unit in _CODES or unit in _SIGNS.values())
    notation = Notation(decimal, unit)
    unread = sum(np.isnan(notation._value(text)) for text in texts)
    return (notation, doubt) if len(texts) - unread >= ENOUGH * len(texts) else None


def _decimal(
    texts: Iterable[str], cells: dict[str, _AmountParts | None], read: list[_AmountParts], *, money: bool
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

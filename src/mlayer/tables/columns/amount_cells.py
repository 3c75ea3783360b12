"""One number as people write it: "£1,234.50", "1.234,50 EUR", "(1,200)", "12 %", "3.5km", "$1.2M", "<0.5".

Nothing but Python's own library is used here: `mlayer export` copies this file into the program for raw rows.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

_SIGNS = {"£": "GBP", "$": "USD", "US$": "USD", "€": "EUR", "¥": "JPY", "₹": "INR", "₩": "KRW", "₽": "RUB"}
_SIGNS |= {"₺": "TRY", "₪": "ILS", "zł": "PLN", "kč": "CZK", "R$": "BRL", "A$": "AUD", "C$": "CAD"}
_CODE_LIST = "USD EUR GBP CHF JPY CNY INR KRW AUD CAD NZD SEK NOK DKK PLN CZK HUF BRL MXN ZAR TRY ILS SGD HKD"
_CODES = frozenset(_CODE_LIST.split())
CURRENCIES = _CODES | set(_SIGNS.values())
# The unit of numbers of which some have a magnitude such as k or M behind them.
ONES = "ones"
_MAGNITUDES = {"k": 1e3, "tsd": 1e3, "thousand": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "million": 1e6}
_MAGNITUDES |= {"millions": 1e6, "b": 1e9, "bn": 1e9, "mrd": 1e9, "billion": 1e9, "billions": 1e9}
_MAGNITUDES |= {"trillion": 1e12, "lakh": 1e5, "crore": 1e7}
# North and east are positive.
_COMPASS = tuple({f"\u00b0{a}": 1.0, a: 1.0, f"\u00b0{b}": -1.0, b: -1.0} for a, b in ("ns", "ew"))
# Units of one kind and their sizes, by the stems that `_singular` leaves: a column may mix them.
_KINDS: tuple[dict[str, float], ...] = (
    {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20}
    | {"gib": 2.0**30, "tib": 2.0**40},
    {"mg": 1e-3, "g": 1.0, "kg": 1e3, "t": 1e6, "gram": 1.0, "kilo": 1e3, "kilogram": 1e3}
    | {"oz": 28.349523125, "ounc": 28.349523125, "lb": 453.59237, "pound": 453.59237},
    {"mm": 1e-3, "cm": 1e-2, "m": 1.0, "km": 1e3, "meter": 1.0, "metr": 1.0, "kilometer": 1e3}
    | {"kilometr": 1e3, "in": 0.0254, "inch": 0.0254, "ft": 0.3048, "foot": 0.3048, "feet": 0.3048}
    | {"yd": 0.9144, "yard": 0.9144, "mi": 1609.344},
    {"mm\u00b2": 1e-6, "cm\u00b2": 1e-4, "m\u00b2": 1.0, "m2": 1.0, "sqm": 1.0, "sq m": 1.0, "ha": 1e4}
    | {"hectar": 1e4, "km\u00b2": 1e6, "km2": 1e6, "ft\u00b2": 0.3048**2, "ft2": 0.3048**2}
    | {"sqft": 0.3048**2, "sq ft": 0.3048**2, "acr": 4046.8564224},
    {"ml": 1e-3, "cl": 1e-2, "dl": 0.1, "l": 1.0, "liter": 1.0, "litr": 1.0}
    | {"cm\u00b3": 1e-3, "cm3": 1e-3, "m\u00b3": 1e3, "m3": 1e3},
    {"km/h": 1.0, "kmh": 1.0, "kph": 1.0, "mph": 1.609344, "m/s": 3.6, "kn": 1.852, "knot": 1.852},
    {"pa": 1.0, "hpa": 1e2, "mbar": 1e2, "kpa": 1e3, "bar": 1e5, "psi": 6894.757293168},
    {"kcal": 4184.0, "j": 1.0, "kj": 1e3},  # on food, Cal is a kcal
    {"ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "minut": 60.0, "h": 3600.0, "hr": 3600.0, "hour": 3600.0}
    | {"day": 86400.0, "week": 604800.0, "month": 2629800.0, "year": 31557600.0, "yr": 31557600.0},
    {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9},
    {"w": 1.0, "kw": 1e3, "mw": 1e6, "gw": 1e9},
    {"wh": 1.0, "kwh": 1e3, "mwh": 1e6, "gwh": 1e9},
    *_COMPASS,
)
# Magnitudes that are units too.
_LETTERS = frozenset(unit for unit in _MAGNITUDES if any(unit in kind for kind in _KINDS))
_ALIKE = 10.0  # times: numbers that are no further apart may be counted in the same
_HALF_TURN = 180.0  # degrees
_MONEY = "|".join(sorted(map(re.escape, (*_SIGNS, *_CODES)), key=len, reverse=True))
_TIMES = "|".join(sorted(_MAGNITUDES, key=len, reverse=True))
_RAISED = "\u00b2\u00b3"
_UNIT = rf"(?:(?:sq|cu|fl) |\u00b0 ?|[%\u2030])?[A-Za-z\u00c0-\u00ff\u00b5\u03bc\u03a9]{{0,12}}[{_RAISED}]?"
_PLURAL = re.compile(r"(?<=\w{3})(?:e?n|e?s|e)$|(?<=\w{2})s$")
_PER = rf"/[A-Za-z]{{1,8}}[{_RAISED}]?"
_MINUS, _PLUS = "\u2212\u25bc-", "+\u25b2"  # the hyphen last: it stands in a class of characters
# Between thousands: spaces (also those that do not break a line, and thin ones) and apostrophes.
_APART = " '\u2019\u00a0\u202f\u2009"
_AMOUNT = re.compile(
    rf"^(?P<open>\()?\s*(?P<limit>[<>\u2264\u2265~\u2248]=?)?\s*(?P<minus>[{_PLUS}{_MINUS}])?\s*"
    rf"(?P<money>{_MONEY})?\s*(?P<late>[{_PLUS}{_MINUS}])?"
    rf"(?P<digits>\d[\d.,{_APART}]*?|[.,]\d+)(?P<dash>[.,]?[\u2212\u2013-]{{1,2}})?(?P<or_more>\+)?\s*"
    rf"(?:(?P<times>{_TIMES})?\.?\s*(?P<after>{_MONEY})|(?P<unit>{_UNIT}|[A-Za-z]{{1,3}}[23]))(?P<per>{_PER})?"
    r"(?P<more>\+)?(?:\s?\*{1,3}|[\u2020\u2021\u00a7]|\s?\[\w{1,3}\])?\s*(?P<close>\))?$",
    re.IGNORECASE,
)
_GROUPS = {".": re.compile(r"^\d{1,3}(?:\.\d{3})+$"), ",": re.compile(r"^\d{1,3}(?:,\d{2,3})*,\d{3}$")}
_SPACED = re.compile(rf"^\d{{1,3}}(?:[{_APART}]\d{{3}})+(?:[.,]\d+)?$")
_LONGEST = 40  # characters of an amount


class AmountParts(NamedTuple):
    """One cell, taken apart.

    Attributes:
        negative: whether it has a minus sign, or is in brackets.
        digits: with decimal sign and thousands separators.
        unit: its unit or currency, or empty.
        times: the magnitude behind an amount of money, such as 1e6 in $1.2M.
        limit: whether it is a limit or an estimate: <0.5, 10+, ~3.
    """

    negative: bool
    digits: str
    unit: str
    times: float = 1.0
    limit: bool = False

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
        """The number in its own unit; NaN if it cannot be one with this decimal sign."""
        other = "." if decimal == "," else ","
        whole, _, part = self.digits.partition(decimal)
        if other in part or decimal in part or (other in whole and not _GROUPS[other].match(whole)):
            return math.nan
        number = self.times * float(f"{whole.replace(other, '') or '0'}.{part or '0'}")
        return -number if self.negative else number


@lru_cache(maxsize=1 << 14)
def taken_apart(text: str) -> AmountParts | None:
    """The parts of an amount; None for anything else."""
    match = _AMOUNT.match(text) if len(text) <= _LONGEST else None
    if match is None or (match["open"] is None) != (match["close"] is None):
        return None
    digits, dash = match["digits"].strip(), match["dash"] or ""
    if any(c in digits for c in _APART) and not _SPACED.match(digits):
        return None  # two numbers, or a telephone number
    if digits[-1] in ".," and digits[-1] in digits[:-1]:
        return None  # 31.12., a day
    unit, money = match["unit"] or "", match["money"] or match["after"]
    times = match["times"]
    if money and unit:
        if match["after"] or unit.casefold() not in _MAGNITUDES:
            return None
        times, unit = unit, ""
    if match["money"] and match["after"]:
        return None
    signs = [sign for sign in (match["minus"], match["late"]) if sign]
    # 839,- is a price without cents, 12.50- a negative number; 2- may be a mark.
    backwards = bool(dash) and dash[0] not in ".,"
    if len(signs) + backwards > 1 or (backwards and not set(digits) & set(".,")):
        return None
    negative = match["open"] is not None or backwards or (bool(signs) and signs[0] not in _PLUS)
    digits = "".join(c for c in digits if c not in _APART).rstrip(".,")
    unit = unit_name(money or unit) + (match["per"] or "").casefold()
    limit = any(match[sign] is not None for sign in ("limit", "more", "or_more"))
    return AmountParts(negative, digits, unit, _MAGNITUDES[times.casefold()] if times else 1.0, limit)


def unit_name(text: str) -> str:
    """One name for each unit: £ is GBP, KG is kg.

    >>> unit_name("£"), unit_name("eur"), unit_name("KG"), unit_name("\u00b0 C"), unit_name("")
    ('GBP', 'EUR', 'kg', '\u00b0c', '')
    """
    for sign, code in _SIGNS.items():
        if text.casefold() == sign.casefold():
            return code
    return text.upper() if text.upper() in _CODES else text.casefold().replace("\u00b0 ", "\u00b0")


def _singular(unit: str) -> str:
    """The stem of a word that may be a plural: "day" of "days", "tag" of "tage"; "ms" has none."""
    # A Swedish mil is ten kilometers.
    return "mi" if unit in ("mile", "miles") else _PLURAL.sub("", unit)


@lru_cache(maxsize=1 << 10)
def size_of(unit: str, wanted: str) -> float:
    """The number of ``wanted`` in one of ``unit``; NaN if they are of different kinds.

    >>> size_of("kg", "g"), size_of("", "kg"), size_of("m", "km"), size_of("m", ONES), size_of("kg", "m")
    (1000.0, 1.0, 0.001, 1000000.0, nan)
    >>> size_of("day", "days"), size_of("weeks", "day"), size_of("m", "ms"), size_of("s", "n")
    (1.0, 7.0, nan, -1.0)
    """
    if wanted == ONES:
        return _MAGNITUDES.get(unit, math.nan) if unit else 1.0
    unit, wanted = _singular(unit), _singular(wanted)
    if unit in ("", wanted):
        return 1.0
    for kind in _KINDS:
        if unit in kind and wanted in kind:
            return kind[unit] / kind[wanted]
    return math.nan


def common_unit(cells: Collection[AmountParts], decimal: str) -> str | None:
    """The unit to which the cells of a column are converted; None if they have no common notation.

    A number without a unit has that of the others. Beside magnitudes it is one of ones, as 850,000 beside 1.2
    million, unless it is as large as the numbers in front of these: the 24 beside 18k may be a 24k. A suffix
    that is no unit, as in 320i, or one of several letters, as in 32B and 34C, is part of a name.

    >>> def unit(*texts): return common_unit([cell for text in texts if (cell := taken_apart(text))], ".")
    >>> unit("3 g", "9 kg", "5 kg"), unit("950", "2k"), unit("7k"), unit("850,000", "1.2 million")
    ('kg', 'ones', 'k', 'ones')
    >>> unit("18k", "24"), unit("320i", "320d"), unit("45.5N", "33S"), unit("1 day", "9 days")
    (None, None, '\u00b0n', 'days')
    """
    count = Counter(cell.unit for cell in cells)
    bare = count.pop("", 0)
    if not count:
        return ""
    unit = max(count, key=lambda unit: (count[unit], unit))
    if count.keys() <= _MAGNITUDES.keys():
        if len(count) > 1:
            return ONES
        return _beside_magnitudes(unit, cells, decimal) if bare else unit
    for kind in _COMPASS:
        if len(count) > 1 and count.keys() <= kind.keys():
            values = [cell.value(decimal) for cell in cells]
            fine = any(value % 1 for value in values) or any("\u00b0" in each for each in count)
            return next(iter(kind)) if fine and max(values) <= _HALF_TURN and not bare else None
    others = [len(each) for each in count if math.isnan(size_of(each, unit))]
    letters = len(unit) == 1 and 1 in others
    return None if others and bare < count.total() and (letters or not _is_known(unit)) else unit


def _beside_magnitudes(unit: str, cells: Collection[AmountParts], decimal: str) -> str | None:
    """The unit of numbers without one, where the others have one magnitude; None if that is open."""
    values = [(cell.unit, abs(cell.value(decimal))) for cell in cells]
    scaled = [value for named, value in values if named and value > 0]
    plain = [value for named, value in values if not named and value > 0]
    low, high = min(scaled, default=0.0) / _ALIKE, max(scaled, default=0.0) * _ALIKE
    alike = sum(low <= value <= high for value in plain)
    if unit in _LETTERS and alike:
        return unit
    return None if alike and alike == len(plain) else ONES


def _is_known(unit: str) -> bool:
    """Whether this is a unit, and no word that may be part of a name."""
    return not unit.isalpha() or unit in CURRENCIES or any(_singular(unit) in kind for kind in _KINDS)


def amount(text: str, decimal: str, unit: str) -> float:
    """The number of a cell in ``unit``; NaN if it is not one.

    >>> amount("1.234,50 EUR", ",", "EUR"), amount("$1.2M", ".", "USD"), amount("12 GBP", ".", "EUR")
    (1234.5, 1200000.0, nan)
    """
    cell = taken_apart(text)
    return math.nan if cell is None else cell.value(decimal) * size_of(cell.unit, unit)

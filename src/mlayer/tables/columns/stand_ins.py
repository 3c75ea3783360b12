"""Words that stand for a missing cell among numbers ("-", "unknown", "k.A."), and digits that are names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable

# Besides those that the reader of text tables takes as missing; compared without case and blanks.
# fmt: off
_KNOWN = frozenset({
    "-", "--", "---", "\u2013", "\u2014", ":", ".", "..", "...", "?", "??", "*", "na", "n.a.", "n.a", "n/a",
    "n.d.", "n.d", "nd", "null", "nan", "unknown", "missing", "unk", "notavailable",
    "notapplicable", "notrecorded", "nodata", "tbd", "tba", "tbc", "k.a.", "k.a", "keineangabe", "unbekannt",
    "fehlt", "leer", "n.v.", "nb", "n.b.", "s/d", "s.d.", "inconnu", "nc", "n.c.", "desconocido",
    "sindatos", "nodisponible", "sconosciuto", "onbekend", "ok\xe4nd", "saknas", "ukendt", "ukjent",
    "brakdanych", "#ref!", "#value!", "#div/0!", "#name?", "#null!", "#num!",
})
# fmt: on
# In a column of this many different numbers, a few words of this many letters are reasons for a missing
# number if the numbers make up this share of the cells, a smaller one where they have fractions. Others may
# be categories: chromosomes 1 to 22, X and Y; sizes 36 to 46, S, M and L; points and "pass".
_DIFFERENT, _LETTERS, _WORDS, _SHARE, _SHARE_OF_FRACTIONS = 20, 4, 10, 0.9, 0.5
_ID_NAMES = re.compile(
    r"^(unnamed: \d+|index|row|row_?(id|num|number|nr|no)|id|uuid|guid|key|.*[_ ]id|level_\d"
    r"|(order|invoice|account|customer|ticket|serial|record)[_ ]?(no|nr|num|number)"
    r"|(.*[_ ])?(phone|telephone|telefon|tel|fax|iban|isbn|ean|gtin|imei)([_ ]?(no|nr|num|number))?)$",
    re.I,
)
_CAMEL_ID = re.compile(r"^.*[a-z](Id|ID)$")  # customerID, but not "paid"
_CODE = re.compile(r"\d{3,}")
_ROWS_OF_A_CODE = 5
_LETTER_CODE = re.compile(r"\d+[eE]\d+")
_POWER = re.compile(r"[1-9]e\d{1,2}")
_TELEPHONE = re.compile(r"(\+|00?)[1-9]\d{6,12}")
_MOST_DIGITS = 15
_LENGTHS_OF_TIMES, _YEARS = (16, 19), ("09", "21")  # of Unix times from 2001 to 2036, by their first digits
_MONTH_OF_YEAR = re.compile(r"(0[1-9]|1[0-2])\.(19|20)\d\d")
_FEWEST_MONTHS = 3
_NINES = re.compile(r"-?99+")
_OTHERS = 3  # different numbers beside one of nines with a minus sign
_OTHERS_OF_POSITIVE = 10  # the same without: 99 may also be the largest of a few pack sizes
_APART_BY = 2.0
_FRACTION = re.compile(r"\d[.,]\d{1,2}\b")


def stand_ins(unread: Iterable[str], read: Iterable[Hashable]) -> set[str]:
    """The texts that stand for a missing cell, of those that could not be read as numbers.

    Args:
        unread: the texts, without blanks around them.
        read: the other cells.

    >>> sorted(stand_ins(["-", "unknown", "approx. 7"], [1.0, 2.0, 3.0]))
    ['-', 'unknown']
    >>> sorted(stand_ins(["below detection", "broken"] * 3, range(60)))
    ['below detection', 'broken']
    >>> stand_ins(["X", "Y", "MT"], list(range(1, 23)) * 9)
    set()
    """
    unread, numbers = list(unread), list(read)
    words = set(unread)
    known = {word for word in words if means_missing(word)}
    if len(known) > 1 and len(unread) > len(numbers):  # "NC", "ND" and "NB" are names then
        return set()
    one = len(words - known) <= 1  # two words, such as positive and negative, would become one
    share = _SHARE_OF_FRACTIONS if one and any(map(_has_fraction, numbers)) else _SHARE
    many = len(numbers) >= share * (len(numbers) + len(unread)) and len(set(numbers)) >= _DIFFERENT
    others = words - known
    long = all(sum(c.isalpha() for c in word) >= _LETTERS for word in others)
    if many and len(others) <= _WORDS and long and not any(c.isdigit() for word in others for c in word):
        return words
    return known


def absent_number(values: Iterable[float]) -> float | None:
    """The number that stands for a missing one, such as -999 or 9999; None if there is none.

    It is made of nines, is there more than once, and lies further from all others than twice their range.

    >>> absent_number([*range(20), -99, -99]), absent_number([*range(20), 99]), absent_number(range(100))
    (-99, None, None)
    """
    counts = Counter(values)
    for number in (min(counts, default=0), max(counts, default=0)):
        others = [value for value in counts if value != number]
        fewest = _OTHERS if number < 0 else _OTHERS_OF_POSITIVE
        if not _NINES.fullmatch(f"{number:g}") or counts[number] < 2 or len(others) < fewest:
            continue
        if number > 0 and any(value % 10 == 9 and value > 10 for value in others):  # prices: 149, 299, 999
            continue
        low, high = min(others), max(others)
        if max(low - number, number - high) > _APART_BY * (high - low):
            return number
    return None


def names_an_identifier(column: str) -> bool:
    """Whether a column is named as identifiers are.

    >>> names_an_identifier("customerID"), names_an_identifier("paid")
    (True, False)
    """
    return bool(_ID_NAMES.match(column) or _CAMEL_ID.match(column))


def means_missing(word: str) -> bool:
    """Whether a word says that there is no value, in any column.

    >>> means_missing("N / A"), means_missing("pass")
    (True, False)
    """
    return "".join(word.split()).casefold() in _KNOWN


def _has_fraction(cell: Hashable) -> bool:
    return bool(cell % 1) if isinstance(cell, float) else bool(_FRACTION.search(str(cell)))


def are_codes(texts: Iterable[str]) -> bool:
    """Whether digits are names or dates and no quantities.

    They are of one length, some with zeros in front, as 01067; or an E between two numbers without a sign or
    a point, as 48E36, is a letter and no power of ten, as in 5e4; or months have a point before the year, as
    03.2024; or all are telephone numbers with their zero or plus sign, as 0301234567; or they have more
    digits than a measured number.

    >>> are_codes(["01067", "80331", "n/a"]), are_codes(["07", "12"]), are_codes(["0123", "12"])
    (True, False, False)
    >>> are_codes(["12E3", "48E36"]), are_codes(["1E+03"]), are_codes(["01.2024", "02.2024", "03.2024"])
    (True, False, True)
    >>> are_codes(["1e5", "5e4"]), are_codes(["+49301234567", "0891234567"])
    (False, True)
    """
    different = {text for text in texts if not means_missing(text)}
    if not different:
        return False
    if all(map(_TELEPHONE.fullmatch, different)) or have_too_many_digits(different):
        return True
    if all(_CODE.fullmatch(text) for text in different):
        return len({len(text) for text in different}) == 1 and any(text[0] == "0" for text in different)
    if len(different) >= _FEWEST_MONTHS and all(_MONTH_OF_YEAR.fullmatch(text) for text in different):
        return True
    return all(map(_LETTER_CODE.fullmatch, different)) and not all(map(_POWER.fullmatch, different))


def have_too_many_digits(texts: Collection[str]) -> bool:
    """Whether whole numbers are those of accounts or cards, with more digits than float64 distinguishes.

    Zeros at the end do not count. Unix times in millionths or billionths of a second are numbers.

    >>> have_too_many_digits(["4929123456789012345", "6011000990139424"])
    True
    >>> have_too_many_digits(["99900000000000000000"]), have_too_many_digits(["1700000000123456789"])
    (False, False)
    """
    if not all(text.isdecimal() and len(text.rstrip("0")) > _MOST_DIGITS for text in texts):
        return False
    return not all(len(text) in _LENGTHS_OF_TIMES and _YEARS[0] < text[:2] < _YEARS[1] for text in texts)


def codes_repeat(texts: list[str]) -> bool:
    """Whether codes of digits have enough rows each to be categories; else 0830 and 0005 are numbers.

    >>> codes_repeat(["01067", "80331"] * 5), codes_repeat(["0830", "1545", "0005"]), codes_repeat(["48E36"])
    (True, False, True)
    """
    different = set(texts)
    padded = all(map(_CODE.fullmatch, different)) and not all(map(_TELEPHONE.fullmatch, different))
    return len(different) * _ROWS_OF_A_CODE <= len(texts) or not padded

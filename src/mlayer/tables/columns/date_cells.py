"""One date as people write it, in text: days since 1970. Nothing but Python's own library is used here.

A text is taken apart before its format is looked at: the clock ("00:15", "8:30 pm", with or without a zone)
becomes a part of a day, months in words become numbers in several languages, weekdays and words such as
"de", "of" or "Uhr" are left out. What is left has one of the few `DATE_FORMATS`.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from functools import lru_cache

WEEK, QUARTER = "ISO week", "quarter"
_NUMERIC = ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y")
# With a month in words. Their separators do not count: 31-Dec-2024 and "December 31st, 2024" have them too.
_WORDED = ("%d %b %Y", "%b %d %Y", "%Y %b %d", "%d %b %y")
# Without a day, which is then the first.
MONTHS_IN_WORDS = ("%b %Y", "%Y %b", "%b %y")
_SHORT = ("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", *MONTHS_IN_WORDS, "%m/%Y", "%m.%Y", "%Y-%m")
# Tried in this order; the first that reads the cells of the training table is kept.
DATE_FORMATS = (*_NUMERIC, *_WORDED, *_SHORT, WEEK, QUARTER)
# Digits alone.
COMPACT, COMPACT_MONTH = "%Y%m%d", "%Y%m"
COMPACT_FORMATS = (COMPACT, "%Y%m%d%H", "%Y%m%d%H%M", "%Y%m%d%H%M%S", COMPACT_MONTH)

# Abbreviations are beginnings of three letters or more, unless they begin two months.
_MONTHS = """
january february march april may june july august september october november december
januar februar märz april mai juni juli august september oktober november dezember
jänner feber mrz april mai juni juli august september oktober november dezember
janvier février mars avril mai juin juillet août septembre octobre novembre décembre
janvier fevrier mars avril mai juin juillet aout septembre octobre novembre decembre
enero febrero marzo abril mayo junio julio agosto setiembre octubre noviembre diciembre
enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro
januari februari maart april mei juni juli augustus september oktober november december
januari februari mrt april maj juni juli augusti september oktober november december
stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia
ocak şubat mart nisan may\u0131s haziran temmuz ağustos eylül ekim kas\u0131m aral\u0131k
января февраля марта апреля мая июня июля августа сентября октября ноября декабря
"""
_WEEKDAYS = """
monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag samstag
sonntag sonnabend lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles jueves viernes
sábado domingo lunedì martedì mercoledì giovedì venerdì sabato domenica maandag dinsdag woensdag donderdag
vrijdag zaterdag zondag
"""
# Behind a day, between the parts, and around the clock.
_LEFT_OUT = "st nd rd th er de del of the den le um uhr at à om kl la las du den"


def _beginnings(words: list[str], shortest: int) -> set[str]:
    return {word[:length] for word in words for length in range(min(shortest, len(word)), len(word) + 1)}


def _months() -> dict[str, int]:
    """The number of each month by its name and its abbreviations."""
    found: dict[str, int] = {}
    twice: set[str] = set()
    for line in _MONTHS.strip().splitlines():
        for place, name in enumerate(line.split()):
            for word in _beginnings([name], 3):
                if found.setdefault(word, place + 1) != place + 1:
                    twice.add(word)
    return {word: month for word, month in found.items() if word not in twice}


MONTHS = _months()
ENGLISH_MONTHS = _beginnings(_MONTHS.split()[:12], 3)
_IGNORED = (_beginnings(_WEEKDAYS.split(), 2) | set(_LEFT_OUT.split())) - MONTHS.keys() - {"ma"}
_WORD = re.compile(r"[^\W\d_]+")
_CLOCK = re.compile(
    r"(?<![\d.,])(\d{1,2}):([0-5]\d)(?::([0-5]\d(?:[.,]\d{1,9})?))?(?:\s*([ap])\.?m\b\.?)?"
    r"(?:\s*(Z|UTC|GMT|[+-]\d\d:?\d\d)(?!\w))?(?![\d:])",
    re.IGNORECASE,
)
_AROUND = re.compile(r"\s*([./-])\s*")
_YEAR_FIRST = re.compile(r"(\d{4})[./-](\d{1,2})[./-](\d{1,2})")
_COUNTED_MONTH = re.compile(r"(\d{4})[- ]?m(0[1-9]|1[0-2])")
_IN_CHARACTERS = str.maketrans({"年": "-", "月": "-", "日": "", "년": "-", "월": "-", "일": ""})
_RANGES = (" - ", " \u2013 ", " to ", " bis ", "/")
_WEEK = re.compile(
    r"(?P<year>(?:19|20)\d\d)[-/ ]?(?:W|KW|CW|wk) ?(?P<week>\d{1,2})(?:-(?P<day>[1-7]))?"
    r"|(?:W|KW|CW|wk) ?(?P<week2>\d{1,2})[-/ ](?P<year2>(?:19|20)\d\d)",
    re.I,
)
_QUARTER = re.compile(
    r"(?:FY ?)?(?P<year>(?:19|20)\d\d)[-/: ]?Q(?P<q>[1-4])"
    # Two digits need a sign before them: Q110 is a question.
    r"|Q(?P<q2>[1-4])(?:[-/: ]?'?(?=(?:FY ?)?(?:19|20)\d\d)|[-/: ]'?|')(?P<year2>(?:FY ?)?(?:19|20)\d\d|\d\d)"
    r"|(?P<q3>[1-4])Q[ ']?(?P<year3>(?:19|20)\d\d|\d\d)",
    re.I,
)


def present_format(format: str) -> str:
    """The format of `DATE_FORMATS` that reads what one of an older model file read.

    >>> present_format("%d.%m.%Y %H:%M"), present_format("%B %d, %Y"), present_format("%d-%b-%Y")
    ('%d.%m.%Y', '%b %d %Y', '%d %b %Y')
    """
    format = re.split(r" %[HI]", format.replace("%B", "%b"))[0]
    if "%b" in format:
        return format.replace(",", "").replace("-", " ")
    return "%Y-%m-%d" if format == "%Y/%m/%d" else format


@lru_cache(maxsize=1 << 15)  # a column is read to find its format, to split, to learn and to encode
def days_of(text: str, format: str) -> float:
    """Days since 1970, with their fraction; NaN if the format does not fit.

    >>> days_of("Di, 2. Jan. 1970 06:00", "%d %b %Y"), days_of("1970-W02", WEEK), days_of("2 + 2", "%d %b %Y")
    (1.25, 4.0, nan)
    """
    text = text.strip()
    if format in COMPACT_FORMATS:
        return _strptime(text, format)
    clock = _CLOCK.search(text)
    if clock is None:
        return _day(text, present_format(format))
    around = f"{text[: clock.start()].rstrip(' ,:@T')} {text[clock.end() :]}"
    day = _day(around.strip(" ,"), present_format(format))
    if math.isnan(day) and (first := start_of_range(text)) != text:
        return days_of(first, format)
    return day + _part_of_day(*clock.groups())


def _strptime(text: str, format: str) -> float:
    try:
        moment = datetime.strptime(text, format)
    except ValueError:
        return math.nan
    return (moment - datetime(1970, 1, 1)).total_seconds() / 86400


@lru_cache(maxsize=1 << 14)  # hours and quarters of one day
def _day(text: str, format: str) -> float:
    """The day of a text without a clock."""
    try:
        if format == WEEK:
            return float(_since_1970(_first_of_week(text)))
        if format == QUARTER:
            return float(_since_1970(_first_of_quarter(text)))
    except ValueError:
        return math.nan
    plain = plain_date(start_of_range(text))
    return _strptime(plain, format.replace("%b", "m%m")) if plain else math.nan


def _since_1970(day: date) -> int:
    return day.toordinal() - date(1970, 1, 1).toordinal()


def plain_date(text: str) -> str:
    """A date without its words: months as "m03"; empty if a word belongs to no date.

    >>> plain_date("Monday, March 1st 2021"), plain_date("1. März 2021"), plain_date("Mo 1. 3. 2021")
    ('m03 1 2021', '1 m03 2021', '1.3.2021')
    >>> plain_date("12 Mar A"), plain_date("2021年3月1日")
    ('', '2021-3-1')
    """
    text = text.casefold().translate(_IN_CHARACTERS)
    if counted := _COUNTED_MONTH.fullmatch(text):
        return f"{counted[1]}-{counted[2]}"
    months = 0
    for word in set(_WORD.findall(text)):
        if word not in MONTHS and word not in _IGNORED:
            return ""
        months += word in MONTHS
    if months > 1:
        return ""
    if months:
        words = _WORD.sub(lambda word: f" m{MONTHS[word[0]]:02} " if word[0] in MONTHS else " ", text)
        return " ".join(re.findall(r"m?\d+", words))
    text = _AROUND.sub(r"\1", _WORD.sub(" ", text)).strip(" ,.-")
    return _YEAR_FIRST.sub(r"\1-\2-\3", text)


def start_of_range(text: str) -> str:
    """The first of two dates that are written in the same way; another text as it is.

    >>> start_of_range("01.03.2021 00:00 - 01.03.2021 01:00"), start_of_range("03/01/2021")
    ('01.03.2021 00:00', '03/01/2021')
    """
    for between in _RANGES:
        first, _, last = text.partition(between)
        if len(first) >= 8 and re.sub(r"\d", "0", first) == re.sub(r"\d", "0", last):
            return first
    return text


def _part_of_day(hours: str, minutes: str, seconds: str | None, half: str | None, zone: str | None) -> float:
    """The clock as a part of a day in universal time; NaN for hours that no clock shows."""
    hour = int(hours)
    if (half and not 1 <= hour <= 12) or hour > 24 or (hour == 24 and minutes != "00"):
        return math.nan
    if half:
        hour = hour % 12 + 12 * (half in "pP")
    part = (hour + int(minutes) / 60 + float((seconds or "0").replace(",", ".")) / 3600) / 24
    if zone and zone[0] in "+-":
        east = int(zone[1:3]) / 24 + int(zone[-2:]) / 1440
        part -= east if zone[0] == "+" else -east
    return part


def _first_of_week(text: str) -> date:
    """The Monday of a week, or the day that is named; ValueError for anything else.

    >>> str(_first_of_week("2024-W5")), str(_first_of_week("KW 05/2024")), str(_first_of_week("2024-W05-3"))
    ('2024-01-29', '2024-01-29', '2024-01-31')
    """
    found = _WEEK.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, week = found["year"] or found["year2"], found["week"] or found["week2"]
    return date.fromisocalendar(int(year), int(week), int(found["day"] or 1))


def _first_of_quarter(text: str) -> date:
    """The first day of a quarter; of a year in two digits, in this century; ValueError for anything else.

    >>> str(_first_of_quarter("2024Q2")), str(_first_of_quarter("Q4 '23"))
    ('2024-04-01', '2023-10-01')
    """
    found = _QUARTER.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year = (found["year"] or found["year2"] or found["year3"]).upper().strip("FY ")
    number = int(found["q"] or found["q2"] or found["q3"])
    return date(int(year) if len(year) == 4 else 2000 + int(year), 3 * number - 2, 1)

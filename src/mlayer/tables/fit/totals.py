"""The line of totals at the end of a report: no row to learn from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlayer.tables.remarks import Remark

if TYPE_CHECKING:
    from pandas import DataFrame

_FEWEST = 10  # rows above
_MOST = 3  # lines: totals, and for example a mean
_WORDS = frozenset(
    [
        "total",
        "totals",
        "grandtotal",
        "sum",
        "overall",
        "mean",
        "average",
        "summe",
        "gesamt",
        "gesamtsumme",
        "insgesamt",
        "mittelwert",
        "somme",
        "totaux",
        "moyenne",
        "totale",
        "somma",
        "media",
        "suma",
        "totalgeneral",
        "totaal",
        "gemiddelde",
        "soma",
        "média",
        "razem",
        "toplam",
        "summa",
        "totalt",
        "yhteensä",
        "итого",
        "всего",
        "合計",
        "总计",
        "合计",
        "합계",
    ]
)


def without_totals(frame: DataFrame) -> tuple[DataFrame, list[Remark]]:
    """The table without the lines at its end in which a cell says "Total", as none above them does."""
    texts = list(
        frame.select_dtypes(exclude=["number", "bool", "datetime", "datetimetz", "timedelta"]).columns
    )
    count = 0
    while count < _MOST and len(frame) - count > _FEWEST:
        last = frame.iloc[len(frame) - count - 1]
        if not any(_is_word(last[name]) for name in texts):
            break
        count += 1
    above = frame.iloc[: len(frame) - count]
    if not count or any(above[name].map(_is_word).any() for name in texts):
        return frame, []
    words = frame.iloc[len(above) :][texts].to_numpy().ravel()
    example = next(str(word) for word in words if _is_word(word))
    return above, [
        Remark(
            "totals",
            "",
            count,
            "lines of totals at the end of the table were left out",
            strict=True,
            example=example,
            one="line of totals at the end of the table was left out",
        )
    ]


def _is_word(cell: object) -> bool:
    """Whether a cell is one of the words, whatever its case, spaces and colon."""
    return isinstance(cell, str) and "".join(cell.split()).rstrip(":").casefold() in _WORDS

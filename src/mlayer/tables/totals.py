"""Lines of totals and notes at the end of a report: no rows to learn from, nor to predict."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from mlayer.tables.columns.amount_cells import taken_apart
from mlayer.tables.remarks import Remark

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_FEWEST = 10  # rows above
_NUMBERS = 0.9  # share of numbers in a column of numbers
_NEAR = 0.05  # deviations of a column, by which its mean may have been rounded
_ROUNDED = 1e-6  # of the sum of a column, by which it may have been rounded
MOST_TOTALS = 8  # lines: totals, for example a mean, and notes
_NOTE = re.compile(
    r"(sources?|notes?|quellen?|anmerkung|hinweis|stand|fuente|nota|fonte|bron)\b.*|[*\u2020\u00a9].+", re.I
)
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

_MEANS = frozenset(["overall", "mean", "average", "mittelwert", "moyenne", "media", "gemiddelde", "m\xe9dia"])


def without_totals(
    frame: DataFrame, *, fewest: int = _FEWEST, features: Collection[str] = (), predicts: bool = False
) -> tuple[DataFrame, list[Remark]]:
    """The table without the lines at its end in which a cell says "Total", as none above them does.

    A last line without names whose numbers are the sums of their columns is one too.

    Args:
        frame: the table, or its last piece.
        fewest: rows that must be above.
        features: of a fitted model, "column = category": what is a category there is no line of totals.
        predicts: whether the rows were to be predicted: for the remark.
    """
    texts = list(
        frame.select_dtypes(exclude=["number", "bool", "datetime", "datetimetz", "timedelta"]).columns
    )
    known = {feature.casefold() for feature in features}

    def counts(name: str, cell: object) -> bool:
        return isinstance(cell, str) and _is_word(cell) and f"{name} = {cell.strip()}".casefold() not in known

    def words_of(row: Series) -> set[str]:
        return {_folded(row[name]) for name in texts if counts(name, row[name])}

    count, notes, sure = 0, 0, False
    while count < MOST_TOTALS and len(frame) - count > fewest:
        row = frame.iloc[len(frame) - count - 1]
        words = words_of(row)
        if not words and not count and _is_sum(row, frame):
            sure = True
        elif not words:
            if notes < count or not _is_note(row, frame.iloc[:-1]):
                break
            notes += 1
        # A complete row may say "mean" of something else, or "media" of newspapers.
        sure = sure or notes > 0 or not words <= _MEANS or bool(_blank(row).any()) or _is_mean(row, frame)
        count += 1
    count = count if sure else 0
    above = frame.iloc[: len(frame) - count]
    if not count or any(counts(name, cell) for name in texts for cell in _distinct(above[name])):
        return frame, []
    below = frame.iloc[len(above) :]
    cells = (str(cell) for name in texts for cell in below[name] if counts(name, cell))
    last = below.iloc[-1]
    example = next(cells, str(last[~_blank(last)].iloc[0]))
    done, did = ("have no prediction", "has no prediction") if predicts else ("were left out", "was left out")
    kind = "notes" if notes == count else "totals and notes" if notes else "totals"
    said = f"lines of {kind} at the end of the table {done}"
    one = f"line of {kind} at the end of the table {did}"
    return above, [Remark("totals", "", count, said, strict=True, example=example, one=one)]


def _is_note(row: Series, above: DataFrame) -> bool:
    """Whether a line has text in its first cell alone, a source or note, or where others have numbers."""
    filled = ~_blank(row)
    text = row.iloc[0]
    if len(row) < 2 or not isinstance(text, str) or not filled.iloc[0] or filled.sum() > 1:
        return False
    if _NOTE.fullmatch(text.strip()):
        return True
    others = above.iloc[:, 0].dropna().map(str)
    return len(text) > 1 and not _is_number(text) and others.map(_is_number).mean() >= _NUMBERS


def _is_mean(row: Series, frame: DataFrame) -> bool:
    """Whether the numbers of a line are the means of their columns."""
    above = frame.iloc[:-1].select_dtypes("number")
    near = (above.mean() - row[above.columns].astype(float)).abs() <= _NEAR * above.std()
    return bool(len(near) and near.all())


def _is_sum(row: Series, frame: DataFrame) -> bool:
    """Whether the numbers of a line without a name are the sums of their columns."""
    above = frame.iloc[:-1].select_dtypes("number")
    names = frame.columns.difference(above.columns)
    if len(above) < _FEWEST or not above.shape[1] or not (len(names) and _blank(row[names]).all()):
        return False
    near = (above.sum() - row[above.columns].astype(float)).abs() <= _ROUNDED * above.abs().sum()
    return bool(near.all() and above.any().all())


def _blank(row: Series) -> Series:
    # Cells of parquet may be lists, which cannot be compared with a text.
    return row.isna() | row.map(lambda cell: isinstance(cell, str) and not cell)


def _distinct(column: Series) -> Iterable[object]:
    try:
        return iter(column.unique())
    except TypeError:  # lists; none of them is a word
        return ()


def _is_number(text: str) -> bool:
    return taken_apart(text.strip()) is not None


def _is_word(cell: object) -> bool:
    """Whether a cell is one of the words, whatever its case, spaces and colon."""
    return isinstance(cell, str) and _folded(cell) in _WORDS


def _folded(cell: str) -> str:
    return "".join(cell.split()).rstrip(":").casefold()

"""Text columns: one number for each category. Texts that differ in case or spaces only are one category."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mlayer.tables.columns.cells import Floats, as_text
from mlayer.tables.columns.kind import Cells, Column, Inferred, left_out
from mlayer.tables.reader.source import pandas_module
from mlayer.tables.remarks import Remark

if TYPE_CHECKING:
    from pandas import Series

_DISTINCT = 0.9  # share of distinct cells from which text is names, not categories
_FEW = 10  # rows below which "all distinct" says nothing
_RARE = 2  # rows that a category needs to stand alone
_USUAL, _FREQUENT = 20, 10  # beyond 20 categories one needs 10 rows
_SMALLEST = 3  # rows of a rare category that may stand alone where the target tells it from others
_KEPT = 1000  # names of rare categories that are remembered


@dataclass(frozen=True)
class Category(Column):
    """A column of text, one number for each of its categories, 1 for the one it is.

    Attributes:
        categories: the frequent ones.
        other: whether there is a number for the rare ones together.
        missing: whether there is a number for missing cells.
        lumped: how many rare categories the training table had.
        rare: their names, unless there are too many to keep.
        numbers: whether they are whole numbers, read as such: 7, 7.0 and 07 are one.
    """

    kind: ClassVar[str] = "category"
    later: ClassVar[tuple[str, ...]] = ("numbers",)
    categories: tuple[str, ...] = ()
    other: bool = False
    missing: bool = False
    lumped: int = 0
    rare: frozenset[str] = frozenset()
    numbers: bool = False

    @property
    def raw_text(self) -> bool:
        return not self.numbers

    @classmethod
    def infer(cls, cells: Cells) -> Inferred | None:
        """Any text, unless nearly all of it is distinct."""
        one, merged = merged_variants(cells.texts)
        texts = [one[text] for text in cells.texts]
        distinct = set(texts)
        if len(texts) >= _FEW and len(distinct) >= _DISTINCT * len(texts) and len(distinct) > 2:
            return left_out(
                cells.name,
                f"{len(distinct)} different texts in {len(texts)} rows: names or identifiers, not categories",
            )
        counts = Counter(texts)
        order = sorted(counts, key=lambda text: (-counts[text], text))
        kept = [
            text
            for place, text in enumerate(order[: cells.max_categories])
            if counts[text] >= (_RARE if place < _USUAL else _FREQUENT)
        ] or order[:1]
        rare = order[len(kept) :]
        remarks = merged_remark(cells.name, cells.texts, merged)
        if rare:
            rows = sum(counts[text] for text in rare)
            said = f"rows hold one of {len(rare)} rare categories, which are put together as 'other'"
            single = "row holds a rare category, which is called 'other'"
            remarks.append(Remark("rare", cells.name, rows, said, example=rare[0], one=single))
        names = frozenset(rare if len(rare) <= _KEPT else ())
        missing = bool(cells.missing.any())
        if missing:
            remarks.append(Remark("missing", cells.name, 0, "missing cells are a separate category"))
        return Inferred(cls(cells.name, tuple(kept), bool(rare), missing, len(rare), names), remarks)

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"rare": sorted(self.rare)}

    @property
    def features(self) -> tuple[str, ...]:
        extra = ["other"] * self.other + ["missing"] * self.missing
        return tuple(f"{self.name} = {name}" for name in (*self.categories, *extra))

    @property
    def description(self) -> str:
        words = [f"one number for each of {len(self.categories)} categories"]
        if self.other:
            words.append(f"{self.lumped} rare ones together as 'other'")
        if self.missing:
            words.append("missing is a separate one")
        return "; ".join(words)

    def finer(self, series: Series, most: int) -> Category | None:
        """The column with rare categories of the training cells on their own; None if none has the rows."""
        texts = as_text(_whole(series) if self.numbers else series)
        rare = {folded(name): name for name in self.rare}
        found = Counter(folded(text) for text in texts if text is not None)
        counts = {name: found[key] for key, name in rare.items() if found[key] >= _SMALLEST}
        more = sorted(counts, key=lambda name: (-counts[name], name))[: max(0, most - len(self.categories))]
        rest = self.rare - set(more)
        if not more:
            return None
        categories = (*self.categories, *more)
        return replace(self, categories=categories, other=bool(rest), lumped=len(rest), rare=rest)

    def values(self) -> Floats:
        """One for each category, and one for the rare ones together; missing is no value."""
        return np.eye(len(self.features))[: len(self.categories) + self.other]

    def encode(self, series: Series) -> tuple[Floats, list[Remark]]:
        texts = as_text(_whole(series) if self.numbers else series)
        places = {name: place for place, name in enumerate(self.categories)}
        alike = {folded(name): place for name, place in reversed(places.items())}
        rare = {folded(name) for name in self.rare}
        width, known = len(self.features), len(self.categories)
        numbers, remarks = np.zeros((len(texts), width)), []
        strangers: list[str] = []
        lumped, gone = 0, 0
        for row, text in enumerate(texts):
            if text is None:
                gone += 1
                if self.missing:
                    numbers[row, width - 1] = 1.0
            elif text in places or folded(text) in alike:
                numbers[row, places[text] if text in places else alike[folded(text)]] = 1.0
            else:
                if folded(text) in rare or self.lumped > len(self.rare):
                    lumped += 1
                else:
                    strangers.append(text)
                if self.other:
                    numbers[row, known] = 1.0
        if strangers:
            place = "they count as 'other'" if self.other else "none is 1"
            said = f"cells hold a category that the training table did not have ({place})"
            place = "it counts as 'other'" if self.other else "none is 1"
            one = f"cell holds a category that the training table did not have ({place})"
            remarks.append(Remark("unseen", self.name, len(strangers), said, True, strangers[0], one))
        if lumped and self.lumped > len(self.rare):
            said = "cells are 'other': rare in the training table, or not in it"
            one = "cell is 'other': rare in the training table, or not in it"
            remarks.append(Remark("other", self.name, lumped, said, one=one))
        if gone and not self.missing:
            said = "missing cells, of which the training table had none: no category is 1"
            one = "missing cell, of which the training table had none: no category is 1"
            remarks.append(Remark("missing", self.name, gone, said, strict=True, one=one))
        return numbers, remarks


def _whole(series: Series) -> Series:
    """Numbers however they are written, so that 07 and 7.0 are 7; other text stays as it is."""
    numbers = pandas_module().to_numeric(series, errors="coerce")
    return (
        series.astype(object)
        .where(numbers.isna() & series.notna(), numbers.astype(object))
        .map(lambda cell: int(cell) if isinstance(cell, float) and cell.is_integer() else cell)
    )


def folded(text: str) -> str:
    """The text with letter case and the number of spaces ignored.

    >>> folded(" New   YORK ")
    'new york'
    """
    return " ".join(text.casefold().split())


def merged_variants(texts: Iterable[str]) -> tuple[dict[str, str], int]:
    """For each text the most frequent one that differs from it in case or spaces only; rows that change.

    >>> merged_variants(["Rome", "rome", "Rome", "Oslo"])
    ({'Rome': 'Rome', 'rome': 'Rome', 'Oslo': 'Oslo'}, 1)
    """
    counts = Counter(texts)
    best: dict[str, str] = {}
    for text in sorted(counts, key=lambda text: (-counts[text], text)):
        best.setdefault(folded(text), text)
    names = {text: best[folded(text)] for text in counts}
    return names, sum(count for text, count in counts.items() if names[text] != text)


def merged_remark(column: str, texts: Iterable[str], rows: int) -> list[Remark]:
    """Remarks about merged variants."""
    if not rows:
        return []
    names, _ = merged_variants(texts)
    odd = min(text for text, name in names.items() if name != text)
    rest = f" as it: {odd!r} as {names[odd]!r}"
    said = f"cells differ from a category in case or spaces only and count{rest}"
    one = f"cell differs from a category in case or spaces only and counts{rest}"
    return [Remark("merged", column, rows, said, strict=True, one=one)]

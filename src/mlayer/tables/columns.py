"""The four kinds of column that a model takes, each with its way from cells to numbers.

    Number     the number; missing: the median of the training table
    Boolean    1 or 0; missing: the more frequent
    Date       days since the first date of the training table; missing: the median
    Category   one number for each category, 1 for the one it is

The first three add a number "is missing" if cells were missing in the training table. A category has a
number for "other" if rare ones were put together, and one for "missing" likewise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mlayer.errors import ArgumentError
from mlayer.tables.remarks import Remark
from mlayer.tables.values import Floats, Parsed, as_booleans, as_days, as_numbers, as_text

if TYPE_CHECKING:
    from pandas import Series

_SLACK = 0.1  # of the range of the training table, before a value counts as outside it


@dataclass(frozen=True)
class Column(ABC):
    """What all kinds share: a name, the features they become, a way there, and what is said about it."""

    name: str
    kind: ClassVar[str] = ""

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """Names of the numbers that the column becomes."""

    @property
    @abstractmethod
    def said(self) -> str:
        """How the column is handled, in words."""

    @abstractmethod
    def encode(self, series: Series) -> tuple[Floats, list[Remark]]:
        """(rows,) cells -> (rows, len(features)) numbers, and what should be said about them."""

    def as_json(self) -> dict[str, Any]:
        """For the model file."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class _Measured(Column):
    """A column that becomes one number, and perhaps a flag."""

    fill: float = 0.0
    flag: bool = False
    low: float = 0.0
    high: float = 0.0

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} is missing") if self.flag else (self.name,)

    @property
    def _filled(self) -> str:
        return f"missing: {self._fill_said}, and a number that says so" if self.flag else ""

    @property
    def _fill_said(self) -> str:
        return f"the median, {self.fill:.4g}"

    @abstractmethod
    def parse(self, series: Series) -> Parsed:
        """Cells to numbers, NaN where missing."""

    def encode(self, series: Series) -> tuple[Floats, list[Remark]]:
        parsed = self.parse(series)
        values, remarks = parsed.values, []
        missing = np.isnan(values)
        if parsed.unreadable == len(values) and parsed.unreadable:
            raise ArgumentError(
                f"the column {self.name!r}",
                f"of {self.kind}s, as in the table of the fit",
                f"cells such as {parsed.example!r}",
                "Is it another column, or written in another way?",
            )
        if parsed.unreadable:
            text = f"cells that are no {self.kind}s were taken as missing"
            remarks.append(
                Remark("unreadable", self.name, parsed.unreadable, text, strict=True, example=parsed.example)
            )
        gone = int(missing.sum()) - parsed.unreadable
        if gone and not self.flag:
            said = f"missing cells, of which the training table had none, were filled with {self._fill_said}"
            remarks.append(Remark("missing", self.name, gone, said, strict=True))
        slack = _SLACK * (self.high - self.low)
        outside = int(((values < self.low - slack) | (values > self.high + slack)).sum())
        if outside:
            text = f"cells outside the range of the training table ({self._range}): predictions extrapolate"
            remarks.append(Remark("outside", self.name, outside, text))
        numbers = np.where(missing, self.fill, values)
        return np.stack([numbers, missing.astype(np.float64)] if self.flag else [numbers], axis=1), remarks

    @property
    def _range(self) -> str:
        return f"{self.low:.6g} to {self.high:.6g}"


@dataclass(frozen=True)
class Number(_Measured):
    """A column of numbers."""

    kind: ClassVar[str] = "number"

    def parse(self, series: Series) -> Parsed:
        return as_numbers(series)

    @property
    def said(self) -> str:
        return "; ".join(filter(None, [f"as it is, {self._range}", self._filled]))


@dataclass(frozen=True)
class Boolean(_Measured):
    """A column of two truth values."""

    kind: ClassVar[str] = "truth value"

    def parse(self, series: Series) -> Parsed:
        return as_booleans(series)

    @property
    def _fill_said(self) -> str:
        return f"the more frequent, {'true' if self.fill else 'false'}"

    @property
    def said(self) -> str:
        return "; ".join(filter(None, ["true 1, false 0", self._filled]))


@dataclass(frozen=True)
class Date(_Measured):
    """A column of dates, as days since ``origin`` (in days since 1970)."""

    kind: ClassVar[str] = "date"
    format: str = "ISO8601"
    origin: float = 0.0

    def parse(self, series: Series) -> Parsed:
        parsed = as_days(series, self.format)
        return Parsed(parsed.values - self.origin, parsed.unreadable, parsed.example)

    @property
    def _fill_said(self) -> str:
        return f"the median, {self._day(self.fill)}"

    def _day(self, days: float) -> str:
        return str(np.datetime64(int(np.floor(self.origin + days)), "D"))

    @property
    def _range(self) -> str:
        return f"{self._day(self.low)} to {self._day(self.high)}"

    @property
    def said(self) -> str:
        order = {"%m/%d/%Y": ", read as month/day/year", "%d/%m/%Y": ", read as day/month/year"}
        first = f"days since {self._day(0)}, the first date{order.get(self.format, '')}"
        return "; ".join(filter(None, [first, self._filled]))


@dataclass(frozen=True)
class Category(Column):
    """A column of text, one number for each of its categories."""

    kind: ClassVar[str] = "category"
    categories: tuple[str, ...] = ()
    other: bool = False
    missing: bool = False
    lumped: int = 0
    rare: frozenset[str] = frozenset()  # those behind "other", unless there are too many to keep

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | {"rare": sorted(self.rare)}

    @property
    def features(self) -> tuple[str, ...]:
        extra = ["other"] * self.other + ["missing"] * self.missing
        return tuple(f"{self.name} = {name}" for name in (*self.categories, *extra))

    @property
    def said(self) -> str:
        words = [f"one number for each of {len(self.categories)} categories"]
        if self.other:
            words.append(f"{self.lumped} rare ones together as 'other'")
        if self.missing:
            words.append("missing is one of its own")
        return "; ".join(words)

    def encode(self, series: Series) -> tuple[Floats, list[Remark]]:
        texts = as_text(series)
        places = {name: place for place, name in enumerate(self.categories)}
        width, known = len(self.features), len(self.categories)
        numbers, remarks = np.zeros((len(texts), width)), []
        strangers: list[str] = []
        lumped, gone = 0, 0
        for row, text in enumerate(texts):
            if text is None:
                gone += 1
                if self.missing:
                    numbers[row, width - 1] = 1.0
            elif text in places:
                numbers[row, places[text]] = 1.0
            else:
                if text in self.rare or self.lumped > len(self.rare):
                    lumped += 1
                else:
                    strangers.append(text)
                if self.other:
                    numbers[row, known] = 1.0
        if strangers:
            place = "they count as 'other'" if self.other else "none is 1"
            said = f"cells hold a category that the training table did not have ({place})"
            remarks.append(Remark("unseen", self.name, len(strangers), said, True, strangers[0]))
        if lumped and self.lumped > len(self.rare):
            said = "cells are 'other': rare in the training table, or not in it"
            remarks.append(Remark("other", self.name, lumped, said))
        if gone and not self.missing:
            said = "missing cells, of which the training table had none: no category is 1"
            remarks.append(Remark("missing", self.name, gone, said, strict=True))
        return numbers, remarks


KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (Number, Boolean, Date, Category)}

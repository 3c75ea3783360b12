"""Columns that become one number each: numbers, truth values and dates.

    Number     the number; missing: the median of the training table
    Boolean    1 or 0; missing: the more frequent
    Date       days since the first date of the training table; missing: the median

Each adds a number "is missing" if cells were missing in the training table.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mlayer.errors import ArgumentError
from mlayer.tables.columns.amounts import Notation, read_numbers
from mlayer.tables.columns.cells import (
    Floats,
    Parsed,
    as_booleans,
    as_numbers,
    boolean_words,
    check_size,
    is_boolean,
    is_date,
    is_number,
    without,
)
from mlayer.tables.columns.date_notations import (
    AND,
    ISO,
    as_days,
    date_notation,
    date_remarks,
    is_format,
    number_notation,
    version_remarks,
)
from mlayer.tables.columns.durations import CLOCK, duration
from mlayer.tables.columns.kind import Cells, Column, Inferred, left_out
from mlayer.tables.columns.stand_ins import (
    absent_number,
    are_codes,
    codes_repeat,
    have_too_many_digits,
    names_an_identifier,
)
from mlayer.tables.metrics import readable
from mlayer.tables.remarks import Remark

if TYPE_CHECKING:
    from pandas import Series

_FAR, _FAR_SHARE = 20.0, 0.05
_SLACK = 0.1  # of the range of the training table, before a value counts as outside it
_MOST_DAYS = 1e12  # from or to any date; numpy counts further
_NUMBERS = 0.9  # share of a text column that must be numbers for it to be one of numbers


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

    @property
    def extent(self) -> float:
        return self.high - self.low if self.moves else 0.0

    def beyond(self, numbers: Floats) -> Floats:
        away = np.maximum(np.maximum(self.low - numbers[:, 0], numbers[:, 0] - self.high), 0.0)
        # Of a column with one value, and missing cells, any other one is far away.
        with np.errstate(over="ignore"):
            return np.asarray(away / max(self.high - self.low, np.finfo(np.float64).tiny))

    @abstractmethod
    def parse(self, series: Series) -> Parsed:
        """Cells to numbers, NaN where missing."""

    @classmethod
    def _middle(cls, there: Floats) -> float:
        """The number that fills a missing cell."""
        return float(np.median(there))

    @classmethod
    def _from(cls, name: str, parsed: Parsed, **options: Any) -> Inferred:
        """The column of parsed cells."""
        values, remarks = parsed.values, []
        there = values[np.isfinite(values)]
        missing = len(values) - len(there)
        if np.ptp(there) == 0 and not missing:
            return left_out(name, "constant: every cell is the same")
        if parsed.unreadable:
            remarks.append(cls._unreadable(name, parsed))
        there = there - options.get("origin", 0.0)
        column = cls(name, cls._middle(there), missing > 0, float(there.min()), float(there.max()), **options)
        if missing - parsed.unreadable:
            rest = f": filled with {column._fill_said}, and marked by a second number"
            said, one = f"missing cells{rest}", f"missing cell{rest}"
            remarks.append(Remark("missing", name, missing - parsed.unreadable, said, one=one))
        return Inferred(column, remarks)

    @classmethod
    def _unreadable(cls, name: str, parsed: Parsed) -> Remark:
        said = f"cells that are not {cls.kind}s were taken as missing"
        one = f"cell that is not a {cls.kind} was taken as missing"
        return Remark("unreadable", name, parsed.unreadable, said, True, parsed.example, one)

    def encode(self, series: Series) -> tuple[Floats, list[Remark]]:
        parsed = self.parse(series)
        values, missing, remarks = parsed.values, np.isnan(parsed.values), list[Remark]()
        if parsed.unreadable == len(values) and parsed.unreadable:
            raise ArgumentError(
                f"the column {self.name!r}",
                f"of {self.kind}s, as in the table of the fit",
                f"cells such as {parsed.example!r}",
                "Give the column that the model was fitted to, written in the same way.",
            )
        if parsed.unreadable:
            remarks.append(self._unreadable(self.name, parsed))
        gone = int(missing.sum()) - parsed.unreadable
        if gone and not self.flag:
            said = f"missing cells, of which the training table had none, were filled with {self._fill_said}"
            one = f"missing cell, of which the training table had none, was filled with {self._fill_said}"
            remarks.append(Remark("missing", self.name, gone, said, strict=True, one=one))
        slack = _SLACK * (self.high - self.low)
        outside = int(((values < self.low - slack) | (values > self.high + slack)).sum())
        if outside:
            rest = f" outside the range of the training table ({self._range}): {self._beyond}"
            remarks.append(Remark("outside", self.name, outside, f"cells{rest}", one=f"cell{rest}"))
        numbers = self._bounded(np.where(missing, self.fill, values))
        return np.stack([numbers, missing.astype(np.float64)] if self.flag else [numbers], axis=1), remarks

    @property
    def _beyond(self) -> str:
        return "predictions extrapolate"

    def _bounded(self, values: Floats) -> Floats:
        """The values as the model takes them: unchanged here, held in the training range by some kinds."""
        return values

    @property
    def _range(self) -> str:
        return f"{self.low:.6g} to {self.high:.6g}"


@dataclass(frozen=True)
class Number(_Measured):
    """A column of numbers."""

    kind: ClassVar[str] = "number"
    moves: ClassVar[bool] = True
    later: ClassVar[tuple[str, ...]] = ("decimal", "unit", "least", "most", "absent")
    decimal: str = ""  # of amounts such as "£1,234.50"; "" for plain numbers
    unit: str = ""
    # What lies further out counts as these; the same for no limits.
    least: float = 0.0
    most: float = 0.0
    absent: float = 0.0  # a number that stands for a missing one, such as -999; 0 for none

    @property
    def consistent(self) -> bool:
        return self.decimal in ("", ".", ",", CLOCK)

    @property
    def raw_text(self) -> bool:
        """Amounts stay as they are written: a csv reader would take the point of 1.234 for a decimal one."""
        return bool(self.decimal)

    @classmethod
    def infer(cls, cells: Cells) -> Inferred | None:
        """A column of numbers, or of text that is nearly always numbers, plain or as people write them."""
        if is_date(cells.series) or number_notation(cells.name, cells.series) is not None:
            return None
        if cells.series.dtype.kind != "f" and have_too_many_digits(cells.distinct):
            return None
        numbers, notation, remarks = read_numbers(cells.name, cells.series)
        if not is_number(cells.series) and (
            (are_codes(cells.texts) and codes_repeat(cells.texts))
            or numbers.words > (1 - _NUMBERS) * len(cells.texts)
            or not np.isfinite(numbers.values).any()
        ):
            cells.doubts += remarks
            return None
        name, written = cells.name, dict[str, Any]()
        absent = absent_number(numbers.values[np.isfinite(numbers.values)].tolist())
        if absent is not None:
            count = int((numbers.values == absent).sum())
            several = f"cells are {absent:g}, far from all others: they count as missing"
            one = f"cell is {absent:g}, far from all others: it counts as missing"
            remarks.append(Remark("absent", name, count, several, strict=True, one=one))
            numbers, written = without(numbers, absent), {"absent": absent}
        values = numbers.values[np.isfinite(numbers.values)]
        if values.min() == values.max() and len(values) == len(numbers.values):
            return left_out(name, f"constant: every cell is {values[0]:g}")
        if names_an_identifier(name) and len(values) == len(np.unique(values)) and (values % 1 == 0).all():
            return left_out(name, "a different whole number in each row, and the name of an identifier")
        _check_numbers(name, values)
        if notation is not None:
            written |= {"decimal": notation.decimal, "unit": notation.unit}
        far, least, most = far_out(values)
        if far:
            rest = f" {readable(least)} or {readable(most)}, "
            rest += f"{_FAR:.0f} times the range of the middle half away from the median"
            said = f"cells lie far from the others: they count as{rest}"
            one = f"cell lies far from the others: it counts as{rest}"
            example = readable(float(values[np.abs(values - np.median(values)).argmax()]))
            remarks.append(Remark("far", name, far, said, True, example, one))
            written |= {"least": least, "most": most}
        found = cls._from(name, numbers, **written)
        found.remarks[:0] = remarks
        if is_number(cells.series) and np.asarray(cells.series.notna())[cells.missing].any():
            said = "infinite numbers were taken as missing"
            found.remarks.append(Remark("infinite", name, 0, said, strict=True))
        return found

    def _bounded(self, values: Floats) -> Floats:
        return np.clip(values, self.least, self.most) if self.least < self.most else values

    @property
    def extent(self) -> float:
        if self.least < self.most:
            return min(self.high, self.most) - max(self.low, self.least)
        return super().extent

    def to_absent(self, series: Series) -> Floats | None:
        """The differences, less their rounding; infinite for missing cells, which do not move."""
        if not self.absent:
            return None
        values = self.parse(series).values
        # A cell is rounded to a number, and so is the cell that it becomes.
        rounding = 2.0**-50 * (np.abs(values) + abs(self.absent))
        return np.where(np.isnan(values), np.inf, np.maximum(np.abs(values - self.absent) - rounding, 0.0))

    def without_limits(self) -> Column | None:
        return replace(self, least=0.0, most=0.0) if self.least < self.most else None

    def code_numbers(self, series: Series) -> Floats | None:
        """The numbers, unless they are amounts or cells were missing."""
        return None if self.decimal or self.flag else self.parse(series).values

    def check(self, series: Series) -> None:
        _check_numbers(self.name, self.parse(series).values)

    def parse(self, series: Series) -> Parsed:
        plain = not self.decimal or is_number(series)
        parsed = as_numbers(series) if plain else Notation(self.decimal, self.unit).read(series)
        return without(parsed, self.absent) if self.absent else parsed

    @property
    def description(self) -> str:
        written = f"as it is, {self._range}{f' {self.unit}' if self.unit else ''}"
        return "; ".join(filter(None, [written, self._filled]))


@dataclass(frozen=True)
class Boolean(_Measured):
    """A column of two truth values."""

    kind: ClassVar[str] = "truth value"

    @classmethod
    def infer(cls, cells: Cells) -> Inferred | None:
        """Truth values, or text that is both words of a pair such as yes and no."""
        if not is_boolean(cells.series) and (is_number(cells.series) or not boolean_words(cells.distinct)):
            return None
        return cls._from(cells.name, as_booleans(cells.series))

    @classmethod
    def _middle(cls, there: Floats) -> float:
        return float(there.mean() >= 0.5)  # a tie is true

    def values(self) -> Floats:
        """False and true, neither missing."""
        return np.array([[truth, 0.0][: len(self.features)] for truth in (0.0, 1.0)])

    def parse(self, series: Series) -> Parsed:
        return as_booleans(series)

    @property
    def _fill_said(self) -> str:
        return f"the more frequent, {'true' if self.fill else 'false'}"

    @property
    def description(self) -> str:
        return "; ".join(filter(None, ["true 1, false 0", self._filled]))


@dataclass(frozen=True)
class Date(_Measured):
    """A column of dates, as days since ``origin`` (in days since 1970)."""

    kind: ClassVar[str] = "date"
    moves: ClassVar[bool] = True
    later: ClassVar[tuple[str, ...]] = ("hold",)
    format: str = ISO
    origin: float = 0.0
    hold: bool = False  # dates beyond the training table's count as its first or last

    @classmethod
    def infer(cls, cells: Cells) -> Inferred | None:
        """Dates, numbers such as 20241231, or text that the known formats read."""
        format = date_notation(cells.name, cells.series, cells.texts)
        if format is None:
            cells.doubts.extend(version_remarks(cells.name, cells.texts))
            return None
        parsed = as_days(cells.series, format)
        origin = float(np.floor(np.nanmin(parsed.values)))
        found = cls._from(cells.name, parsed, format=format, origin=origin)
        if found.column is None:
            return found
        found.remarks.extend(date_remarks(cells.name, cells.texts, format))
        return found

    @property
    def consistent(self) -> bool:
        known = all(map(is_format, self.format.split(AND)))
        return known and max(map(abs, (self.origin, self.low, self.high, self.fill))) < _MOST_DAYS

    def parse(self, series: Series) -> Parsed:
        parsed = as_days(series, self.format)
        return Parsed(parsed.values - self.origin, parsed.unreadable, parsed.example)

    @property
    def _beyond(self) -> str:
        return "they count as its first or last date" if self.hold else "predictions extrapolate"

    def _bounded(self, values: Floats) -> Floats:
        return np.clip(values, self.low, self.high) if self.hold else values

    @property
    def date(self) -> Date:
        return self

    def held(self) -> tuple[Column, list[Remark]]:
        """The column with dates kept inside the range of the training table."""
        last = self.day(self.high)
        said = (
            f"no season to continue was found: later dates than {last} count as {last} in predictions, "
            "so that they stay in the range of what was seen"
        )
        return replace(self, hold=True), [Remark("held", self.name, 0, said)]

    def length(self, amount: float) -> str:
        return duration(amount)

    @property
    def _fill_said(self) -> str:
        return f"the median, {self.day(self.fill)}"

    def day(self, days: float) -> str:
        return str(np.datetime64(int(np.floor(self.origin + days)), "D"))

    @property
    def _range(self) -> str:
        return f"{self.day(self.low)} to {self.day(self.high)}"

    @property
    def description(self) -> str:
        order = {"%m/%d/%Y": ", read as month/day/year", "%d/%m/%Y": ", read as day/month/year"}
        first = f"days since {self.day(0)}, the first date{order.get(self.format, '')}"
        return "; ".join(filter(None, [first, self._filled]))


def far_out(values: Floats) -> tuple[int, float, float]:
    """The number of extreme outliers, and the limits that they are clipped to."""
    first, middle, third = np.percentile(values, (25, 50, 75))
    reach = _FAR * (third - first)
    far = int((np.abs(values - middle) > reach).sum())
    # Where half of the values are one, or many lie far out, that is how they are.
    if not reach or far > _FAR_SHARE * len(values):
        return 0, 0.0, 0.0
    return far, float(middle - reach), float(middle + reach)


def _check_numbers(name: str, values: Floats) -> None:
    hint = f"Empty those cells if they stand for a missing value, scale the column, or use --drop {name}."
    check_size(f"the column {name!r}", values, hint)

"""The base class of columns: it infers itself, encodes cells and reads itself back from JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from mlayer.tables.columns.cells import Floats, as_text, is_missing
from mlayer.tables.remarks import Remark

if TYPE_CHECKING:
    from pandas import Series

    from mlayer.tables.columns.measured import Date


class Cells:
    """A column of the training table, with the facts that several kinds ask about computed once."""

    def __init__(self, name: str, series: Series, max_categories: int) -> None:
        self.name, self.series, self.max_categories = name, series, max_categories
        self.doubts: list[Remark] = []  # of kinds that might have taken the column

    @cached_property
    def missing(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """True where a cell is missing, (rows,)."""
        return is_missing(self.series)

    @cached_property
    def texts(self) -> list[str]:
        """The cells that are not missing, as text."""
        return [text for text in as_text(self.series) if text is not None]

    @cached_property
    def distinct(self) -> set[str]:
        """The different texts."""
        return set(self.texts)


_LARGEST = 1e300  # no value of a column; also refuses NaN


@dataclass(frozen=True)
class Inferred:
    """A column, or None if it is left out, and remarks about it."""

    column: Column | None
    remarks: list[Remark]


def left_out(name: str, why: str) -> Inferred:
    """No column, and the reason."""
    return Inferred(None, [Remark("dropped", name, 0, f"left out: {why}", strict=True)])


@dataclass(frozen=True)
class Column(ABC):
    """A column of the training table: its name, its features, and how cells are encoded as them.

    Class attributes:
        kind: its name in files and messages.
        moves: whether a certificate may vary its value continuously; its first feature is then the cell
            plus a constant (`certify_table.cell_rounding`).
    """

    name: str
    kind: ClassVar[str] = ""
    moves: ClassVar[bool] = False
    later: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def infer(cls, cells: Cells) -> Inferred | None:
        """The column of ``cells``, a reason to leave it out, or None if it is of another kind."""

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """Names of the numbers that the column becomes."""

    @property
    @abstractmethod
    def description(self) -> str:
        """A description of how the column is encoded."""

    @abstractmethod
    def encode(self, series: Series) -> tuple[Floats, list[Remark]]:
        """(rows,) cells -> (rows, len(features)) numbers, and remarks about them."""

    @property
    def raw_text(self) -> bool:
        """Whether a csv reader must leave its cells as text (007 is not 7)."""
        return True

    @property
    def extent(self) -> float:
        """The range of its values in the training table; 0 for a column that does not move."""
        return 0.0

    def beyond(self, numbers: Floats) -> Floats:
        """The distances of encoded cells, (rows, len(features)), from the training range, in units of it."""
        return np.zeros(len(numbers))

    def finer(self, series: Series, most: int) -> Column | None:
        """The column with up to ``most`` categories, some of which were put together; None if it has no more.

        Its first features are those of this one but for "other" and "missing".
        """
        return None

    @property
    def date(self) -> Date | None:
        """This column if its cells are dates, which order the rows of a table."""
        return None

    def held(self) -> tuple[Column, list[Remark]]:
        """The column for models that cannot extrapolate over time, and remarks."""
        return self, []

    def values(self) -> Floats | None:
        """Encodings of all values that it can take, (values, len(features)); None if they are not a few."""
        return None

    def to_absent(self, series: Series) -> Floats | None:
        """Distances of cells from the number that stands for a missing one, (rows,); None without one."""
        del series
        return None

    def without_limits(self) -> Column | None:
        """The column with cells far from the others as they are; None if it limits none."""
        return None

    def code_numbers(self, series: Series) -> Floats | None:
        """The numbers of the cells, if they may be codes of categories; None if they cannot."""
        del series
        return None

    def length(self, amount: float) -> str:
        """A difference of its values in words, for example of the period of a wave along it."""
        return f"{amount:.4g} of {self.name}"

    def check(self, series: Series) -> None:
        """Raise if cells hold something that no fit can use. Most kinds accept every cell."""
        del series

    def as_json(self) -> dict[str, Any]:
        """A JSON object for the model file."""
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`as_json`; KeyError, TypeError or ValueError if the entry is damaged.

        Fields in ``later`` were added since the first version: files without them have the default.
        """
        wanted = [field for field in fields(cls) if field.name in entry or field.name not in cls.later]
        found = cls(**{field.name: _checked(field.name, str(field.type), entry) for field in wanted})
        if not found.consistent:
            raise ValueError(f"the column {found.name[:60]!r}")
        return found

    @property
    def consistent(self) -> bool:
        """Whether the values from a file are some that a fit can have given."""
        return True


def _checked(name: str, hint: str, entry: Mapping[str, Any]) -> Any:
    """The value of a field, of the type that its annotation ``hint`` says."""
    value = entry[name]
    container, _, element = hint.partition("[")
    if container in ("tuple", "frozenset"):
        assert element.startswith("str"), f"{name}: no other elements are read from files"
        return (tuple if container == "tuple" else frozenset)(map(str, value))
    wanted: Any = {"str": str, "bool": bool}.get(hint, float | int)
    if not isinstance(value, wanted) or isinstance(value, bool) != (hint == "bool"):
        raise TypeError(f"{name} = {value!r}"[:200])
    if wanted == float | int and not -_LARGEST < value < _LARGEST:
        raise ValueError(f"{name} = {value!r}"[:200])
    return value

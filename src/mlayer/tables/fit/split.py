"""Rows that are held out: at random, class by class, or the last ones where time drives the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlayer.errors import ArgumentError
from mlayer.numerics.arrays import AnyArray
from mlayer.numerics.spectrum import highest_frequency, power
from mlayer.tables.columns import Date, infer_column
from mlayer.tables.columns.cells import is_nested
from mlayer.tables.columns.date_notations import number_notation
from mlayer.tables.fit.labeled import Labeled
from mlayer.tables.fit.plan import RANDOM, TIME

if TYPE_CHECKING:
    from pandas import DataFrame

FEWEST = 10  # rows of a table that can be split
# With fewer moments than this there is no series.
_MOMENTS = 30
# Below this ratio of squared differences of neighbors to the variance, neighbors in time resemble each other;
# it is 1 for values in random order, with a deviation of about 1 / sqrt(moments).
_RATIO = 0.8
# A series has this many moments, this part of them at one distance and with one number of rows.
_MOMENTS_OF_A_SERIES = 12
_REGULAR = 0.7
_UNEVEN = 0.12  # months have 28 to 31 days
# Of a peak as high as this in noise.
_CHANCE = 1e-4


# Rows with a column of this part of different cells do not agree by chance.
_DIFFERENT = 0.5
# Of a longer column this many cells show whether it may have dates.
_ROWS_LOOKED_AT = 2000


@dataclass(frozen=True)
class TableSplit:
    """Rows to learn from and to test on.

    Attributes:
        train: row numbers, sorted.
        test: likewise.
        date: the date column that orders them, or None.
        same: a number for each row of the table, equal for exact copies; None without copies.
        together: whether copies are all on one side.
    """

    train: AnyArray
    test: AnyArray
    date: Date | None = None
    same: AnyArray | None = None
    together: bool = False

    @property
    def copies(self) -> int:
        """The number of rows that are exact copies of earlier ones."""
        return 0 if self.same is None else len(self.same) - int(self.same.max() + 1)


def split_rows(rows: Labeled, share: float, seed: int, how: str, drop: tuple[str, ...] = ()) -> TableSplit:
    """Hold rows out.

    Args:
        rows: with their targets.
        share: of the rows, for the test.
        seed: of the drawing.
        how: "random", "time" (the last dates) or "auto": by time if a date column drives a quantity.
        drop: columns that are not used.
    """
    classes = rows.target.classifies
    copied = copies(rows.frame.drop(columns=[n for n in rows.frame.columns if str(n) in drop]), rows.truth)
    date = None if how == RANDOM else _date(rows.frame, drop)
    if how == TIME and date is None:
        raise ArgumentError("split", "'random' without a column of dates", "'time'", "Use --split random.")
    if date is not None:
        days = date.parse(rows.frame[date.name]).values
        if how == TIME or (not classes and (is_series(days) or drives(days, rows.truth))):
            _check(rows.truth, share)
            train, test = last_dates(days, share)
            return TableSplit(train, test, date, copied)
    if copied is None or copied.max() + 1 < FEWEST:
        return TableSplit(*held_out(rows.truth, share, seed, classes=classes), same=copied)
    # Copies stay together: a row that was learned tests nothing.
    first = np.unique(copied, return_index=True)[1]
    test = np.isin(copied, held_out(rows.truth[first], share, seed, classes=classes)[1])
    return TableSplit(np.flatnonzero(~test), np.flatnonzero(test), same=copied, together=True)


def copies(frame: DataFrame, truth: AnyArray) -> AnyArray | None:
    """A number for each row, equal for rows that agree in every cell and the target; None without any.

    Rows of a table whose columns all have few values agree by chance: they are not copies.
    """
    import pandas

    # Lists and structures, which are left out of the model, cannot be hashed.
    frame = frame[[name for name in frame.columns if not is_nested(frame[name])]]
    if not frame.shape[1]:
        return None
    cells = pandas.util.hash_pandas_object(frame, index=False).to_numpy()
    targets = pandas.factorize(truth)[0]
    order = np.lexsort((targets, cells))  # stable: the first row of each kind comes first
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(cells[order]) != 0) | (np.diff(targets[order]) != 0)
    first = order[new]
    if len(first) == len(order):
        return None
    distinct = frame.iloc[np.sort(first)]
    most = max(distinct[name].nunique() for name in distinct.columns)
    if most < _DIFFERENT * len(first):
        return None
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.cumsum(new) - 1
    return place


def _date(frame: DataFrame, drop: tuple[str, ...]) -> Date | None:
    """The only column of dates, if there is one."""
    found: list[Date] = []
    for name in frame.columns:
        if str(name) not in drop and (
            not _is_numeric(frame[name]) or number_notation(str(name), frame[name]) is not None
        ):
            # A part of a long column says at once that it has no dates.
            few = frame[name].iloc[:: max(1, len(frame) // _ROWS_LOOKED_AT)]
            column = infer_column(few, 20).column
            if column is not None and column.date is not None and len(few) < len(frame):
                column = infer_column(frame[name], 20).column
            found += [column.date] if column is not None and column.date is not None else []
    return found[0] if len(found) == 1 else None


def _is_numeric(series: object) -> bool:
    return getattr(getattr(series, "dtype", None), "kind", "O") in "biuf"


def drives(days: AnyArray, values: AnyArray) -> bool:
    """Whether neighbors in time resemble each other, or a season is clearly visible, by the means of moments.

    The first is von Neumann's ratio. The second is the highest peak of the spectrum of the residual of a
    line (Fisher's test, Proc. R. Soc. A 125, 1929): that of noise has half the number of moments times its
    share of the variance above log(m / p) with probability p, for m frequencies.
    """
    known = np.isfinite(days)
    moments, place = np.unique(days[known], return_inverse=True)
    if len(moments) < _MOMENTS:
        return False
    means = np.bincount(place, values[known]) / np.bincount(place)
    spread = 2 * means.var()
    ratio = np.square(np.diff(means)).mean() / spread if spread > 0 else 1.0
    if ratio < min(_RATIO, 1 - 3 / np.sqrt(len(moments))):
        return True
    left = means - np.polyval(np.polyfit(moments - moments[0], means, 1), moments - moments[0])
    highest = highest_frequency(moments)
    if highest is None or not left.var() > 0:
        return False
    peaks = power(moments, left[:, None], np.ones(len(moments)), highest)[1]
    # Rows of one moment in common: the peak of noise does not grow with them.
    height = peaks.max(initial=0.0) / (2 * left.var())
    return bool(height > np.log(len(moments) / 2 / _CHANCE))


def is_series(days: AnyArray) -> bool:
    """Whether rows are one, or one for each group, at every step of the calendar.

    New rows of such a table are later ones, whether or not neighbors in time resemble each other.
    """
    if not np.isfinite(days).all():
        return False
    moments, counts = np.unique(days, return_counts=True)
    if len(moments) < _MOMENTS_OF_A_SERIES:
        return False
    steps = np.diff(moments)
    even = np.abs(steps - np.median(steps)) <= _UNEVEN * np.median(steps)
    return bool(min(even.mean(), np.mean(counts == np.median(counts))) >= _REGULAR)


def last_dates(days: AnyArray, share: float) -> tuple[AnyArray, AnyArray]:
    """Rows (train, test): the last ``share`` of the moments is for the test; rows without a date train."""
    moments = np.unique(days[np.isfinite(days)])
    count = min(max(1, round(share * len(moments))), len(moments) - 2)
    late = days >= moments[-count]
    return np.flatnonzero(~late), np.flatnonzero(late)


def held_out(truth: AnyArray, share: float, seed: int, *, classes: bool) -> tuple[AnyArray, AnyArray]:
    """Row numbers (train, test), each sorted; ``share`` of the rows, or of each class, is for the test.

    A class keeps at least one row for training, so one with a single row is not tested.
    """
    _check(truth, share)
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(truth))
    if not classes:
        count = min(max(1, round(share * len(truth))), len(truth) - 2)
        test = order[:count]
    else:
        parts = []
        for label in np.unique(truth):
            rows = order[truth[order] == label]
            parts.append(rows[: min(round(share * len(rows)), len(rows) - 1)])
        test = np.concatenate(parts)
        wanted = max(1, round(share * len(truth)))
        if 2 * len(test) < wanted or not len(test):  # small classes were all rounded to none
            test = _one_of_each(order, truth, test, wanted)
    train = np.setdiff1d(np.arange(len(truth)), test)
    return train, np.sort(test)


def _one_of_each(order: AnyArray, truth: AnyArray, test: AnyArray, wanted: int) -> AnyArray:
    """Up to ``wanted`` rows: those of ``test`` and one of each class that keeps a row for training."""
    left = np.bincount(truth[np.setdiff1d(order, test)], minlength=int(truth.max()) + 1)
    rest = order[~np.isin(order, test)]
    first = np.sort(np.unique(truth[rest], return_index=True)[1])
    more = [row for row in rest[first] if left[truth[row]] > 1]
    return np.concatenate([test, np.array(more[: max(0, wanted - len(test))], dtype=test.dtype)])


def _check(truth: AnyArray, share: float) -> None:
    if not 0 < share < 1:
        raise ArgumentError("test_share", "between 0 and 1", f"{share:g}", "For example 0.2.")
    if len(truth) < FEWEST:
        raise ArgumentError(
            "the table", f"of at least {FEWEST} rows with a target", f"{len(truth)}", "Use more rows."
        )

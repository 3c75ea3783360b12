"""Shifts of the level of a series: a new price list, a second shift at the plant.

Trends and seasons that are fitted across a shift bend to imitate it, and forecasts from before it say nothing
about those after it. The rows before a shift are therefore moved to the level after the last one, and all
else is learned from them, the errors of forecasts too: intervals hold unless the level shifts again.

Steps are added one at a time to a model with a line, the other inputs and a season, where they reduce the
squared error most; then each is placed again, with the others given. They count as shifts only if the series
is described better with them than as a walk or an autoregression around waves without them, by Schwarz's
criterion with the errors one step ahead, and if what they leave does not wander: a walk has steps everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mlayer.estimators.continuation import Moments, calendar, known_parameters, most_columns, plain
from mlayer.estimators.rows import Rows
from mlayer.estimators.wandering import residual_series
from mlayer.estimators.waves import WaveFit, solved
from mlayer.numerics.arrays import Array
from mlayer.numerics.persistence import Persistence
from mlayer.numerics.waves import schwarz

_MOST = 5
# Moments, and their part, between two shifts or a shift and an end.
_FEWEST, _PART = 6, 0.03
# A shift has this size in deviations of what is left of the means of moments.
_SIZE = 2.0
# The part of a step that other columns do not explain is at least this.
_OWN = 0.05
# Directions of the columns below this part of the strongest one depend on the others.
_INDEPENDENT = 1e-7
# The time of a shift counts as much as the frequency of a wave, three numbers, and its size is one.
_NUMBERS = 4
# Days; of its season two waves are tried, if the rows have this many of its cycles.
_YEAR, _CYCLES_OF_A_YEAR = 365.25, 1.2


@dataclass(frozen=True)
class Shifts:
    """Shifts of the level of standardized rows with one output.

    Attributes:
        times: the last times before each, (shifts,).
        sizes: what the level gains after them, (shifts,).
    """

    times: Array
    sizes: Array

    def removed(self, rows: Rows, time: int) -> Rows:
        """The rows, the earlier ones moved to the last level."""
        still_to_come = (rows.x[:, [time]] <= self.times) @ self.sizes
        return replace(rows, y=rows.y + still_to_come[:, None])


def level_shifts(
    data: Rows, moments: Moments, day: float, search: Callable[[Rows], WaveFit | None]
) -> Shifts | None:
    """The shifts of a series of one output; None without any.

    Args:
        data: its rows, standardized.
        moments: theirs.
        day: in units of the time.
        search: finds the waves in rows.
    """
    if len(moments.values) < 4 * _FEWEST:
        return None
    models = _models(data, moments, day)
    trials = [trial for model in models if (trial := _placed(model.columns(data.x), data, moments))]
    if not trials:
        return None
    shifts = min(trials, key=lambda trial: trial[0])[1]
    flat, numbers = shifts.removed(data, moments.time), _NUMBERS * len(shifts.times)
    # The waves, which take longest to find, are asked only if the other models are in favor.
    for searched in (False, True):
        before, after = (
            [*models, *filter(None, [search(rows) if searched else None])] for rows in (data, flat)
        )
        usual, steady = _described(before, data, moments, 0), _described(after, flat, moments, numbers)
        if usual is None or steady is None or steady[1].wanders or steady[0] >= usual[0]:
            return None
        if (np.abs(shifts.sizes) < _SIZE * steady[1].deviation).any():
            return None
    return shifts


def _models(data: Rows, moments: Moments, day: float) -> list[WaveFit]:
    """Models without steps: a line, with a calendar's season, and with that of the year."""
    found = [model for model in (plain(data, moments), calendar(data, moments)) if model is not None]
    year = _YEAR * day
    if year < 4 * moments.step or np.ptp(moments.values) < _CYCLES_OF_A_YEAR * year:
        return found
    waves = 2 * np.pi / year * np.array([1.0, 2.0])
    for model in tuple(found):
        frequencies = np.concatenate([model.frequencies, waves])
        more = replace(model, frequencies=frequencies, inputs=np.full(len(frequencies), moments.time))
        if known_parameters(more, data) < most_columns(data):
            found.append(solved(more, data))
    return found


def _described(
    models: list[WaveFit], data: Rows, moments: Moments, numbers: int
) -> tuple[float, Persistence] | None:
    """Schwarz's criterion of the best model of the rows, with that many further numbers; what it leaves."""
    best: tuple[float, Persistence] | None = None
    count = len(moments.values)
    for model in models:
        (left,) = residual_series(solved(model, data), data, moments, together=True)
        found = Persistence.of([left])
        if found is not None:
            free = model.parameters(1, data.x.shape[1]) + numbers
            score = schwarz(count * found.deviation**2, count, free)
            best = min(filter(None, [best, (score, found)]), key=lambda each: each[0])
    return best


def _placed(columns: Array, data: Rows, moments: Moments) -> tuple[float, Shifts] | None:
    """Schwarz's criterion of the columns and the steps that pay, and these; None without any."""
    root = np.sqrt(data.weight)[:, None]
    place = np.searchsorted(moments.values, data.x[:, moments.time])
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place)) - 1  # the last row of each moment, in this order
    columns, wanted, root, place = (columns * root)[order], (data.y * root)[order], root[order], place[order]
    weight = np.cumsum(np.square(root[:, 0]))[ends]
    apart = max(_FEWEST, round(_PART * len(ends)))

    def basis(chosen: list[int]) -> Array:
        steps = (place[:, None] <= np.array(chosen, dtype=int)) * root
        U, sizes, _ = np.linalg.svd(np.column_stack([columns, steps]), full_matrices=False)
        return np.asarray(U[:, sizes > _INDEPENDENT * sizes[0]])

    def next_step(chosen: list[int]) -> tuple[float, int]:
        """The squares left with one more step, and its place."""
        Q = basis(chosen)
        left = wanted - Q @ (Q.T @ wanted)
        squares = float(np.square(left).sum())
        own = weight - np.square(np.cumsum(Q * root, axis=0)[ends]).sum(axis=1)
        gains = np.square(np.cumsum(left[:, 0] * root[:, 0])[ends])
        share = np.minimum(weight, weight[-1] - weight)
        free = own > _OWN * share
        for taken in (-1, *chosen, len(ends) - 1):
            free[max(0, taken - apart + 1) : taken + apart] = False
        gains = np.where(free, gains / np.where(free, own, 1.0), 0.0)
        return squares - float(gains.max()), int(gains.argmax())

    count, numbers = len(data.y), columns.shape[1]
    chosen: list[int] = []
    best = schwarz(float(np.square(wanted - (Q := basis([])) @ (Q.T @ wanted)).sum()), count, numbers)
    while len(chosen) < _MOST:
        trial = [*chosen, next_step(chosen)[1]]
        squares = 0.0
        for k in range(len(trial)):  # each again, with the others given
            squares, trial[k] = next_step(trial[:k] + trial[k + 1 :])
        score = schwarz(squares, count, numbers + _NUMBERS * len(trial))
        if score >= best:
            break
        best, chosen = score, trial
    if not chosen:
        return None
    chosen.sort()
    steps = (place[:, None] <= np.array(chosen)) * root
    found = np.linalg.lstsq(np.column_stack([columns, steps]), wanted, rcond=None)[0]
    return best, Shifts(moments.values[chosen], -found[numbers:, 0])

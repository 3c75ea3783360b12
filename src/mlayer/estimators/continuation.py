"""The continuation of a series after its last row: a season, the level at the end, and a part of the trend.

    y(t) = season(t) + other inputs + level + drift . slope . (t - end)

The season is that of the waves found in the past, or of a calendar (4, 7, 12 or 24 moments), or none. The
level is a mean of the residuals, with weights that decay with the age of a row: memory 0.3 is the last
value, an infinite memory the mean of all rows. With drift 1/2 and a short memory it is the "theta" forecast
(Assimakopoulos and Nikolopoulos, Int. J. Forecasting 16, 2000; Hyndman and Billah, same journal 19, 2003).
Which of these is used is decided by forecasts from several origins in the past. All of them are sums of waves
and lines, and so M-layers: docs/theory/waves.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from mlayer.estimators.rows import Rows
from mlayer.estimators.waves import WaveFit, solved
from mlayer.numerics.arrays import Array, Flags, Indices
from mlayer.numerics.waves import schwarz

FOUND, CALENDAR, NONE = "waves", "calendar", "none"
# In moments; an infinite one is the mean of all.
_MEMORIES = (0.3, 2.0, 8.0, 30.0, np.inf)
# Parts of the slope of all rows, and of that of the last rows.
_DRIFTS = ((0.0, False), (0.5, False), (1.0, False), (0.5, True), (1.0, True))
# A local slope is that of weights that fade over this part of the moments.
_LOCAL = 0.25
# Moments of a season that a calendar may have: quarters or weeks of a month, weekdays, months, hours.
_SEASONS = (4, 7, 12, 24)
_HARMONICS = (1, 2, 3, 12)
# A sine is looked for in this many seasons, what has more harmonics in that many.
_SEASONS_OF_A_SINE, _SEASONS_OF_OTHERS = 1.5, 2.0
# Series are numbered anew beyond this number, before one more group would exceed an integer.
_MOST_KEYS = 2**60
# Columns at most, as a part of the rows.
_COLUMNS = 1 / 3
# What a slope, and a season, must gain in the logarithm of the mean squared error: few origins may favor
# them by chance.
PRICE_OF_A_DRIFT = 0.3
_PRICES_OF_SEASONS = {NONE: 0.0, FOUND: 0.05, CALENDAR: 0.07}
# Of the level of a series that is too short to be compared.
MEMORY_OF_FEW = 2.0


@dataclass(frozen=True)
class Continuation:
    """A way to continue."""

    season: str  # "waves" of the search, "calendar", or "none"
    memory: float  # of the level, in moments
    drift: float  # the part of the slope that is kept
    local: bool  # whether the slope is that of the last rows
    grows: bool = False  # whether all of it grows at a constant rate besides
    scales: bool = False  # whether it is multiplied by a factor for each group

    @property
    def price(self) -> float:
        """The gain that it needs to be preferred to the last value."""
        return PRICE_OF_A_DRIFT * (self.drift > 0) + _PRICES_OF_SEASONS[self.season]

    @property
    def as_fitted(self) -> bool:
        """Whether it is the model of all rows as it is."""
        return bool(np.isinf(self.memory)) and self.drift == 1.0 and not self.local

    @property
    def from_the_last_rows(self) -> Continuation:
        """The same with the level of the last rows, and no slope but that of all rows."""
        return replace(
            self,
            memory=min(self.memory, MEMORY_OF_FEW),
            drift=0.0 if self.local else self.drift,
            local=False,
        )

    @property
    def description(self) -> str:
        """A description for users."""
        level = "the mean level" if np.isinf(self.memory) else "the level of the last rows"
        if self.memory < 1:
            level = "the last value"
        trend = {0.0: "", 0.5: " plus half of the trend", 1.0: " plus the trend"}[self.drift]
        season = " plus the season" if self.season != NONE else ""
        factor = ", growing at a constant rate" * self.grows + ", times a factor for each group" * self.scales
        return level + trend + season + factor


def every_way(seasons: list[str]) -> list[Continuation]:
    """All that are compared."""
    return [
        Continuation(season, memory, *drift)
        for season, memory, drift in product(seasons, _MEMORIES, _DRIFTS)
        if season != FOUND or not drift[1] or memory < np.inf
    ]


class Moments:
    """The times of rows, (rows, inputs): which are the groups, how far apart the moments are."""

    def __init__(self, x: Array, time: int) -> None:
        self.time = time
        self.values, place, counts = np.unique(x[:, time], return_inverse=True, return_counts=True)
        steps = np.diff(self.values)
        middle = np.median(steps) if len(steps) else 1.0
        # Months differ in length: the mean of the steps that are not gaps.
        self.step = float(steps[steps <= 1.5 * middle].mean()) if len(steps) else 1.0
        self.groups = self._groups(x, place) if np.mean(counts > 1) > 0.5 else []

    def _groups(self, x: Array, place: Indices) -> list[int]:
        """Inputs of two values that each moment has equally often: those of a series, not of an event."""
        found = []
        for j in range(x.shape[1]):
            low, high = x[:, j].min(), x[:, j].max()
            if j == self.time or not low < high or not np.isin(x[:, j], (low, high)).all():
                continue
            count = np.bincount(place, x[:, j] == high)
            if np.mean(count == np.median(count)) > 0.8 and np.median(count) > 0:
                found.append(j)
        return found

    def series(self, x: Array) -> Flags:
        """The rows of each series, that of one set of groups.  (series, rows)"""
        if not self.groups:
            return np.ones((1, len(x)), dtype=bool)
        number = series_numbers(x, self.groups)
        return np.asarray(number == np.arange(int(number.max()) + 1)[:, None])

    def until(self, part: float) -> float:
        """The last moment of this part of them."""
        return float(self.values[max(0, round(min(part, 1.0) * len(self.values)) - 1)])


def series_numbers(x: Array, groups: list[int]) -> Indices:
    """The number of the series of each row, by its inputs of two values, in their order."""
    key = np.zeros(len(x), dtype=np.int64)
    for g in groups:  # to sort the rows themselves takes far longer
        key = 2 * key + (x[:, g] == x[:, g].max())
        if key.max() > _MOST_KEYS:
            key = np.unique(key, return_inverse=True)[1]
    return np.asarray(np.unique(key, return_inverse=True)[1], dtype=np.int64)


def most_columns(data: Rows) -> int:
    """The largest number of coefficients that a model of these rows may have."""
    return int(_COLUMNS * data.y.size)


def known_parameters(model: WaveFit, data: Rows) -> int:
    """Parameters of a model whose frequencies are given and not searched."""
    return model.parameters(data.y.shape[1], data.x.shape[1]) - 3 * len(model.frequencies)


def _judged(model: WaveFit, data: Rows) -> WaveFit:
    """The model with its coefficients, and Schwarz's criterion for given frequencies."""
    model = solved(model, data)
    squares = model.loss(data) * data.y.size
    return replace(model, score=schwarz(squares, data.y.size, known_parameters(model, data)))


def plain(data: Rows, moments: Moments) -> WaveFit:
    """The model without a season: the inputs, and a slope for each group where that pays."""
    none = WaveFit(np.empty(0), np.empty(0, dtype=np.int64))
    best = solved(none, data)
    if moments.groups:
        pairs = tuple((moments.time, g) for g in moments.groups)
        best = min(best, solved(replace(none, products=pairs), data), key=lambda fit: fit.score)
    return best


def calendar(data: Rows, moments: Moments) -> WaveFit | None:
    """The calendar season with the least of Schwarz's criterion; None where rows are too few for any."""
    base = plain(data, moments)
    extent = len(np.unique(data.x[:, moments.time]))
    trials = []
    for season, harmonics in product(_SEASONS, _HARMONICS):
        count = min(harmonics, season // 2)
        seasons = _SEASONS_OF_A_SINE if harmonics == 1 else _SEASONS_OF_OTHERS
        if extent < seasons * season or (harmonics > season // 2 and harmonics != _HARMONICS[-1]):
            continue
        w = np.asarray(2 * np.pi * np.arange(1, count + 1) / (season * moments.step), dtype=np.float64)
        trial = replace(base, frequencies=w, inputs=np.full(count, moments.time))
        if known_parameters(trial, data) < most_columns(data):
            trials.append(_judged(trial, data))
    if not trials:
        return None
    best = min(trials, key=lambda fit: fit.score)
    for more in ((moments.time,), tuple(moments.groups), (*moments.groups, moments.time)):
        trial = replace(best, groups=more)
        if more and known_parameters(trial, data) < most_columns(data):
            best = min(best, _judged(trial, data), key=lambda fit: fit.score)
    return best


class End:
    """A model, solved for the rows of ``data``, after which it is to continue; its columns, if known."""

    def __init__(self, base: WaveFit, data: Rows, moments: Moments, known: Array | None = None) -> None:
        self.base, self.data, self.moments = base, data, moments
        time, inputs = moments.time, data.x.shape[1]
        self._end = float(data.x[:, time].max())
        since = data.x[:, time] - self._end
        # Products with the time: their numbers, and the inputs that change the slope.
        products = [(k, i if j == time else j) for k, (i, j) in enumerate(base.products) if time in (i, j)]
        self._changed = [j for _, j in products]
        self._trend = [1 + time, *(1 + inputs + k for k, _ in products)]
        columns, found = base.columns(data.x) if known is None else known, base.coefficients
        # The residuals with the trend in them; the slopes' columns, 0 at the end.
        self._rest = data.y - columns @ found + columns[:, self._trend] @ found[self._trend]
        self._slopes = np.column_stack([since, *(data.x[:, j] * since for j in self._changed)])
        self._series = moments.series(data.x)
        self._ages = np.empty(len(since))
        for rows in self._series:
            self._ages[rows] = (since[rows].max() - since[rows]) / moments.step
        self._known: dict[float, tuple[Array, Array]] = {}  # by memory
        # The slopes of the last rows, with a level for each series.
        fade = data.weight * np.exp(since / (_LOCAL * len(moments.values) * moments.step))
        root = np.sqrt(fade)[:, None]
        sloped = np.column_stack([self._slopes, self._series.T.astype(np.float64)]) * root
        slopes = np.linalg.lstsq(sloped, self._rest * root, rcond=None)[0]
        self._local = np.asarray(slopes[: self._slopes.shape[1]], dtype=np.float64)

    def _means(self, memory: float) -> tuple[Array, Array]:
        """Means by series, with the weights of this memory, of residuals and of the slopes' columns."""
        if memory not in self._known:
            weight = self._series * (self.data.weight * np.exp(-self._ages / memory))
            weight /= weight.sum(axis=1, keepdims=True)
            self._known[memory] = weight @ self._rest, weight @ self._slopes
        return self._known[memory]

    def model(self, way: Continuation) -> WaveFit:
        """The model with the level and the slope of ``way``."""
        if way.as_fitted:
            return self.base
        data, groups = self.data, self.moments.groups
        found = self.base.coefficients.copy()
        slope = way.drift * (self._local if way.local else found[self._trend])
        rest, slopes = self._means(way.memory)
        levels = rest - slopes @ slope
        places = [[1.0, *data.x[rows][0, groups]] for rows in self._series]
        change = np.linalg.lstsq(np.array(places), levels, rcond=None)[0]
        # The constant is not in ``left``: what is found is a change of it.
        found[self._trend] = slope
        found[0] += change[0] - slope[0] * self._end
        for g, more in zip(groups, change[1:], strict=True):
            found[1 + g] += more
        for j, rate in zip(self._changed, slope[1:], strict=True):
            found[1 + j] -= rate * self._end
        return replace(self.base, coefficients=found)


def ends(data: Rows, moments: Moments, waves: WaveFit | None, seasons: set[str]) -> dict[str, End]:
    """The models to continue, by their season, solved for ``data``; of ``waves`` the frequencies count."""
    found: dict[str, WaveFit | None] = {NONE: plain(data, moments)}
    if CALENDAR in seasons:
        found[CALENDAR] = calendar(data, moments)
    if FOUND in seasons and waves is not None:
        found[FOUND] = solved(waves, data)
    return {season: End(base, data, moments) for season, base in found.items() if base is not None}

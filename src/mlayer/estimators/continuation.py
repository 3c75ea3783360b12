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

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from mlayer.estimators.rows import Rows
from mlayer.estimators.watch import OutOfTimeError
from mlayer.estimators.waves import WaveFit, bounded, solved
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
# Columns at most, as a part of the rows.
_COLUMNS = 1 / 3
# Forecasts start after these parts of the moments and are judged up to a fifth of the moments later.
ORIGINS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
HORIZON = 0.2
# Errors at the first moments count too: they separate a random walk from a mean before the long run does.
_FIRST, _WEIGHT_OF_FIRST = 2, 0.25
# What a slope, and a season, must gain in the logarithm of the mean squared error: few origins may favor
# them by chance.
PRICE_OF_A_DRIFT = 0.3
_PRICES_OF_SEASONS = {NONE: 0.0, FOUND: 0.05, CALENDAR: 0.07}
# Of the level of a series that is too short to be compared.
_MEMORY_OF_FEW = 2.0
# Errors are measured from this part of the moments on.
_FIRST_ORIGIN = 0.4
# Two waves are one if their phases part by no more than this over the rows.
_IN_PHASE = np.pi / 4
# From this many origins at least, however late it is.
_FEWEST_ORIGINS = 4


@dataclass(frozen=True)
class Continuation:
    """A way to continue."""

    season: str  # "waves" of the search, "calendar", or "none"
    memory: float  # of the level, in moments
    drift: float  # the part of the slope that is kept
    local: bool  # whether the slope is that of the last rows

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
            memory=min(self.memory, _MEMORY_OF_FEW),
            drift=0.0 if self.local else self.drift,
            local=False,
        )

    @property
    def description(self) -> str:
        """A description for users."""
        level = "the mean level" if np.isinf(self.memory) else "the level of the last rows"
        if self.memory < 1:
            level = "the last value"
        trend = {0.0: "", 0.5: " and half of the trend", 1.0: " and the trend"}[self.drift]
        season = " on top of the season" if self.season != NONE else ""
        return level + trend + season


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
        key = np.unique(x[:, self.groups], axis=0, return_inverse=True)[1].reshape(-1)
        return np.asarray(key == np.arange(int(key.max()) + 1)[:, None])

    def until(self, part: float) -> float:
        """The last moment of this part of them."""
        return float(self.values[max(0, round(min(part, 1.0) * len(self.values)) - 1)])


def _size(data: Rows) -> int:
    return int(_COLUMNS * data.y.size)


def _known(model: WaveFit, data: Rows) -> int:
    """Parameters of a model whose frequencies are given and not searched."""
    return model.parameters(data.y.shape[1], data.x.shape[1]) - 3 * len(model.frequencies)


def _judged(model: WaveFit, data: Rows) -> WaveFit:
    """The model with its coefficients, and Schwarz's criterion for given frequencies."""
    model = solved(model, data)
    squares = model.loss(data) * data.y.size
    return replace(model, score=schwarz(squares, data.y.size, _known(model, data)))


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
        if _known(trial, data) < _size(data):
            trials.append(_judged(trial, data))
    if not trials:
        return None
    best = min(trials, key=lambda fit: fit.score)
    for more in ((moments.time,), tuple(moments.groups), (*moments.groups, moments.time)):
        trial = replace(best, groups=more)
        if more and _known(trial, data) < _size(data):
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
        # The slopes of the last rows, with a level for each series.
        fade = data.weight * np.exp(since / (_LOCAL * len(moments.values) * moments.step))
        root = np.sqrt(fade)[:, None]
        sloped = np.column_stack([self._slopes, self._series.T.astype(np.float64)]) * root
        slopes = np.linalg.lstsq(sloped, self._rest * root, rcond=None)[0]
        self._local = np.asarray(slopes[: self._slopes.shape[1]], dtype=np.float64)

    def model(self, way: Continuation) -> WaveFit:
        """The model with the level and the slope of ``way``."""
        if way.as_fitted:
            return self.base
        data, groups = self.data, self.moments.groups
        found = self.base.coefficients.copy()
        slope = way.drift * (self._local if way.local else found[self._trend])
        left = self._rest - self._slopes @ slope
        weight = data.weight * np.exp(-self._ages / way.memory)
        levels, places = [], []
        for rows in self._series:
            levels.append(weight[rows] @ left[rows] / weight[rows].sum())
            places.append([1.0, *data.x[rows][0, groups]])
        change = np.linalg.lstsq(np.array(places), np.array(levels), rcond=None)[0]
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


class Past:
    """Forecasts of the rows of a series from origins in its past.

    ``check`` is called before each origin; it may raise to end the comparison.
    """

    def __init__(self, data: Rows, time: int, check: Callable[[], None] = lambda: None) -> None:
        self.data, self.check = data, check
        self.moments = Moments(data.x, time)
        # Of each origin and each way: the mean squared errors up to the horizon, and at the first moments.
        self.losses: dict[float, dict[Continuation, tuple[float, float]]] = {}
        self._searched: dict[float, WaveFit | None] = {}

    def split(self, origin: float, horizon: float = HORIZON) -> tuple[Flags, Flags]:
        """Rows before the origin, a part of the moments, and those up to the horizon after it."""
        times = self.data.x[:, self.moments.time]
        before = times <= self.moments.until(origin)
        return before, ~before & (times <= self.moments.until(origin + horizon))

    def _before(self, rows: Flags) -> tuple[Rows, Moments]:
        past = self.data.part(rows)
        moments = Moments(past.x, self.moments.time)
        moments.groups = self.moments.groups
        return past, moments

    def compare(self, origins: Sequence[float], search: Callable[[float], WaveFit | None]) -> None:
        """Fill :attr:`losses`; ``search`` gives the waves in the rows before an origin."""
        for origin in origins:
            self.check()
            before, after = self.split(origin)
            if before.sum() < 2 * (self.data.x.shape[1] + 2) or not after.any():
                continue
            past, moments = self._before(before)
            self._searched[origin] = search(origin)
            known = ends(past, moments, self._searched[origin], {CALENDAR, FOUND})
            future = self.data.part(after)
            times = future.x[:, moments.time]
            first = times <= np.unique(times)[:_FIRST][-1]
            columns = {season: end.base.columns(future.x) for season, end in known.items()}
            losses = self.losses.setdefault(origin, {})
            for way in every_way([NONE, CALENDAR, FOUND]):
                # Where no season is found, the model would continue without one.
                season = way.season if way.season in known else NONE
                forecast = columns[season] @ known[season].model(way).coefficients
                square = np.square(forecast - future.y).mean(axis=1)
                losses[way] = float(square.mean()), float(square[first].mean())

    def _is_late(self) -> bool:
        try:
            self.check()
        except OutOfTimeError:
            return True
        return False

    def best(
        self,
        seasons: set[str],
        allowed: Callable[[Continuation], bool] = lambda _: True,
        price: Callable[[Continuation], float] = lambda way: way.price,
        waves: WaveFit | None = None,
    ) -> Continuation:
        """The allowed way with the least mean logarithm of the errors plus its price.

        The seasons are those that the model of all rows can have. If the waves of all rows are chosen,
        origins that knew them decide on level and slope.
        """
        tiny = np.finfo(np.float64).tiny

        def badness(way: Continuation, origins: Collection[float] = self.losses.keys()) -> float:
            far, near = np.array([self.losses[origin][way] for origin in origins]).T + tiny
            return float(np.log(far).mean() + _WEIGHT_OF_FIRST * np.log(near.mean())) + price(way)

        ways = [way for way in every_way([NONE, CALENDAR, FOUND]) if way.season in {NONE, *seasons}]
        ways = [way for way in ways if allowed(way)]
        if not self.losses:  # too short, or no time to compare
            fitted = Continuation(FOUND, np.inf, 1.0, False)
            kept = FOUND in seasons and allowed(fitted)
            return fitted if kept else Continuation(NONE, _MEMORY_OF_FEW, 0.0, False)
        best = min(ways, key=badness)
        alike = [] if waves is None or best.season != FOUND else self._found_before(waves)
        if len(alike) < _FEWEST_ORIGINS:
            return best
        return min((way for way in ways if way.season == FOUND), key=lambda way: badness(way, alike))

    def _found_before(self, waves: WaveFit) -> list[float]:
        """The origins with all these waves among those of the rows before: in phase through these rows."""
        times, found = self.data.x[:, self.moments.time], []
        for origin, known in self._searched.items():
            extent = self.moments.until(origin) - float(times.min())
            if known is not None and origin in self.losses:
                apart = np.abs(waves.frequencies[:, None] - known.frequencies).min(axis=1)
                found += [origin] if (apart * extent <= _IN_PHASE).all() else []
        return found

    def errors(self, way: Continuation, base: WaveFit, most: int) -> tuple[Array, Array, Array]:
        """Horizons (in units of the time), forecasts and absolute errors from up to ``most`` origins.

        Where the rows before an origin are too few for the columns of ``base``, there is no season.
        """
        times, data = self.data.x[:, self.moments.time], self.data
        values, columns = self.moments.values, base.columns(data.x)
        first = min(max(int(_FIRST_ORIGIN * len(values)), data.x.shape[1] + 2), len(values) - 1)
        found: list[tuple[Array, Array, Array]] = []
        places = np.unique(np.linspace(first, len(values) - 1, most).round().astype(int))
        # Every eighth first: where the time runs out, those that were used lie all over the past.
        for place in np.concatenate([places[start::8] for start in (7, 3, 5, 1, 6, 2, 4, 0)]):
            if len(found) >= _FEWEST_ORIGINS and self._is_late():
                break
            before = times < values[place]
            past, moments = self._before(before)
            enough = _known(base, past) < _size(past)
            whole = solved(base, past, columns[before]) if enough else plain(past, moments)
            fitted = bounded(whole, past, [moments.time])
            known = columns[before] if enough and fitted is whole else None  # no wave was dropped
            model = End(fitted, past, moments, known).model(way)
            after = columns[~before] if known is not None else model.columns(data.x[~before])
            forecast = (after @ model.coefficients)[:, 0]
            error = np.abs(forecast - data.y[~before, 0])
            found.append((times[~before] - past.x[:, moments.time].max(), forecast, error))
        horizons, forecasts, errors = (np.concatenate(each) for each in zip(*found, strict=True))
        return horizons, forecasts, errors

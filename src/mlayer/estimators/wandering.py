"""Whether a series wanders, and what that leaves of the ways to continue it.

A random walk shows waves and slopes that are chance: those of fewer than three cycles, those that do not make
its steps smaller, and lines that its steps may well have made. The residuals of the seasons that recur are
described by `mlayer.numerics.persistence`, which says how wide the intervals of forecasts must at least be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from mlayer.estimators.continuation import FOUND, NONE, PRICE_OF_A_DRIFT, Continuation, End, Moments
from mlayer.estimators.rows import Rows
from mlayer.estimators.waves import WaveFit, solved
from mlayer.numerics.arrays import Array
from mlayer.numerics.persistence import Persistence
from mlayer.numerics.waves import schwarz

# The waves that were found, those of few cycles too.
_ALL_WAVES = "all waves"
# A wave recurs if the rows have this many of its cycles.
_CYCLES = 2.9
# Days; a wave is that of the year if its period differs by this part, and the rows have this many years.
_YEAR = 365.25
_NEAR_A_YEAR = 0.07
_CYCLES_OF_A_YEAR = 1.2
# The level of a walk is that of its last moments.
_LONGEST_MEMORY = 8.0
# Of what a walk without a slope may have made of a line, in standard errors.
_SIGMAS = 2.0
# The level has shifted if the median of this number of last residuals is beyond the largest of earlier ones
# by this factor. Earlier ones end this part of the moments before the end.
_LAST_MOMENTS = 5
_BEYOND_EARLIER = 1.5
_LATELY = 0.15
# A slope of this number of standard errors is beyond doubt.
_SURE = 5.0
# With fewer moments for each of its numbers, a model has made its residuals small by itself.
_MOMENTS_FOR_A_NUMBER = 15
# Residuals whose level moves by no more than this over all moments, in errors one step ahead, are noise.
_NOISE = 1.25
# The steps of a walk are shares of its level if that describes them better by this log-likelihood.
_GAIN_OF_LOGS = 3.0
# What a way must gain, in the logarithm of the mean squared error, over a model whose residuals are noise.
_PRICE_OF_A_CHANGE = 0.1


def recurring(waves: WaveFit | None, data: Rows) -> WaveFit | None:
    """The waves with several cycles in the rows, solved again; None without any."""
    if waves is None:
        return None
    extent = np.ptp(data.x, axis=0)[waves.inputs]
    kept = waves.frequencies * extent >= 2 * np.pi * _CYCLES
    if kept.all():
        return waves
    if not kept.any():
        return None
    return solved(replace(waves, frequencies=waves.frequencies[kept], inputs=waves.inputs[kept]), data)


def is_year(waves: WaveFit, data: Rows, found: Persistence | None, day: float) -> bool:
    """Whether the waves of few cycles are those of the year, and the waves leave noise.

    Forecasts from the past, which knew less than a cycle of it, cannot judge such a wave. One of another
    period may as well be a curved trend. A ``day`` is given in units of the input.
    """
    if found is None or found.wanders:
        return False
    extent = np.ptp(data.x, axis=0)[waves.inputs]
    cycles = waves.frequencies * extent / (2 * np.pi)
    slow = cycles < _CYCLES
    apart = np.abs(2 * np.pi / (waves.frequencies[slow] * day * _YEAR) - 1)
    moments = float(len(np.unique(data.x[:, waves.inputs[0]])))
    noise = found.deviations(np.array(moments)) <= _NOISE * found.deviation
    return bool(noise and slow.any() and (apart < _NEAR_A_YEAR).all() and (cycles >= _CYCLES_OF_A_YEAR).all())


def persistence_of(
    models: Mapping[str, WaveFit], data: Rows, moments: Moments
) -> tuple[str, Persistence] | None:
    """The model whose residuals, as a walk or an autoregression, are described best; its name and theirs.

    By Schwarz's criterion with the errors one step ahead: waves that follow a random walk have far smaller
    residuals than none, and hardly smaller steps.
    """
    best: tuple[float, str, Persistence] | None = None
    for name, model in models.items():
        found = Persistence.of(residual_series(model, data, moments))
        if found is None:
            continue
        count = model.parameters(data.y.shape[1], data.x.shape[1])
        score = schwarz(data.y.size * found.deviation**2, data.y.size, count)
        if best is None or score < best[0]:
            best = score, name, found
    return None if best is None else best[1:]


def wandering_beside(
    known: dict[str, End], waves: WaveFit | None, rows: Rows, moments: Moments
) -> Persistence | None:
    """The wandering of the level beside seasons that recur; waves that are chance then leave ``known``."""
    models = {season: end.base for season, end in known.items() if season != FOUND}
    if (kept := recurring(waves, rows)) is not None:
        models[FOUND] = kept
    if waves is not None and kept is not waves and is_determined(known[FOUND]):
        models[_ALL_WAVES] = known[FOUND].base
    best = persistence_of(models, rows, moments)
    if best is not None and best[0] == _ALL_WAVES and best[1].wanders:
        models.pop(_ALL_WAVES)
        best = persistence_of(models, rows, moments)
    if best is None or not best[1].wanders:
        return None if best is None else best[1]
    if best[0] != FOUND:
        known.pop(FOUND, None)
    elif kept is not None and kept is not waves:
        known[FOUND] = End(kept, rows, moments)
    return best[1]


def residual_series(model: WaveFit, data: Rows, moments: Moments, *, together: bool = False) -> list[Array]:
    """The series of residuals of each group, or of all ``together``; rows of one moment are averaged."""
    left = (data.y - model.columns(data.x) @ model.coefficients).mean(axis=1)
    place = np.searchsorted(moments.values, data.x[:, moments.time])
    series: list[Array] = []
    for rows in [np.ones(len(data), dtype=bool)] if together else moments.series(data.x):
        counts = np.bincount(place[rows])
        series.append((np.bincount(place[rows], left[rows]) / np.maximum(counts, 1))[counts > 0])
    return series


def floor_of(
    found: Persistence, way: Continuation, end: End, offset: float, *, has_factor: bool
) -> tuple[Persistence, bool]:
    """The wandering of the level, and whether it is a share of it and not in the unit of the targets.

    It is where the rows were divided by a factor, and of a walk of the logarithms: the steps of a price are
    as large as the price demands, today, and not as they were on average.

    Args:
        found: for the rows of ``end``.
        way: how they continue.
        end: the rows, and their model.
        offset: what must be added to the targets for the true ones.
        has_factor: whether the rows are what is left without a factor; they are the true targets then.
    """
    data = end.data
    if has_factor:
        level = abs(float(np.average(data.y[:, 0], weights=data.weight)))
        return replace(found, deviation=found.deviation / level), True
    if way.season != NONE or not found.wanders or not (data.y + offset > 0).all():
        return found, False
    none = WaveFit(np.empty(0), np.empty(0, dtype=np.int64), coefficients=np.zeros((1 + data.x.shape[1], 1)))
    series = residual_series(none, replace(data, y=data.y + offset), end.moments)
    logs, values = Persistence.of([np.log(each) for each in series]), Persistence.of(series)
    if logs is None or values is None or not logs.wanders or not min(logs.deviation, values.deviation) > 0:
        return found, False
    # Of normal steps, those of the logarithms with the derivative of the logarithm, as for growth.
    steps = np.concatenate([each[1:] for each in series])
    gain = len(steps) * np.log(values.deviation / logs.deviation) - float(np.log(steps).sum())
    return (logs, True) if gain > _GAIN_OF_LOGS else (found, False)


def price_of_ways(known: Mapping[str, End]) -> Callable[[Continuation], float]:
    """The price of each way, by what the residuals of the models show.

    A slope beyond doubt costs nothing. If the residuals are noise besides, any other way than the model
    itself costs something: forecasts from few origins, with fewer rows, may favor one by chance.
    """
    sloped, regular = set(), set()
    for season, end in known.items():
        found = Persistence.of(residual_series(end.base, end.data, end.moments))
        if found is not None and is_determined(end) and _has_sure_slope(end, found):
            sloped.add(season)
            count = len(end.moments.values)
            if found.deviations(np.array(float(count))) <= _NOISE * found.deviation:
                regular.add(season)

    def price(way: Continuation) -> float:
        change = _PRICE_OF_A_CHANGE * (way.season in regular and not way.as_fitted)
        free = way.drift > 0 and way.season in sloped and not way.local
        return way.price + change - PRICE_OF_A_DRIFT * free

    return price


def is_determined(end: End) -> bool:
    """Whether the moments are many for the numbers of the model."""
    numbers = end.base.parameters(end.data.y.shape[1], end.data.x.shape[1])
    return len(end.moments.values) >= _MOMENTS_FOR_A_NUMBER * numbers


def _has_sure_slope(end: End, found: Persistence) -> bool:
    """Whether the slope of a model, or of one of its groups, is far beyond what its residuals may make."""
    model, data, moments = end.base, end.data, end.moments
    time, products = 1 + moments.time, 1 + data.x.shape[1]
    columns, line = model.columns(data.x), data.x[:, moments.time]
    others = np.delete(columns, [time, *range(products, products + len(model.products))], axis=1)
    # Slow waves take a part of the slope: what they leave of the line determines it.
    left = line - others @ np.linalg.lstsq(others, line, rcond=None)[0]
    whole = float(np.square(line - line.mean()).sum())
    if not whole > 0.0 or not left.any():
        return False
    slopes = np.full(len(line), model.coefficients[time, 0])
    for k, (i, j) in enumerate(model.products):
        if moments.time in (i, j):
            slopes += model.coefficients[products + k, 0] * data.x[:, i if j == moments.time else j]
    rise = float(np.abs(slopes).max()) * float(np.ptp(moments.values))
    by_chance = found.deviation_of_line(len(moments.values)) * np.sqrt(whole / float(np.square(left).sum()))
    return rise > _SURE * by_chance


def sound_ways(found: Persistence | None, end: End) -> Callable[[Continuation], bool]:
    """The ways to continue a series that are more than chance; all, unless it wanders."""
    if found is None or not found.wanders:
        return lambda _: True
    moments = end.moments
    slope = float(end.base.coefficients[1 + moments.time, 0])
    by_chance = _SIGMAS * found.step * np.sqrt(len(moments.values))
    sloped = abs(slope) * float(np.ptp(moments.values)) > by_chance

    def sound(way: Continuation) -> bool:
        return way.memory <= _LONGEST_MEMORY and (way.drift == 0.0 or (sloped and not way.local))

    return sound


def has_shifted(model: WaveFit, data: Rows, moments: Moments) -> bool:
    """Whether the level of the last moments is one that the residuals have not had before."""
    (means,) = residual_series(model, data, moments, together=True)
    early = int((1 - _LATELY) * len(means))
    if early < 4 * _LAST_MOMENTS:
        return False
    middles = np.median(np.lib.stride_tricks.sliding_window_view(means[:early], _LAST_MOMENTS), axis=1)
    return bool(abs(np.median(means[-_LAST_MOMENTS:])) > _BEYOND_EARLIER * np.abs(middles).max())

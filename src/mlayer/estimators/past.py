"""Forecasts of a series from origins in its past: which way to continue it, and how large the errors are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np

from mlayer.estimators.continuation import (
    CALENDAR,
    FOUND,
    MEMORY_OF_FEW,
    NONE,
    Continuation,
    End,
    Moments,
    ends,
    every_way,
    known_parameters,
    most_columns,
    plain,
)
from mlayer.estimators.growth import Multiplier
from mlayer.estimators.rows import Rows
from mlayer.estimators.watch import OutOfTimeError
from mlayer.estimators.waves import WaveFit, bounded, solved
from mlayer.numerics.arrays import Array, Flags

# Forecasts start after these parts of the moments and are judged up to a fifth of the moments later.
ORIGINS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
HORIZON = 0.2
# Errors at the first moments count too: they separate a random walk from a mean before the long run does.
_FIRST, _WEIGHT_OF_FIRST = 2, 0.25
# Errors are measured from this part of the moments on.
_FIRST_ORIGIN = 0.4
# Two waves are one if their phases part by no more than this over the rows.
_IN_PHASE = np.pi / 4
# From this many origins at least, however late it is.
_FEWEST_ORIGINS = 4


class Past:
    """Forecasts of the rows of a series from origins in its past.

    Args:
        data: the rows.
        time: the input that is the time.
        check: called before each origin; it may raise to end the comparison.
        factor: of all rows; each origin then knows that of the rows before it.
    """

    def __init__(
        self,
        data: Rows,
        time: int,
        check: Callable[[], None] = lambda: None,
        factor: Multiplier | None = None,
    ) -> None:
        self.data, self.check, self.factor = data, check, factor
        self.moments = Moments(data.x, time)
        # Of each origin and each way: the mean squared errors up to the horizon, and at the first moments.
        self.losses: dict[float, dict[Continuation, tuple[float, float]]] = {}
        self._searched: dict[float, WaveFit | None] = {}

    def split(self, origin: float, horizon: float = HORIZON) -> tuple[Flags, Flags]:
        """Rows before the origin, a part of the moments, and those up to the horizon after it."""
        times = self.data.x[:, self.moments.time]
        before = times <= self.moments.until(origin)
        return before, ~before & (times <= self.moments.until(origin + horizon))

    def _before(self, rows: Flags) -> tuple[Rows, Moments, Callable[[Array, Array], Array]]:
        """The rows without their factor, their moments, and what makes targets of the forecasts at rows."""
        past = self.data.part(rows)
        moments = Moments(past.x, self.moments.time)
        moments.groups = self.moments.groups
        if self.factor is None:
            return past, moments, lambda forecast, _: forecast
        factor = self.factor.again(past, moments.time)
        return factor.removed(past, moments.time), moments, factor.applied

    def compare(self, origins: Sequence[float], search: Callable[[float], WaveFit | None]) -> None:
        """Fill :attr:`losses`; ``search`` gives the waves in the rows before an origin."""
        for origin in origins:
            self.check()
            before, after = self.split(origin)
            if before.sum() < 2 * (self.data.x.shape[1] + 2) or not after.any():
                continue
            past, moments, grown = self._before(before)
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
                forecast = grown(columns[season] @ known[season].model(way).coefficients, future.x)
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
        """The least mean logarithm of the errors, with a penalty on complexity.

        Args:
            seasons: those that the model of all rows can have.
            allowed: whether a way may be chosen.
            price: of a way.
            waves: of all rows; if they are chosen, origins that knew them decide on level and slope.
        """
        badness = partial(self.badness, price=price)
        ways = [way for way in every_way([NONE, CALENDAR, FOUND]) if way.season in {NONE, *seasons}]
        ways = [way for way in ways if allowed(way)]
        if not self.losses:  # too short, or no time to compare
            fitted = Continuation(FOUND, np.inf, 1.0, False)
            kept = FOUND in seasons and allowed(fitted)
            return fitted if kept else Continuation(NONE, MEMORY_OF_FEW, 0.0, False)
        best = min(ways, key=badness)
        alike = [] if waves is None or best.season != FOUND else self._found_before(waves)
        if len(alike) < _FEWEST_ORIGINS:
            return best
        return min((way for way in ways if way.season == FOUND), key=lambda way: badness(way, origins=alike))

    def badness(
        self,
        way: Continuation,
        price: Callable[[Continuation], float],
        origins: Collection[float] | None = None,
    ) -> float:
        """The mean logarithm of the errors of a way, with its price, from all or some of the origins."""
        losses = np.array([self.losses[origin][way] for origin in origins or self.losses])
        far, near = losses.T + np.finfo(np.float64).tiny
        return float(np.log(far).mean() + _WEIGHT_OF_FIRST * np.log(near.mean())) + price(way)

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
            past, moments, grown = self._before(before)
            enough = known_parameters(base, past) < most_columns(past)
            whole = solved(base, past, columns[before]) if enough else plain(past, moments)
            fitted = bounded(whole, past, [moments.time])
            known = columns[before] if enough and fitted is whole else None  # no wave was dropped
            model = End(fitted, past, moments, known).model(way)
            after = columns[~before] if known is not None else model.columns(data.x[~before])
            forecast = grown(after @ model.coefficients, data.x[~before])[:, 0]
            error = np.abs(forecast - data.y[~before, 0])
            found.append((times[~before] - past.x[:, moments.time].max(), forecast, error))
        horizons, forecasts, errors = (np.concatenate(each) for each in zip(*found, strict=True))
        return horizons, forecasts, errors

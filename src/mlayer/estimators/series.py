"""The part of the estimators that looks for waves, and continues a series after its last row."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from mlayer.errors import ArgumentError
from mlayer.estimators import selection
from mlayer.estimators.continuation import (
    CALENDAR,
    FOUND,
    NONE,
    PRICE_OF_A_DRIFT,
    Continuation,
    End,
    Moments,
    ends,
    every_way,
)
from mlayer.estimators.fitting import Fit, Recipe, Tensors, fit_layer, loss_on
from mlayer.estimators.growth import Multiplier, may_grow, may_multiply
from mlayer.estimators.parameters import SMALL_TABLE, is_auto
from mlayer.estimators.past import ORIGINS, Past
from mlayer.estimators.rows import Rows
from mlayer.estimators.scaling import Scale
from mlayer.estimators.shifts import Shifts, level_shifts
from mlayer.estimators.wandering import (
    floor_of,
    has_shifted,
    is_determined,
    is_year,
    price_of_ways,
    sound_ways,
    wandering_beside,
)
from mlayer.estimators.watch import Listener, OutOfTimeError, Watch
from mlayer.estimators.waves import (
    WaveFit,
    bounded,
    find_waves,
    last_level_loss,
    solved,
    time_like,
    wave_layer,
)
from mlayer.nn import MLayer
from mlayer.numerics.arrays import Array
from mlayer.numerics.persistence import Persistence
from mlayer.training import TrainingResult

# With more inputs than these waves are looked for only along those that are spaced like times.
_FEW_INPUTS = 3
# Of the layer that competes with a model of waves on held-out rows.
_WAVE_RIVAL_ITERATIONS = 60
_WAVE_RIVAL_ROWS = 1500
# Searches for waves behind the forecasts from the past: after these parts of the moments.
_SEARCHES = (0.5, 0.8)
# Forecasts of a trained layer start at these.
_RIVAL_ORIGINS = (0.6, 0.8)
# Origins behind the errors of intervals: as many as keep their rows together near this.
_ROWS_OF_ORIGINS = 200_000
_ORIGINS = (8, 40)
# A longer series continues as the fit to its first part has decided.
_ROWS_COMPARED_AGAIN = 500


# What factors of groups must gain in the logarithm of the mean squared error.
_PRICE_OF_FACTORS = 0.05
# By this much must Schwarz's criterion of a year's wave be lower than without it.
_SURELY_BETTER = 10.0


def _with_waves(way: Continuation) -> bool:
    """Whether a way has the season of the waves that were found."""
    return way.season == FOUND


@dataclass(frozen=True)
class _Chosen:
    """A way to continue a series, the model at its end, and what they were chosen by."""

    way: Continuation
    end: End
    past: Past
    persistence: Persistence | None
    badness: float
    may_slope: bool  # whether a slope is more than chance


class SeriesPart:
    """Waves and forecasts of :class:`mlayer.estimators.base.MLayerEstimator`."""

    _loss: str
    _inputs: Scale
    _outputs: Scale
    periods_: list[tuple[int, float]]
    # Of a series: how it continues; horizons, forecasts and absolute errors from origins in the past.
    way_: Continuation | None
    rolling_: tuple[Array, Array, Array] | None
    # Of one that grows at a constant rate: that of its logarithm, for each unit of its time.
    rate_: float | None
    # Shifts of its level: the last time before each, and what the level gains.
    shifts_: list[tuple[float, float]]
    # How far its level may wander, the distance of its moments, and whether that is a share of the forecast.
    floor_: tuple[Persistence, float, bool] | None

    @property
    def _clock(self) -> Watch:
        """Time and progress: the caller's, who set ``_watch``, or none."""
        return getattr(self, "_watch", None) or Watch()

    def _waves(self, make: selection.Maker, data: Tensors, recipe: Recipe) -> Fit | None:
        """The model of waves, if held-out rows favor it; see `mlayer.estimators.waves`."""
        wanted = getattr(self, "periodic", False)
        self.periods_, self.way_, self.rolling_, self.floor_, self.rate_ = [], None, None, None, None
        self.shifts_ = []
        along = self._wave_inputs(data.x, wanted)
        if not along:
            return None
        watch = self._clock
        if getattr(self, "_series", False) and len(along) == 1 and data.y.shape[1] == 1:
            return self._forecast(make, data, recipe, along[0])
        rows = data.some(SMALL_TABLE, recipe.seed).double()
        with watch.section(0.0, 0.4):
            found = self._wave_search(data if wanted is True else rows, along)
        if found is None:
            if wanted is True:
                warnings.warn("periodic=True, but no waves were found", ConvergenceWarning, stacklevel=4)
            return None
        if wanted is True:
            return self._wave_fit(found, data)
        if len(along) == 1:
            splits = selection.stretches(rows.x[:, along[0]], 5)
        else:
            generator = torch.Generator().manual_seed(recipe.seed)
            splits = [(~fold, fold) for fold in selection.random_folds(rows.y, 3, generator)]
        ours = theirs = level = 0.0
        for place, (train, test) in enumerate(splits):
            train_rows, test_rows = rows.part(train), rows.part(test)
            start, width = 0.4 + 0.6 * place / len(splits), 0.3 / len(splits)
            with watch.section(start, start + width):
                waves = self._wave_search(train_rows, along)
            ours += math.inf if waves is None else waves.loss(test_rows.rows)
            with watch.section(start + width, start + 2 * width):
                rival = self._rival(make, train_rows, recipe)
            if not is_auto(wanted):  # named inputs stay in their range without waves
                low, high = train_rows.x[:, along].amin(0), train_rows.x[:, along].amax(0)
                test_rows.x[:, along] = test_rows.x[:, along].clamp(low, high)
            theirs += loss_on(rival, test_rows, recipe.loss)
            level += last_level_loss(train_rows.rows, test_rows.rows, along)
        if ours > min(theirs, level):
            return None
        found = found if len(rows) == len(data) else self._wave_search(data, along)
        return None if found is None else self._wave_fit(found, data)

    def _forecast(self, make: selection.Maker, data: Tensors, recipe: Recipe, time: int) -> Fit | None:
        """The continuation of a series, if forecasts from its past favor it over a trained layer."""
        settled: Continuation | Literal[False] | None = getattr(self, "_way", None)  # of a fit to fewer rows
        if settled is False:
            return None
        watch, data = self._clock, data.double()
        with watch.section(0.0, 0.6):
            shifts = self._level_shifts(data, time)
            if shifts is not None:
                data = replace(data, y=torch.from_numpy(shifts.removed(data.rows, time).y))
            chosen = self._chosen(data, time, settled)
        way, end, past = chosen.way, chosen.end, chosen.past
        with watch.section(0.6, 0.9):
            if settled is None and self._rival_is_better(make, past, data, recipe, way):
                return None
        most = int(np.clip(_ROWS_OF_ORIGINS / len(data), *_ORIGINS))
        horizons, forecasts, errors = past.errors(way, end.base, most)
        unit = float(self._outputs.deviation[0])
        factor = past.factor
        grows = factor is not None and bool(factor.rates[time])
        if factor is not None and grows:
            self.rate_ = float(factor.rates[time] / self._inputs.deviation[time])
        if shifts is not None:
            days = shifts.times * float(self._inputs.deviation[time]) + float(self._inputs.mean[time])
            self.shifts_ = list(zip(days.tolist(), (shifts.sizes * unit).tolist(), strict=True))
        self.way_ = replace(way, grows=grows, scales=factor is not None and not grows)
        if chosen.persistence is not None and not self.way_.scales:  # groups have errors of different shares
            offset = float(self._outputs.mean[0]) / unit
            found, shares = floor_of(chosen.persistence, way, end, offset, has_factor=factor is not None)
            step = past.moments.step * float(self._inputs.deviation[time])
            self.floor_ = replace(found, deviation=found.deviation * (1.0 if shares else unit)), step, shares
        self.rolling_ = (
            horizons * float(self._inputs.deviation[time]),
            forecasts * unit + float(self._outputs.mean[0]),
            errors * unit,
        )
        return self._wave_fit(end.model(way), data, factor)

    def _level_shifts(self, data: Tensors, time: int) -> Shifts | None:
        """The shifts of the level of a series."""

        def search(rows: Rows) -> WaveFit | None:
            return self._wave_search(replace(data, y=torch.from_numpy(rows.y)), [time], unbounded=True)

        rows, offset = data.rows, float(self._outputs.mean[0] / self._outputs.deviation[0])
        if may_grow(rows, time, offset):  # a season that grows with the level is no shift
            return None
        day = 1 / float(self._inputs.deviation[time])
        return level_shifts(rows, Moments(rows.x, time), day, search)

    def _chosen(self, data: Tensors, time: int, settled: Continuation | None) -> _Chosen:
        """The way to continue a series; with a factor, of growth or of groups, where forecasts favor that."""
        offset = float(self._outputs.mean[0] / self._outputs.deviation[0])
        rows, moments = data.rows, Moments(data.x.numpy(), time)
        if settled is not None and len(data) > _ROWS_COMPARED_AGAIN:
            factor = None
            if settled.grows:
                factor = Multiplier.of_growth(rows, time, offset)
            elif settled.scales:
                factor = Multiplier.of_groups(rows, moments.groups, offset)
            return self._way_of(data, time, settled, factor)
        best = self._way_of(data, time, settled, None)
        if not best.past.losses:
            return best
        others = []
        if best.may_slope and may_grow(rows, time, offset):
            others.append(Multiplier.of_growth(rows, time, offset))
        if may_multiply(rows, moments.series(rows.x), moments.groups, offset):
            others.append(Multiplier.of_groups(rows, moments.groups, offset))
        for factor in others:
            other = self._way_of(data, time, settled, factor)
            price = PRICE_OF_A_DRIFT if factor.rates[time] else _PRICE_OF_FACTORS
            if other.past.losses and other.badness + price < best.badness:
                best = other
        return best

    def _way_of(
        self, data: Tensors, time: int, settled: Continuation | None, factor: Multiplier | None
    ) -> _Chosen:
        """The way to continue a series, or what is left of it without its factor."""
        watch, whole = self._clock, data.rows
        past, rows, flat = Past(whole, time, watch.check, factor), whole, data
        if factor is not None:
            rows = factor.removed(whole, time)
            flat = replace(data, y=torch.from_numpy(rows.y), weight=torch.from_numpy(rows.weight))
        with watch.section(0.0, 0.5):
            waves = self._waves_of_series(past, flat)
        known = ends(rows, past.moments, waves, {CALENDAR, FOUND})
        found = wandering_beside(known, waves, rows, past.moments)
        if settled is None or len(data) <= _ROWS_COMPARED_AGAIN:
            with watch.section(0.5, 1.0):
                self._compare(past, data, time)
        allowed, price = sound_ways(found, known[NONE]), price_of_ways(known)
        may_slope = any(way.drift and allowed(way) for way in every_way([NONE]))
        if self._has_a_year(known, found, rows, time):
            allowed = _with_waves
        if past.losses or settled is None or not allowed(settled):
            end = known.get(FOUND)
            sure = end.base if end is not None and is_determined(end) else None
            way = past.best(set(known), allowed, price, sure)
        else:
            way = settled
        badness = past.badness(way, price) if past.losses else math.inf
        end = known.get(way.season, known[NONE])
        # A short memory has followed a shift halfway, which then looks like a shift of the earlier rows.
        levels = [end.model(replace(way, memory=memory)) for memory in {way.memory, np.inf}]
        if any(has_shifted(model, rows, past.moments) for model in levels):
            way = way.from_the_last_rows
        return _Chosen(way, end, past, found, badness, may_slope)

    def _has_a_year(self, known: dict[str, End], found: Persistence | None, rows: Rows, time: int) -> bool:
        """Whether a year's wave, which early forecasts did not know, is sure by Schwarz's criterion too."""
        end = known.get(FOUND)
        if end is None or not is_determined(end):
            return False
        others = min(known[season].base.score for season in known if season != FOUND)
        day = 1 / float(self._inputs.deviation[time])
        return end.base.score < others - _SURELY_BETTER and is_year(end.base, rows, found, day)

    def _waves_of_series(self, past: Past, data: Tensors) -> WaveFit | None:
        """The waves to continue: those of the earlier rows where some of all rows would leave their range.

        A level that has shifted lately is imitated by slow waves, which explode after the last row.
        """
        along, rows = [past.moments.time], data.rows
        waves = self._wave_search(data, along, unbounded=True)
        calm = None if waves is None else bounded(waves, rows, along)
        if waves is None or calm is None or len(calm.frequencies) == len(waves.frequencies):
            return waves
        earlier = self._wave_search(data.part(torch.from_numpy(past.split(_SEARCHES[-1])[0])), along)
        calm = calm if earlier is None else bounded(solved(earlier, rows), rows, along)
        return calm if len(calm.frequencies) else None

    def _compare(self, past: Past, data: Tensors, time: int) -> None:
        """Forecasts from the past, as far as the time allows."""
        searched: dict[float, WaveFit | None] = {}

        def search(origin: float) -> WaveFit | None:
            start = max(each for each in _SEARCHES if each <= origin)
            if start not in searched:
                before = data.part(torch.from_numpy(past.split(start)[0]))
                if past.factor is not None:
                    rows = past.factor.again(before.rows, time).removed(before.rows, time)
                    y, weight = torch.from_numpy(rows.y), torch.from_numpy(rows.weight)
                    before = replace(before, y=y, weight=weight)
                searched[start] = self._wave_search(before, [time])
            return searched[start]

        try:
            past.compare(ORIGINS if len(data) <= SMALL_TABLE else _RIVAL_ORIGINS, search)
        except OutOfTimeError:
            return

    def _rival_is_better(
        self, make: selection.Maker, past: Past, data: Tensors, recipe: Recipe, way: Continuation
    ) -> bool:
        """Whether a trained layer, its time held at the last moment, forecasts the past better than ``way``.

        Without other inputs than groups it can only give a level, which ``way`` is chosen among.
        """
        time = past.moments.time
        if not set(range(data.x.shape[1])) - {time, *past.moments.groups}:
            return False
        ours = theirs = 0.0
        for origin in _RIVAL_ORIGINS:
            if origin not in past.losses or self._clock.left == 0.0:
                continue
            before, after = (data.part(torch.from_numpy(each)) for each in past.split(origin))
            rival = self._rival(make, before, recipe)
            after.x[:, time] = after.x[:, time].clamp(max=float(before.x[:, time].max()))
            theirs += loss_on(rival, after, recipe.loss)
            ours += past.losses[origin][way][0]
        return theirs < ours

    def _rival(self, make: selection.Maker, rows: Tensors, recipe: Recipe) -> MLayer:
        """A layer that is trained for a short while on some of the rows."""
        iterations = min(_WAVE_RIVAL_ITERATIONS, recipe.max_iter)
        trial = replace(recipe, solver="lbfgs", alpha=0.01, max_iter=iterations)
        rival, chosen = make().double(), rows.some(_WAVE_RIVAL_ROWS, recipe.seed)
        fit_layer(rival, chosen, trial, progress=Listener(self._clock))
        return rival

    def _wave_inputs(self, x: torch.Tensor, wanted: Any) -> list[int]:
        """The inputs that waves may run along."""
        if wanted is False or self._loss != "squared_error" or (isinstance(wanted, np.bool_) and not wanted):
            return []
        if not (is_auto(wanted) or isinstance(wanted, bool | np.bool_)):
            if wrong := [int(j) for j in wanted if int(j) >= x.shape[1]]:
                raise ArgumentError(
                    "periodic",
                    f"numbers of inputs below {x.shape[1]}",
                    str(wrong[0]),
                    "The first input is 0.",
                )
            return [int(j) for j in wanted]
        columns = range(x.shape[1])
        if x.shape[1] <= _FEW_INPUTS:
            return list(columns)
        return [j for j in columns if time_like(x[:, j].double().numpy())]

    def _wave_search(self, data: Tensors, along: list[int], *, unbounded: bool = False) -> WaveFit | None:
        """Waves found in ``data``; None if there are none, or no time to find them."""

        def tell(done: float) -> None:
            self._clock.tell(done)
            self._clock.check()

        try:
            found = find_waves(data.rows, along, tell)
        except OutOfTimeError:
            return None
        if found is not None and not unbounded:
            found = bounded(found, data.rows, along)
        return found if found is not None and len(found.frequencies) else None

    def _wave_fit(self, waves: WaveFit, data: Tensors, factor: Multiplier | None = None) -> Fit:
        """The layer of the waves that were found in ``data``."""
        periods = 2 * np.pi / waves.frequencies * self._inputs.deviation[waves.inputs]
        self.periods_ = sorted(zip(waves.inputs.tolist(), periods.tolist(), strict=True), key=lambda p: -p[1])
        return self._solved(waves, data, factor=factor)

    @staticmethod
    def _solved(
        waves: WaveFit, data: Tensors, loss_name: str = "squared_error", factor: Multiplier | None = None
    ) -> Fit:
        """The layer of a model that a linear solver has fitted."""
        layer = wave_layer(waves, data.x.shape[1])
        layer = layer if factor is None else factor.layer(layer)
        loss = loss_on(layer, data.double(), loss_name)
        record = {"epoch": 0, "step": 0, "loss": loss, "learning_rate": 0.0, "seconds": 0.0}
        result = TrainingResult([record], 0, loss, "epochs", "solved as a linear model", 0, 0.0)
        return Fit(layer, result, 1)

"""Whether a series wanders, and what that leaves of the ways to continue it.

A random walk shows waves and slopes that are chance: those of fewer than three cycles, those that do not make
its steps smaller, and lines that its steps may well have made. What is left over by the seasons that recur is
described by `mlayer.numerics.persistence`, which says how wide the intervals of forecasts must at least be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from mlayer.estimators.continuation import Continuation, End, Moments
from mlayer.estimators.waves import WaveFit, WaveRows, solved
from mlayer.numerics.arrays import Array
from mlayer.numerics.persistence import Persistence
from mlayer.numerics.waves import schwarz

# A wave recurs if the rows have this many of its cycles.
_CYCLES = 2.9
# The level of a walk is that of its last moments.
_LONGEST_MEMORY = 8.0
# Of what a walk without a slope may have made of a line, in standard errors.
_SIGMAS = 2.0


def recurring(waves: WaveFit | None, data: WaveRows) -> WaveFit | None:
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


def persistence_of(
    models: Mapping[str, WaveFit], data: WaveRows, moments: Moments
) -> tuple[str, Persistence] | None:
    """The model whose residuals, as a walk or an autoregression, are described best; its name and theirs.

    By Schwarz's criterion with the errors one step ahead: waves that follow a random walk have far smaller
    residuals than none, and hardly smaller steps.
    """
    best: tuple[float, str, Persistence] | None = None
    for name, model in models.items():
        found = Persistence.of(_residuals(model, data, moments))
        if found is None:
            continue
        count = model.parameters(data.y.shape[1], data.x.shape[1])
        score = schwarz(data.y.size * found.deviation**2, data.y.size, count)
        if best is None or score < best[0]:
            best = score, name, found
    return None if best is None else best[1:]


def _residuals(model: WaveFit, data: WaveRows, moments: Moments) -> list[Array]:
    """The series of residuals of each group, rows of one moment averaged."""
    left = (data.y - model.columns(data.x) @ model.coefficients).mean(axis=1)
    key = np.zeros(len(left), dtype=np.int64)
    if moments.groups:
        key = np.unique(data.x[:, moments.groups], axis=0, return_inverse=True)[1].reshape(-1)
    place = np.searchsorted(moments.values, data.x[:, moments.time])
    series: list[Array] = []
    for group in range(int(key.max()) + 1):
        rows = key == group
        counts = np.bincount(place[rows])
        series.append((np.bincount(place[rows], left[rows]) / np.maximum(counts, 1))[counts > 0])
    return series


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

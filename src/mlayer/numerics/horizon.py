"""Intervals of forecasts: how their errors grow with the horizon, from forecasts that started in the past.

The mean squared error at the horizon h is modeled as a + b h + c h^2 with a, b, c >= 0: noise, a random walk,
and a wrong slope. Errors over the root of that are compared as in :mod:`mlayer.numerics.conformal`: the
interval at h is the quantile of those ratios times the root at h. Where the errors of positive values are
better described as a share of the forecast, as in a series that grows, that form is used.

No interval is narrower than the wandering of the level demands (:mod:`mlayer.numerics.persistence`): of a
random walk there are only a few stretches as long as the horizon, and the forecast was chosen to do well on
them.

Errors at long horizons come from few stretches of the past: with k of them the quantile is widened as
Student's of 2 + k degrees of freedom is, compared with the normal one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlayer.numerics.arrays import Array
from mlayer.numerics.conformal import half_width
from mlayer.numerics.persistence import Persistence

_ROUNDS = 5
_KEPT = 500  # ratios in a file
# Shares of the forecast must describe the errors better by this mean log-likelihood.
_GAIN = 0.02
# Of the forecast, which the size of errors may be in proportion to.
_POWERS = (0.5, 1.0)
# Of the largest mean square: below that an error is rounding.
_TINY = 1e-6


@dataclass(frozen=True)
class HorizonErrors:
    """Errors by horizon."""

    growth: tuple[float, float, float]  # a, b, c
    scores: Array  # sorted absolute errors over their size at their horizon
    relative: float  # the power of the forecast that the size is in proportion to: 0, 1/2 of counts, 1
    span: float  # the longest horizon behind it
    # how far the level of the series may wander: no interval is narrower than that says
    floor: Persistence | None = None
    step: float = 1.0  # of the floor, in units of the horizons
    shares: bool = False  # whether the floor is a share of the forecast

    @classmethod
    def of(
        cls,
        horizons: Array,
        forecasts: Array,
        errors: Array,
        floor: tuple[Persistence, float, bool] | None = None,
        *,
        grows: bool = False,
        factors: bool = False,
    ) -> HorizonErrors:
        """Fit to absolute errors of forecasts of the past at positive horizons, (forecasts,) each.

        ``floor`` says how far the level may wander, how long its steps are, and whether that is a share of
        the forecast; ``grows`` whether positive forecasts grow at a constant rate, which makes errors shares
        of them; ``factors`` whether groups have factors, as counts do, whose errors are in proportion to the
        root of the forecast.
        """
        span = float(horizons.max())
        growth = _growth(horizons, errors)
        size = _size(horizons, growth)
        relative, best = 0.0, _likelihood(errors, size) + _GAIN
        for power in _POWERS if (forecasts > 0).all() else ():
            if not (factors if power < 1 else grows or (errors < forecasts).all()):
                continue
            shares = _growth(horizons, errors / forecasts**power)
            other = _size(horizons, shares) * forecasts**power
            if grows or _likelihood(errors, other) > best:
                growth, size, relative = shares, other, power
                best = _likelihood(errors, size)
        scores = np.sort(np.divide(errors, size, out=np.zeros(len(errors)), where=size > 0))
        return cls(growth, scores, relative, span, *(floor or ()))

    def half_widths(self, horizons: Array, forecasts: Array, coverage: float) -> Array:
        """Half of the intervals' widths at these horizons; those before the end of the rows count as 0."""
        from scipy import stats

        quantile = half_width(self.scores, coverage)
        if np.isinf(quantile):
            return np.full(len(horizons), np.inf)
        h = np.maximum(horizons, 0.0)
        size = _size(h, self.growth) * np.abs(forecasts) ** self.relative
        stretches = 2 + self.span / np.maximum(h, 1e-9 * self.span)
        side = (1 + coverage) / 2
        wider = stats.t.ppf(side, stretches) / stats.norm.ppf(side)
        found = np.asarray(quantile * size * wider)
        if self.floor is None:
            return found
        floor = self.floor.deviations(h / self.step) * (np.abs(forecasts) if self.shares else 1.0)
        return np.maximum(found, stats.norm.ppf(side) * floor)

    def as_json(self) -> dict[str, Any]:
        """A JSON object for a model file; of many scores, quantiles that are never smaller than theirs."""
        scores = self.scores
        if len(scores) > _KEPT:
            scores = scores[np.ceil(np.arange(1, _KEPT + 1) * len(scores) / _KEPT).astype(int) - 1]
        return {
            "growth": list(self.growth),
            "scores": [float(f"{score:.6g}") for score in scores],
            "relative": self.relative,
            "span": self.span,
            **({} if self.floor is None else {"floor": self.floor.as_json() | self._of_floor}),
        }

    @property
    def _of_floor(self) -> dict[str, float]:
        return {"step": self.step} | ({"shares": True} if self.shares else {})

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> HorizonErrors:
        """The inverse of :meth:`as_json`; KeyError, TypeError or ValueError if the entry is damaged."""
        a, b, c = (float(each) for each in entry["growth"])
        scores, span = np.asarray(entry["scores"], dtype=np.float64), float(entry["span"])
        relative = float(entry["relative"])
        sane = np.isfinite([a, b, c, span]).all() and min(a, b, c) >= 0 and span > 0
        sane = sane and relative in (0.0, *_POWERS)
        if not (sane and scores.ndim == 1 and np.isfinite(scores).all()):
            raise ValueError("errors by horizon")
        wandering, floor, step, shares = entry.get("floor"), None, 1.0, False
        if wandering is not None:
            floor, step = Persistence.from_json(wandering), float(wandering["step"])
            shares = bool(wandering.get("shares", False))
            if not 0 < step < np.inf:
                raise ValueError("the step of the persistence")
        return cls((a, b, c), np.sort(scores), relative, span, floor, step, shares)


def _growth(horizons: Array, errors: Array) -> tuple[float, float, float]:
    """The coefficients a, b, c by least squares, each squared error weighted by its deviation."""
    from scipy.optimize import nnls

    unit = float(horizons.max())
    powers = (horizons[:, None] / unit) ** np.arange(3)
    square = np.square(errors)
    mean = float(square.mean())
    if not mean > 0:
        return 0.0, 0.0, 0.0
    level = np.full(len(errors), mean)
    found = np.zeros(3)
    for _ in range(_ROUNDS):  # the deviation of a squared error is as large as its mean
        found = nnls(powers / level[:, None], square / level)[0]
        level = np.maximum(powers @ found, _TINY * mean)
    a, b, c = (found / unit ** np.arange(3)).tolist()
    return a, b, c


def _size(horizons: Array, growth: tuple[float, float, float]) -> Array:
    a, b, c = growth
    return np.asarray(np.sqrt(a + b * horizons + c * horizons * horizons))


def _likelihood(errors: Array, size: Array) -> float:
    """Mean log-likelihood of normal errors of this size."""
    if not (size > 0).all():
        return -np.inf
    return float(-np.mean(np.log(size) + np.square(errors / size) / 2))

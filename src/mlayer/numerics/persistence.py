"""The wandering of the level of a series: a random walk or a first-order autoregression, with noise.

The residuals e of a series are described as ARMA(1, 1),

    e(t) - m = phi (e(t - 1) - m) + a(t) - theta a(t - 1),        0 <= theta <= phi <= 1,

which is a level that follows an autoregression (phi < 1) or a random walk (phi = 1), seen through noise (Box,
Jenkins and Reinsel, "Time Series Analysis"). The least error of a linear forecast h steps ahead then has the
variance s^2 (1 + (phi - theta)^2 (1 + phi^2 + ... + phi^(2 h - 4))), and no interval may be narrower than
that says: forecasts from a few origins in the past see too few stretches to show how far a walk can go.

The residuals are those of a fitted line, which makes any walk look as if it came back to it: phi = 1 unless
the likelihood speaks against it as clearly as the test of Dickey and Fuller demands (J. Am. Stat. Assoc. 74,
1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from mlayer.numerics.arrays import Array

_PHIS = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 1.0)
_THETAS = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.87, 0.92, 0.95, 0.97, 0.985)
# Twice the log-likelihood ratio: the square of the 5% point of the test with a line, -3.41.
_RATIO = 11.6
_FEWEST = 12  # values
_MOST = 2000  # the last ones of each series
# A walk with less noise than this theta wanders visibly.
_VISIBLE = 0.75


@dataclass(frozen=True)
class Persistence:
    """A walk or an autoregression with noise."""

    phi: float  # 1 for a walk
    theta: float  # the larger, the more of a change is noise
    deviation: float  # of the errors one step ahead

    @property
    def wanders(self) -> bool:
        """Whether the level is a random walk that the noise does not hide."""
        return self.phi == 1.0 and self.theta <= _VISIBLE

    @property
    def step(self) -> float:
        """The deviation of a step of the level."""
        return self.deviation * (self.phi - self.theta)

    def deviations(self, steps: Array) -> Array:
        """Standard deviations of the least errors after these numbers of steps; at least one counts."""
        more = np.maximum(steps - 1.0, 0.0)
        square = self.phi**2
        growth = more if square == 1.0 else (1 - square**more) / (1 - square)
        return np.asarray(self.deviation * np.sqrt(1 + (self.phi - self.theta) ** 2 * growth))

    def deviation_of_line(self, count: int) -> float:
        """Standard deviation of the rise, first to last, of a line fitted to this many values without one.

        For an autoregression by its spectrum at frequency 0, as if it had no end; at most that of a walk.
        """
        walk = self.step * math.sqrt(1.2 * count)
        if self.phi == 1.0:
            return walk
        noise = self.deviation * (1 - self.theta) / (1 - self.phi) * math.sqrt(12 / count)
        return min(walk, noise) if self.step > 0 else noise

    @classmethod
    def of(cls, series: Sequence[Array]) -> Persistence | None:
        """Fitted to series with separate means; None where they are too short or constant."""
        parts = [each[-_MOST:] for each in series if len(each) >= _FEWEST]
        if not parts or not max(float(np.std(each)) for each in parts) > 0:
            return None
        count = sum(len(each) - 1 for each in parts)
        # Series of one length at once, (series, values).
        lengths = {len(each) for each in parts}
        blocks = [np.stack([each for each in parts if len(each) == length]) for length in sorted(lengths)]
        fits = []
        for phi, theta in product(_PHIS, _THETAS):
            if theta <= phi:
                square = sum(_squares(each, phi, theta) for each in blocks)
                fits.append((count * math.log(max(square / count, 1e-300)), phi, theta))
        best = min(fits)
        walk = min(fit for fit in fits if fit[1] == 1.0)
        if walk[0] - best[0] < _RATIO:
            best = walk
        return cls(best[1], best[2], math.exp(best[0] / count / 2))

    def as_json(self) -> dict[str, float]:
        """A JSON object for a model file."""
        return {"phi": self.phi, "theta": self.theta, "deviation": float(f"{self.deviation:.6g}")}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Persistence:
        """Read back from :meth:`as_json`; KeyError, TypeError or ValueError if it is damaged."""
        phi, theta, deviation = (float(entry[name]) for name in ("phi", "theta", "deviation"))
        if not (0 <= theta <= phi <= 1 and 0 <= deviation < math.inf):
            raise ValueError("persistence")
        return cls(phi, theta, deviation)


def _squares(values: Array, phi: float, theta: float) -> float:
    """The least sum of squared innovations after the first values, over the mean of each series."""
    from scipy.signal import lfilter

    change = values[:, 1:] - phi * values[:, :-1]
    found = np.asarray(lfilter([1.0], [1.0, -theta], change))
    if phi < 1.0:
        mean = np.asarray(lfilter([1.0], [1.0, -theta], np.full(change.shape[1], 1.0 - phi)))
        found = found - (found @ mean / (mean @ mean))[:, None] * mean
    return float(np.square(found).sum())

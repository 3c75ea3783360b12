"""Series that are multiples of one another, or grow at a constant rate: y = e^(r . x - s) z(x) - offset.

z is a series like any other, with seasons and errors of one size, and is continued as one
(`mlayer.estimators.continuation`). With r . x - s added to its diagonal, the matrix of z's layer has that
factor in its exponential, so that the product is an M-layer too (docs/theory/waves.md). The rates r are those
of the time, of growth, or of the groups: stores and products whose sales are a factor for the store times
one for the product need two numbers for each, where levels that add up need one for each pair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from mlayer.estimators.continuation import Moments, calendar, series_numbers
from mlayer.estimators.rows import Rows
from mlayer.nn import MLayer
from mlayer.numerics.arrays import Array, Flags

# Growth is tried if all rows together grow or shrink by this factor, and the logarithms are better described
# by a line than the values by this much of the logarithm of the likelihood.
_FACTOR = 1.5
_GAIN = 8.0
# The rate of this part of the rows, the last ones, is at least that part of that of all: growth that slows
# down, towards a saturation, would be continued far beyond it.
_LAST, _LASTING = 1 / 3, 0.7
# Groups have factors if the deviations inside the series grow with their means to this power at least: 0 if
# levels add up, 1/2 of counts, 1 of multiples.
_POWER = 0.3
# No mean of a group is below this part of the mean of all: its factor would be chance.
_LEAST_MEAN = 0.01
_ROUNDS = 25  # of the fit of factors, by Newton's method


@dataclass(frozen=True)
class Multiplier:
    """The factor of the targets of standardized rows.

    Attributes:
        rates: of its logarithm, for each unit of an input, (inputs,).
        start: what is subtracted from it.
        offset: what must be added to the standardized targets for the true ones, in their unit.
    """

    rates: Array
    start: float
    offset: float

    @classmethod
    def of_growth(cls, rows: Rows, time: int, offset: float) -> Multiplier:
        """The rate of the line through the logarithms of the targets, which must be positive.

        The factor is 1 at the last time.
        """
        rates = np.zeros(rows.x.shape[1])
        rates[time], _ = _line(rows, np.log(rows.y + offset), time)
        return cls(rates, float(rates[time] * rows.x[:, time].max()), offset)

    @classmethod
    def of_groups(cls, rows: Rows, groups: list[int], offset: float) -> Multiplier:
        """Factors of the groups: the maximum of the likelihood of counts with means that are their products.

        Targets must not be negative. The factors then have the right sums over each group (McCullagh and
        Nelder, "Generalized Linear Models", 1989), zeros or not.
        """
        # The likelihood depends on the sums over the rows of each series alone.
        series = series_numbers(rows.x, groups)
        first = np.unique(series, return_index=True)[1]
        columns = np.column_stack([np.ones(len(first)), rows.x[first][:, groups]])
        weight = np.bincount(series, rows.weight)
        truth = np.bincount(series, rows.weight * np.maximum(rows.y[:, 0] + offset, 0.0)) / weight
        mean = float(weight @ truth / weight.sum())
        logs = np.full(len(truth), np.log(mean))
        found = np.zeros(columns.shape[1])
        for _ in range(_ROUNDS):
            means = np.exp(logs)
            root = np.sqrt(weight * means)
            found = np.linalg.lstsq(columns * root[:, None], root * (logs + truth / means - 1), rcond=None)[0]
            logs = np.clip(columns @ found, np.log(mean * _LEAST_MEAN) - 5, np.log(mean / _LEAST_MEAN) + 5)
        rates = np.zeros(rows.x.shape[1])
        rates[groups] = found[1:]
        return cls(rates, float((rows.x @ rates).mean()), offset)

    def again(self, rows: Rows, time: int) -> Multiplier:
        """The same kind of factor, from these rows."""
        if self.rates[time]:
            return Multiplier.of_growth(rows, time, self.offset)
        return Multiplier.of_groups(rows, np.flatnonzero(self.rates).tolist(), self.offset)

    def factor(self, x: Array) -> Array:
        """(rows, inputs) -> (rows, 1)"""
        return np.asarray(np.exp(x @ self.rates - self.start))[:, None]

    def removed(self, rows: Rows, time: int) -> Rows:
        """The rows of z; of groups, large ones count for more, as their errors are smaller shares."""
        factor = self.factor(rows.x)
        weight = rows.weight if self.rates[time] else rows.weight * factor[:, 0]
        return Rows(rows.x, (rows.y + self.offset) / factor, weight / weight.mean())

    def applied(self, z: Array, x: Array) -> Array:
        """Standardized targets from z, (rows, 1) each."""
        return np.asarray(z * self.factor(x) - self.offset)

    @torch.no_grad()
    def layer(self, z: MLayer) -> MLayer:
        """The layer of the targets from that of z, in whose exponential the first entry is 1."""
        identity = torch.eye(z.matrix_size, dtype=torch.float64)
        readout = z.readout.clone()
        assert z.output_bias is not None
        readout[:, 0, 0] += z.output_bias
        return MLayer.from_weights(
            z.generators + torch.from_numpy(self.rates)[:, None, None] * identity,
            readout,
            matrix_bias=-self.start * identity,
            output_bias=torch.full_like(z.output_bias, -self.offset),
            structure=z.structure,
        )


def may_grow(rows: Rows, time: int, offset: float) -> bool:
    """Whether the targets are positive and their logarithms follow a line better than they do, to the end."""
    positive = rows.y + offset
    if not (positive > 0).all():
        return False
    slope, logs = _line(rows, np.log(positive), time)
    _, values = _line(rows, rows.y, time)
    if abs(slope) * np.ptp(rows.x[:, time]) < np.log(_FACTOR) or not min(logs, values) > 0:
        return False
    if _late_slope(rows, np.log(positive), time) / slope < _LASTING:
        return False
    # Of normal errors, those of the logarithms with the derivative of the logarithm (Box and Cox, 1964).
    gain = len(positive) / 2 * np.log(values / logs) - float(np.log(positive).sum())
    return bool(gain > _GAIN)


def _late_slope(rows: Rows, logs: Array, time: int) -> float:
    """The slope of the last rows, without the season of all: they may end anywhere in a season."""
    season = calendar(replace(rows, y=logs), Moments(rows.x, time))
    late = rows.x[:, time] >= np.quantile(rows.x[:, time], 1 - _LAST)
    columns = [np.ones(len(late)), rows.x, late, np.where(late, rows.x[:, time], 0.0)]
    if season is not None:
        columns.append(season.columns(rows.x)[:, 1 + rows.x.shape[1] + len(season.products) :])
    root = np.sqrt(rows.weight)[:, None]
    found = np.linalg.lstsq(np.column_stack(columns) * root, logs * root, rcond=None)[0][:, 0]
    return float(found[1 + time] + found[2 + rows.x.shape[1]])


def may_multiply(rows: Rows, series: Flags, groups: list[int], offset: float) -> bool:
    """Whether no target is negative, and the larger series, (series, rows), vary more."""
    truth = rows.y[:, 0] + offset
    # Standardized zeros are not zeros to the last bit.
    if len(series) < 2 or truth.min() < -1e-9 * np.abs(truth).max():
        return False
    means = np.array([truth[each].mean() for each in series])
    least = _LEAST_MEAN * means.mean()
    members = [rows.x[:, g] == side for g in groups for side in (rows.x[:, g].min(), rows.x[:, g].max())]
    if min(truth[each].mean() for each in members) < least or means.max() < _FACTOR * means.min():
        return False
    spreads = np.array([truth[each].std() for each in series])
    known = (spreads > 0) & (means > least)
    if known.sum() < 2 or not np.ptp(np.log(means[known])) > 0:
        return False
    return bool(np.polyfit(np.log(means[known]), np.log(spreads[known]), 1)[0] > _POWER)


def _line(rows: Rows, values: Array, time: int) -> tuple[float, float]:
    """The slope along the time of a linear model of all inputs, and its weighted sum of squares."""
    columns = np.column_stack([np.ones(len(rows.x)), rows.x])
    root = np.sqrt(rows.weight)[:, None]
    found = np.linalg.lstsq(columns * root, values * root, rcond=None)[0]
    left = (values - columns @ found) * root
    return float(found[1 + time, 0]), float(np.square(left).sum())

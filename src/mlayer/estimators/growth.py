"""Series that grow at a constant rate: y = e^(rate (t - end)) z(t) - offset.

z is a series like any other, with seasons and errors of one size, and is continued as one
(`mlayer.estimators.continuation`). With rate . t added to its diagonal, the matrix of z's layer has that
factor in its exponential, so that the product is an M-layer too (docs/theory/waves.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from mlayer.estimators.rows import Rows
from mlayer.nn import MLayer
from mlayer.numerics.arrays import Array

# Growth is tried if all rows together grow or shrink by this factor, and the logarithms are better described
# by a line than the values by this much of the logarithm of the likelihood.
_FACTOR = 1.5
_GAIN = 8.0
# The rate of this part of the rows, the last ones, is at least that part of that of all: growth that slows
# down, towards a saturation, would be continued far beyond it.
_LAST, _LASTING = 1 / 3, 0.7


@dataclass(frozen=True)
class GrowthRate:
    """The growth of the targets of standardized rows.

    Attributes:
        time: the input that is the time.
        offset: what must be added to the standardized targets for the true ones, in their unit.
        rate: of growth, for each unit of the time.
        end: the last time, at which the factor is 1.
    """

    time: int
    offset: float
    rate: float
    end: float

    @classmethod
    def of(cls, rows: Rows, time: int, offset: float) -> GrowthRate:
        """The rate of the line through the logarithms of the targets, which must be positive."""
        slope, _ = _line(rows, np.log(rows.y + offset), time)
        return cls(time, offset, slope, float(rows.x[:, time].max()))

    def factor(self, x: Array) -> Array:
        """(rows, inputs) -> (rows, 1)"""
        return np.asarray(np.exp(self.rate * (x[:, [self.time]] - self.end)))

    def removed(self, rows: Rows) -> Rows:
        """The rows of z."""
        return replace(rows, y=(rows.y + self.offset) / self.factor(rows.x))

    def applied(self, z: Array, x: Array) -> Array:
        """Standardized targets from z, (rows, 1) each."""
        return np.asarray(z * self.factor(x) - self.offset)

    @torch.no_grad()
    def layer(self, z: MLayer) -> MLayer:
        """The layer of the targets from that of z, in whose exponential the first entry is 1."""
        identity = torch.eye(z.matrix_size, dtype=torch.float64)
        generators, readout = z.generators.clone(), z.readout.clone()
        generators[self.time] += self.rate * identity
        assert z.output_bias is not None
        readout[:, 0, 0] += z.output_bias
        return MLayer.from_weights(
            generators,
            readout,
            matrix_bias=-self.rate * self.end * identity,
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
    late = rows.x[:, time] >= np.quantile(rows.x[:, time], 1 - _LAST)
    last = Rows(rows.x[late], rows.y[late], rows.weight[late])
    if _line(last, np.log(last.y + offset), time)[0] / slope < _LASTING:
        return False
    # Of normal errors, those of the logarithms with the derivative of the logarithm (Box and Cox, 1964).
    gain = len(positive) / 2 * np.log(values / logs) - float(np.log(positive).sum())
    return bool(gain > _GAIN)


def _line(rows: Rows, values: Array, time: int) -> tuple[float, float]:
    """The slope along the time of a linear model of all inputs, and its weighted sum of squares."""
    columns = np.column_stack([np.ones(len(rows.x)), rows.x])
    root = np.sqrt(rows.weight)[:, None]
    found = np.linalg.lstsq(columns * root, values * root, rcond=None)[0]
    left = (values - columns @ found) * root
    return float(found[1 + time, 0]), float(np.square(left).sum())

"""The effect of rounding and norms on a margin, for one rival or for several at once.

The formulas are the same for one number and for an array with one entry per rival.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from mlayer.certificates.problem.model import growth_of
from mlayer.numerics.arrays import Array, Indices

if TYPE_CHECKING:
    from mlayer.certificates.problem.expansion import Row

Number = TypeVar("Number", float, Array)


class Margins(Generic[Number]):
    """Margins of the label, with the sizes that their rounding is relative to.

    Attributes:
        row: the input.
        margin: f_0, as computed.
        nuclear: ||W||_nuc in the gauge.
        readout_factor: theorem 2's min(||W||_nuc, ||W||_2 (delta_F / delta_2)^2).
        biases: |V_c| + |V_j|
        readout_size: ||W||_F n^(1/2)
    """

    row: Row
    margin: Number
    nuclear: Number
    readout_factor: Number
    biases: Number
    readout_size: Number

    @property
    def growth(self) -> float:
        """Bound of ||exp(M)||_2 in the gauge."""
        return growth_of(self.row.mu)

    @property
    def size(self) -> Number:
        """Bound of |W : exp(M)| and of every product that it is computed from, in the layer's own basis."""
        return self.readout_size * self.row.growth

    @property
    def moved(self) -> Number:
        """A bound of the change of W : exp(M) by the error of M; its derivatives likewise, per unit of N."""
        return self.nuclear * (self.row.off * growth_of(max(self.row.mu, 0.0)))

    def value_slack(self, eps: float) -> Number:
        """Rounding of f_0 and of the linear term over the region of radius eps, and of the basis.

        The radius must be finite: what rounding did to the inputs' matrices grows with it.
        """
        row, constants = self.row, self.row.model.constants
        size, moved = self.size, self.moved
        value = (self.biases + size) * row.unit + moved
        if eps == 0:
            return value
        linear = (size * row.unit + moved * constants.condition) * (eps * constants.sum_F)
        return value + linear + self.basis_slack(eps)

    def basis_slack(self, eps: float) -> Number:
        """The error that E, the error of N in its coordinates, causes in the terms of the series: lemma 5."""
        row, constants = self.row, self.row.model.constants
        error = eps * constants.basis_error * constants.condition
        return self.nuclear * (2 * error * row.growth_within(row.radius(eps), error))


class RivalMargins(Margins[Array]):
    """The margins of one row over several rivals, one entry each.

    Args:
        row: the row.
        classes: (k,), the rivals.
        gradient: (k, d), of the margins in the directions T_a.
    """

    def __init__(self, row: Row, classes: Indices, gradient: Array) -> None:
        weights = row.model.weights
        norms = row.model.readout_norms(row.label)
        self.row, self.classes, self.gradient = row, classes, gradient
        self.nuclear, self.readout_factor = norms.nuclear[classes], norms.factor[classes]
        self.readout_size = norms.size[classes]
        own, others = weights.V[row.label], weights.V[classes]
        self.biases: Array = np.abs(own) + np.abs(others)
        W = row.model.differences(row.label).reshape(len(weights.S), -1)
        products: Array = (W @ row.E.reshape(-1))[classes]
        self.margin: Array = own - others + products
        self.slopes: Array = gradient @ weights.rows.T  # (k, m)

    def take(self, places: Indices) -> RivalMargins:
        """The margins over some of the rivals."""
        part = copy(self)
        for name in (
            "classes",
            "gradient",
            "nuclear",
            "readout_factor",
            "readout_size",
            "biases",
            "margin",
            "slopes",
        ):
            setattr(part, name, getattr(self, name)[places])
        return part

    def linear_term(self, eps: float) -> Array:
        """The exact minimum of each linear term over the region.  (k,)"""
        region = self.row.region
        if region.low is None:
            length = (
                np.linalg.norm(self.slopes, axis=1) if region.norm == "l2" else np.abs(self.slopes).sum(1)
            )
            result: Array = -eps * length
            return result
        low, high = self.row.interval(eps)
        least: Array = np.minimum(self.slopes * low, self.slopes * high).sum(1)
        return least

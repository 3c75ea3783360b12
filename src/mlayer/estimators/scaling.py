"""Standardisation inside the estimators, and its removal: a plain layer that acts on raw inputs.

With x = (raw - m) / s the features U x + u are (U / s) raw + (u - U (m / s)); with outputs r p + c the
readout is r S and the output bias r V + c. So a standardised M-layer is an M-layer on raw inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from mlayer.nn import MLayer

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scale:
    """Columns to mean 0 and deviation 1.

    Attributes:
        mean: (columns,).
        deviation: (columns,); 1 where a column is constant.
    """

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, values: Array, weight: Array) -> Scale:
        """The scale of the columns of ``values`` with weighted rows."""
        share = weight / weight.sum()
        mean = share @ values
        deviation = np.sqrt(share @ np.square(values - mean))
        # What rounding leaves of a constant column is not a signal.
        noise = 10 * np.finfo(np.float64).eps * np.abs(values).max(axis=0, initial=0.0) * np.sqrt(len(values))
        return cls(mean, np.where(deviation > noise, deviation, 1.0))

    @classmethod
    def identity(cls, columns: int) -> Scale:
        """The scale that changes nothing."""
        return cls(np.zeros(columns), np.ones(columns))

    def apply(self, values: Array) -> Array:
        """Raw to standard."""
        return (values - self.mean) / self.deviation

    def undo(self, values: Array) -> Array:
        """Standard to raw."""
        return values * self.deviation + self.mean


@torch.no_grad()
def raw_layer(layer: MLayer, inputs: Scale, outputs: Scale) -> MLayer:
    """The layer that does on raw inputs what ``layer`` does between the two scales, in float64."""
    mean, deviation = torch.from_numpy(inputs.mean), torch.from_numpy(inputs.deviation)
    gain, shift = torch.from_numpy(outputs.deviation), torch.from_numpy(outputs.mean)
    generators, readout = layer.generators.double(), layer.readout.double()
    bias = layer.matrix_bias
    matrix_bias = None if bias is None else bias.double()
    embedding, embedding_bias = None, None
    if layer.embedding is None:
        generators = generators / deviation[:, None, None]
        shift_of_matrix = torch.tensordot(mean, generators, 1)
        matrix_bias = -shift_of_matrix if matrix_bias is None else matrix_bias - shift_of_matrix
    else:
        embedding = layer.embedding.double() / deviation
        embedding_bias = -(embedding @ mean)
        if layer.embedding_bias is not None:
            embedding_bias = embedding_bias + layer.embedding_bias.double()
    output_bias = shift if layer.output_bias is None else gain * layer.output_bias.double() + shift
    return MLayer.from_weights(
        generators,
        readout * gain[:, None, None],
        matrix_bias=matrix_bias,
        output_bias=output_bias,
        embedding=embedding,
        embedding_bias=embedding_bias,
        structure=layer.structure,
    )

"""Standardization inside the estimators, and its removal: a plain layer that acts on raw inputs.

With x = (raw - m) / s the features U x + u are (U / s) raw + (u - U (m / s)); with outputs r p + c the
readout is r S and the output bias r V + c. So a standardized M-layer is an M-layer on raw inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from mlayer.errors import ArgumentError
from mlayer.nn import MLayer
from mlayer.numerics.arrays import Array
from mlayer.numerics.torch_memory import in_torch_memory


@dataclass(frozen=True)
class Scale:
    """Columns to mean 0 and deviation 1."""

    mean: Array  # (columns,)
    deviation: Array  # (columns,); 1 where a column is constant (its size, if that is beyond 2^53)

    @classmethod
    def of(cls, values: Array, weight: Array, name: str) -> Scale:
        """The scale of the columns of ``values`` with weighted rows.

        Each column is first divided by the power of two next to its largest magnitude, which is exact, so
        that squares neither overflow nor vanish. ``name`` is that of the argument that they come from.
        """
        share = weight / weight.sum()
        exponent = _exponent(np.abs(values).max(axis=0, initial=0.0))
        values = np.ldexp(values, -exponent)
        mean = share @ values
        deviation = np.sqrt(share @ np.square(values - mean))
        # What rounding leaves of a constant column is not a signal.
        noise = 10 * np.finfo(np.float64).eps * np.abs(values).max(axis=0, initial=0.0) * np.sqrt(len(values))
        varies = deviation > noise
        raw = np.ldexp(deviation, exponent)
        tiny = np.finfo(np.float64).tiny
        if (lost := varies & (raw < tiny)).any():
            column = int(lost.argmax())
            raise ArgumentError(
                f"column {column} of {name}",
                f"constant or of a standard deviation of at least {tiny:.3g}, where float64 is still precise",
                f"{raw[column]:.3g}",
                "Multiply it by a power of ten.",
            )
        # A constant whose rounding is coarser than 1 (from 2^53) is measured by its own size.
        constant = np.where(exponent >= 53, np.ldexp(1.0, exponent), 1.0)
        return cls(np.ldexp(mean, exponent), np.where(varies, raw, constant))

    @classmethod
    def identity(cls, columns: int) -> Scale:
        """The scale that changes nothing."""
        return cls(np.zeros(columns), np.ones(columns))

    def apply(self, values: Array) -> Array:
        """Raw to standard; infinite where float64 cannot hold it."""
        # In units of the deviation's power of two, so that the difference of large numbers is finite.
        exponent = _exponent(self.deviation)
        with np.errstate(over="ignore"):
            difference = np.ldexp(values, -exponent) - np.ldexp(self.mean, -exponent)
            return np.asarray(difference / np.ldexp(self.deviation, -exponent))

    def undo(self, values: Array) -> Array:
        """Standard to raw; infinite where float64 cannot hold it."""
        exponent = _exponent(self.deviation)
        with np.errstate(over="ignore", invalid="ignore"):
            product = values * np.ldexp(self.deviation, -exponent)
            return np.asarray(np.ldexp(product + np.ldexp(self.mean, -exponent), exponent))


def _exponent(magnitude: Array) -> NDArray[np.int32]:
    """The e with 2^e <= magnitude < 2^(e + 1); -1 for zero."""
    return np.asarray(np.frexp(magnitude)[1] - 1, dtype=np.int32)


@torch.no_grad()
def raw_layer(layer: MLayer, inputs: Scale, outputs: Scale) -> MLayer:
    """The layer that does on raw inputs what ``layer`` does between the two scales, in float64.

    Raises:
        ArgumentError: if a weight in raw units is beyond float64.
    """
    mean, deviation = in_torch_memory(inputs.mean), in_torch_memory(inputs.deviation)
    gain, shift = in_torch_memory(outputs.deviation), in_torch_memory(outputs.mean)
    generators, readout = layer.generators.double(), layer.readout.double()
    bias = layer.matrix_bias
    matrix_bias = None if bias is None else bias.double()
    embedding, embedding_bias = None, None
    if layer.embedding is None:
        generators = generators / deviation[:, None, None]
        shift_of_matrix = torch.tensordot(mean / deviation, layer.generators.double(), 1)
        matrix_bias = -shift_of_matrix if matrix_bias is None else matrix_bias - shift_of_matrix
    else:
        embedding = layer.embedding.double() / deviation
        embedding_bias = -(layer.embedding.double() @ (mean / deviation))
        if layer.embedding_bias is not None:
            embedding_bias = embedding_bias + layer.embedding_bias.double()
    output_bias = shift if layer.output_bias is None else gain * layer.output_bias.double() + shift
    readout = readout * gain[:, None, None]
    of_inputs = [w for w in (generators, matrix_bias, embedding, embedding_bias) if w is not None]
    for name, scale, weights in (("X", inputs, of_inputs), ("y", outputs, [readout, output_bias])):
        if not all(bool(w.isfinite().all()) for w in weights):
            raise ArgumentError(
                f"the units of {name}",
                "such that float64 holds the weights of a layer on raw numbers",
                f"standard deviations from {scale.deviation.min():.3g} to {scale.deviation.max():.3g}",
                f"Fit to {name} in other units; predict works as it is.",
            )
    return MLayer.from_weights(
        generators,
        readout,
        matrix_bias=matrix_bias,
        output_bias=output_bias,
        embedding=embedding,
        embedding_bias=embedding_bias,
        structure=layer.structure,
    )

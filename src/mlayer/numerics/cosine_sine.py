"""Cosines and sines of many angles: torch computes several at once, NumPy one after the other in float64."""

from __future__ import annotations

from mlayer.numerics.arrays import Array
from mlayer.numerics.torch_memory import in_torch_memory


def cosine_sine(angles: Array) -> tuple[Array, Array]:
    """The cosines and the sines of angles of any shape, float64.

    >>> import numpy as np
    >>> cosine, sine = cosine_sine(np.array([0.0, np.pi / 2]))
    >>> cosine.round(15).tolist(), sine.tolist()
    ([1.0, 0.0], [0.0, 1.0])
    """
    tensor = in_torch_memory(angles)
    return tensor.cos().numpy(), tensor.sin().numpy()

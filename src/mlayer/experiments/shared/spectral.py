"""An M-layer from the frequencies of the data: rotations at the waves that `mlayer.numerics` finds.

Gradient descent on a frequency works only from within about one period over the range of the data; from
further away the error has a plateau. So the frequencies are found first, by a spectrum and least squares, and
the layer is compiled from them. The paper's claim is that training finds them "without feature
engineering"; a start from a spectrum is not that, and the experiments say which of the two they show.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mlayer.nn.layer import MLayer
from mlayer.numerics.arrays import Array
from mlayer.numerics.find_waves import find_waves
from mlayer.numerics.waves import Waves


class WithConstant(nn.Module):
    """An M-layer or a DNN on (x, 1): the paper's two inputs for functions of one number.

    >>> import torch, mlayer
    >>> model = WithConstant(mlayer.MLayer(2, 1, 6, 2, matrix_bias=False))
    >>> model(torch.rand(5, 1)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([5, 1]), 115)
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """(N, 1) -> (N, 1)"""
        outputs: Tensor = self.model(torch.cat([x, torch.ones_like(x)], -1))
        return outputs


def waves_of(x: Array, y: Array, most: int) -> Waves | None:
    """The waves around a constant, at most ``most``, or None."""
    import numpy as np

    return find_waves(x, y, fixed=np.ones((len(x), 1)), most=most)


def spectral_layer(waves: Waves, matrix_size: int) -> WithConstant:
    """The M-layer of (x, 1) with d = 2 and no matrix bias that is a constant and these waves, in float64.

    M turns at the frequencies of the waves, at most ``matrix_size // 2``, and grows at their rates, a plane
    for each; the directions that are left decay, and nothing is read from them.
    """
    n = matrix_size
    T = torch.zeros(2, n, n, dtype=torch.float64)
    S = torch.zeros(1, n, n, dtype=torch.float64)
    T[0].diagonal().sub_(1.0)
    for k in range(len(waves)):
        a, b = 2 * k, 2 * k + 1
        growth, w = float(waves.growth[k, 0]), float(waves.frequencies[k, 0])
        T[0, a, a] = T[0, b, b] = growth
        T[0, b, a], T[0, a, b] = w, -w
        S[0, a, a], S[0, b, a] = float(waves.cosines[k, 0]), float(waves.sines[k, 0])
    layer = MLayer.from_weights(
        T,
        S,
        embedding=torch.eye(2, dtype=torch.float64),
        embedding_bias=torch.zeros(2, dtype=torch.float64),
        output_bias=torch.tensor([float(waves.linear[0, 0])], dtype=torch.float64),
    )
    return WithConstant(layer)

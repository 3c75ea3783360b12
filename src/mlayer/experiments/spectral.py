"""A start for periodic functions: frequencies from the spectrum of the data, amplitudes by least squares.

Gradient descent on a frequency works only from within about one period over the range of the data; from
further away the error has a plateau. The spectrum shows the frequencies to half a bin without any descent.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mlayer.nn.layer import MLayer


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


def strongest_frequencies(y: Tensor, spacing: float, count: int) -> list[float]:
    """The ``count`` highest peaks of the spectrum of evenly spaced samples, in cycles, strongest first.

    >>> import torch
    >>> t = torch.arange(0, 2, 1e-3, dtype=torch.float64)
    >>> y = 1.5 * torch.cos(2 * math.pi * 4 * t + 1) + 6 * torch.cos(2 * math.pi * 7 * t)
    >>> strongest_frequencies(y, 1e-3, 2)
    [7.0, 4.0]
    """
    power = torch.fft.rfft(y - y.mean()).abs()
    peak = torch.zeros_like(power, dtype=torch.bool)
    peak[1:-1] = (power[1:-1] > power[:-2]) & (power[1:-1] >= power[2:])
    order = torch.where(peak, power, torch.zeros_like(power)).argsort(descending=True)[:count]
    return [round(k / (len(y) * spacing), 9) for k in order.tolist()]


def spectral_start(
    x: Tensor, y: Tensor, *, matrix_size: int, frequencies: list[float], seed: int, noise: float = 0.01
) -> WithConstant:
    """An M-layer of (x, 1) with d = 2 whose M turns at ``frequencies``; the other directions decay.

    Args:
        x: float64 (N, 1).
        y: float64 (N, 1).
        matrix_size: n, at least two for each frequency.
        frequencies: in cycles.
        seed: of the noise.
        noise: standard deviation, on every weight of M, so that no direction is exactly free of the others.
    """
    n = matrix_size
    generator = torch.Generator().manual_seed(seed)
    layer = MLayer(2, 1, n, 2, matrix_bias=False, generator=generator, dtype=torch.float64)
    T = noise * torch.randn(2, n, n, generator=generator, dtype=torch.float64)
    T[0].diagonal().sub_(1.0)
    for k, frequency in enumerate(frequencies):
        a, b = 2 * k, 2 * k + 1
        T[0, a, a] += 1.0
        T[0, b, b] += 1.0
        T[0, a, b] -= 2 * math.pi * frequency
        T[0, b, a] += 2 * math.pi * frequency
    with torch.no_grad():
        assert layer.embedding is not None
        assert layer.embedding_bias is not None
        assert layer.output_bias is not None
        layer.free_generators.copy_(T)
        layer.embedding.copy_(torch.eye(2))
        layer.embedding_bias.zero_()
        inputs = torch.cat([x, torch.ones_like(x)], 1)
        E = layer.exponential(inputs).flatten(1)
        E = torch.cat([E, torch.ones_like(x)], 1)  # (N, n n + 1)
        # A ridge, because entries of the exponential are nearly dependent.
        H = E.mT @ E / len(x)
        H.diagonal().add_(1e-8 * float(H.diagonal().mean()))
        solution = torch.linalg.solve(H, E.mT @ y / len(x))
        layer.readout.copy_(solution[:-1].reshape(1, n, n))
        layer.output_bias.copy_(solution[-1])
    return WithConstant(layer)

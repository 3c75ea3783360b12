"""A linear map behind a front: the end of the networks that M-layers are compared with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mlayer.certificates.boxes.enclosed import gamma
from mlayer.certificates.linalg import VANISHED


class LinearEnd:
    """Functions below combinations of the outputs of a linear map in float64: the combinations themselves."""

    def __init__(self, end: nn.Linear) -> None:
        self._weight = end.weight.detach()
        self._bias = self._weight.new_zeros(len(self._weight)) if end.bias is None else end.bias.detach()

    def lower_planes(self, low: Tensor, high: Tensor, C: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Slopes C W and constants C b, the rounding of both taken off the constants."""
        off = 2 * gamma(C.shape[1])
        size = torch.maximum(low.abs(), high.abs())
        error = off * (size @ (C.abs() @ self._weight.abs()).mT + C.abs() @ self._bias.abs()) + VANISHED
        slopes = (C @ self._weight).expand(len(low), -1, -1)
        return [(slopes, C @ self._bias - error)]

"""Networks that end in a linear map: what networks that end in an M-layer are compared with.

docs/theory/certificates-networks.md. Only the end differs: the functions below its margins are the margins.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from mlayer.certificates.boxes.enclosed import gamma
from mlayer.certificates.linalg import VANISHED
from mlayer.certificates.networks.relax import Box, Functional, Relaxed
from mlayer.certificates.networks.steps import read_front


class LinearNetwork(nn.Module):
    """A front and the linear map behind it, in float64; inputs are flat.

    Args:
        model: plain modules of torch, a Linear last; arguments are not checked.
        shape: of one input, without the batch.
    """

    def __init__(self, model: nn.Sequential, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.whole = deepcopy(model).double().eval().requires_grad_(False)
        *front, end = self.whole
        assert isinstance(end, nn.Linear)
        self.shape, self.out_features, self._end = shape, end.out_features, end
        self.in_features = int(torch.Size(shape).numel())
        self.steps = read_front(front, shape, end.in_features)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs."""
        outputs: Tensor = self.whole(x.reshape(-1, *self.shape))
        return outputs

    def margins(self, low: Tensor, high: Tensor, labels: Tensor, effort: str) -> Tensor:
        """Lower bounds of output[label] - output[j] over boxes; inf for j = label.  (rows, classes)

        The efforts are those of `NetworkCertifier`.
        """

        def lower(part: Relaxed, C: Tensor) -> Tensor:
            below = margin_functions(self._end, part.features, C)
            near = effort == "intervals"
            found = below.minimum(part.features) if near else part.lower(below, len(part.steps))
            return found.nan_to_num(nan=-torch.inf, neginf=-torch.inf)

        relaxed = Relaxed(self.steps, Box(low, high), carry=effort == "boxes")
        return relaxed.margins(labels, self.out_features, lower)


def margin_functions(end: nn.Linear, box: Box, C: Tensor) -> Functional:
    """C (W h + b) as functions of h in a box, the rounding of C W and C b taken off the constants."""
    weight = end.weight.detach()
    bias = weight.new_zeros(len(weight)) if end.bias is None else end.bias.detach()
    off = 2 * gamma(C.shape[1])
    error = off * (box.size @ (C.abs() @ weight.abs()).mT + C.abs() @ bias.abs()) + VANISHED
    return Functional((C @ weight).expand(len(box.low), -1, -1), C @ bias - error)

"""Cross-entropy on interval bounds through a network: certified training.

The box of inputs becomes a box of features (`interval_bounds`); over it the head's margins have
lower bounds: of an M-layer those of `mlayer.certificates.CertifiedLoss` (first order, the rest by norms), of
a linear map its exact minima. The radius grows from 0 while training (Gowal et al., arXiv:1810.12715).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mlayer.certificates import CertifiedLoss
from mlayer.experiments.shared.interval_network import interval_bounds
from mlayer.experiments.shared.robust_loss import box_of
from mlayer.nn import MLayer


class BoundedNetwork(nn.Module):
    """A network of flat images with bounds of its margins; it counts the batches of its training.

    Args:
        network: for images, colors first; ends in an M-layer or a linear map.
        shape: (height, width, colors) of the images; flat ones have this order.

    Attributes:
        bound: of the M-layer, with weights of the features that are trained too; None for a linear end.
        batches: of training seen so far; in the state, so that a resumed run knows it.
    """

    batches: Tensor

    def __init__(self, network: nn.Sequential, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.network, self.shape = network, shape
        end = network[-1]
        self.bound = CertifiedLoss(end.in_features, box=None) if isinstance(end, MLayer) else None
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """(b, h w c) -> (b, classes)"""
        outputs: Tensor = self.network(as_images(x, self.shape))
        return outputs

    def plain(self) -> nn.Sequential:
        """The network itself, of images."""
        return self.network

    def margins(self, x: Tensor, y: Tensor, eps: float) -> Tensor:
        """Lower bounds of output[label] - output[j] within eps and [0, 1]; 0 for j = label.  (b, classes)"""
        low, high = box_of(as_images(x, self.shape), eps)
        *front, end = self.network
        center, reach = interval_bounds(front, low, high)
        if self.bound is not None:
            assert isinstance(end, MLayer)
            return self.bound.margins_over(end, center, reach, y)
        assert isinstance(end, nn.Linear)
        difference = end.weight[y][:, None] - end.weight  # (b, classes, features)
        value = (difference @ center[..., None])[..., 0] + (end.bias[y][:, None] - end.bias)
        return value - (difference.abs() @ reach[..., None])[..., 0]


def as_images(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Flat images of (height, width, colors) as (b, colors, height, width)."""
    return x.view(-1, *shape).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class IntervalCrossEntropy:
    """Cross-entropy of the outputs and of the margins' lower bounds within eps, mixed.

    In evaluation mode only the bounds count, and the outputs are scores of which the label's is the largest
    where every margin is positive: their accuracy is the certified one, by these bounds.
    """

    eps: float  # the radius at the end of the ramp
    test_eps: float  # the radius in evaluation mode
    start: int  # training batches with radius 0
    ramp: int  # training batches over which the radius then grows to eps
    # the share of the bounds in the loss at the end of the ramp; it grows with the radius
    bounded: float = 0.5

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs and the loss of each example."""
        assert isinstance(model, BoundedNetwork)
        if not model.training:
            scores = -model.margins(x, y, self.test_eps)
            return scores, cross_entropy(scores, y, reduction="none")
        part = self.part(int(model.batches))
        model.batches += 1
        outputs = model(x)
        losses = cross_entropy(outputs, y, reduction="none")
        if part == 0:
            return outputs, losses
        scores = -model.margins(x, y, part * self.eps)
        share = part * self.bounded
        return outputs, (1 - share) * losses + share * cross_entropy(scores, y, reduction="none")

    def part(self, batches: int) -> float:
        """The share of the radius that applies after this many batches.

        >>> [IntervalCrossEntropy(0.1, 0.1, 10, 20).part(batches) for batches in (0, 10, 20, 30, 99)]
        [0.0, 0.0, 0.5, 1.0, 1.0]
        """
        return min(1.0, max(0, batches - self.start) / max(1, self.ramp))

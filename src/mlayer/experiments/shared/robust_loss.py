"""Adversarial training for certificates: cross-entropy at the worst corner that a few gradient steps find.

On small boxes an M-layer of low degree is nearly linear, so one to three steps of the gradient's sign find
nearly the worst point, at two to four times the cost of plain training. On large ones the last corner may be
better than the points before it: training would learn to make it so, and nothing else. There the worst point
of the whole path counts. `mlayer.certificates` then proves what the training only made likely.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from mlayer.nn import MLayer


class PixelModel(nn.Module):
    """A classifier of pixels in [0, 1] on standardized colors; it counts the batches of its training.

    Args:
        body: an MLayer or a linear layer, on standardized inputs.
        mean: (inputs,), what becomes 0.
        deviation: (inputs,), what becomes 1 above that.
        basis: of standardized images, in which the body reads them; that of pixels if None.

    Attributes:
        batches: of training seen so far; in the state, so that a resumed run knows it.
    """

    batches: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(
        self, body: nn.Module, mean: Tensor, deviation: Tensor, basis: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.body = body
        self.basis = nn.Identity() if basis is None else basis
        self.register_buffer("scale", 1 / deviation, persistent=False)
        self.register_buffer("offset", -mean / deviation, persistent=False)
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """(b, inputs) -> (b, classes)"""
        outputs: Tensor = self.body(self._standardized(x))
        return outputs

    def unwatched(self, x: Tensor) -> Tensor:
        """The same, unseen by the activity penalty."""
        standard = self._standardized(x)
        if not isinstance(self.body, MLayer):
            outputs: Tensor = self.body(standard)
            return outputs
        E = self.body.exponential(standard)
        return linear(E.flatten(-2), self.body.readout.flatten(1), self.body.output_bias)

    def _standardized(self, x: Tensor) -> Tensor:
        standard: Tensor = self.basis(torch.addcmul(self.offset, x, self.scale))
        return standard


@dataclass(frozen=True)
class RobustCrossEntropy:
    """Cross-entropy at the end of ``steps`` gradient steps within eps (L-infinity), cut to [0, 1]."""

    eps: float  # the radius at the end of the ramp
    steps: int = 1  # of the attack, each to a corner of the box
    ramp: int = 0  # training batches over which eps grows from 0; 0 for none
    worst_of_way: bool = False  # take the worst of the middle and all corners on the way, not the last corner

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs and the loss of each example."""
        assert isinstance(model, PixelModel)
        if not model.training:
            outputs = model(x)
            return outputs, cross_entropy(outputs, y, reduction="none")
        part = min(1.0, float(model.batches) / self.ramp) if self.ramp else 1.0
        model.batches += 1
        low, high = box_of(x, part * self.eps)
        find = worst_of_way if self.worst_of_way else last_corner
        worst = find(model, y, low, high, self.steps)
        outputs = model(worst)
        return outputs, cross_entropy(outputs, y, reduction="none")


def box_of(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The ends of the box of radius eps around x, cut to [0, 1]."""
    return (x - eps).clamp_(min=0), (x + eps).clamp_(max=1)


def last_corner(model: PixelModel, y: Tensor, low: Tensor, high: Tensor, steps: int) -> Tensor:
    """The corner that steps along the gradient's signs reach from the middle of the box."""
    point = (low + high) / 2
    for _ in range(steps):
        _, gradient = _loss_and_gradient(model, point, y)
        point = torch.where(gradient > 0, high, low)
    return point


def worst_of_way(model: PixelModel, y: Tensor, low: Tensor, high: Tensor, steps: int) -> Tensor:
    """The point of each example's largest loss on the path of `last_corner`, the middle included."""
    point = worst = (low + high) / 2
    largest = torch.full(y.shape, -torch.inf)
    for step in range(steps + 1):
        loss, gradient = _loss_and_gradient(model, point, y)
        worst = torch.where((loss > largest)[:, None], point, worst)
        largest = torch.maximum(loss, largest)
        if step < steps:
            point = torch.where(gradient > 0, high, low)
    return worst


def _loss_and_gradient(model: PixelModel, point: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each example, and its gradient in x."""
    point = point.detach().requires_grad_(True)
    with torch.enable_grad():
        loss = cross_entropy(model.unwatched(point), y, reduction="none")
        (gradient,) = torch.autograd.grad(loss.sum(), point)
    return loss.detach(), gradient

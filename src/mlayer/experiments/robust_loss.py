"""Adversarial training for certificates: cross-entropy at the worst point that a few gradient steps find.

On the boxes in question an M-layer is nearly linear, so one or two steps of the sign of the gradient find
nearly the worst point, at twice or three times the price of plain training. `mlayer.certificates` then proves
what the training only made likely. What the proofs lose, they lose in remainders, which grow with the largest
change of M over the box and with the readout: a penalty on their product keeps them small.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from mlayer.certificates.loss import pair_norms, top_of_product
from mlayer.nn import MLayer


class PixelModel(nn.Module):
    """A classifier of pixels in [0, 1] on standardised colours, which knows how far its training is.

    Args:
        body: an MLayer or a linear layer, on standardised inputs.
        mean: (inputs,), what becomes 0.
        deviation: (inputs,), what becomes 1 above that.

    Attributes:
        batches: of training seen so far; in the state, so that a resumed run knows it.
        weight_logits: logarithms of the weights w of the inputs in the bound of the change of M.
    """

    batches: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(self, body: nn.Module, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("scale", 1 / deviation, persistent=False)
        self.register_buffer("offset", -mean / deviation, persistent=False)
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.weight_logits = nn.Parameter(torch.zeros(len(mean)))

    def forward(self, x: Tensor) -> Tensor:
        """(b, inputs) -> (b, classes)"""
        outputs: Tensor = self.body(torch.addcmul(self.offset, x, self.scale))
        return outputs

    def unwatched(self, x: Tensor) -> Tensor:
        """The same, unseen by the activity penalty."""
        standard = torch.addcmul(self.offset, x, self.scale)
        if not isinstance(self.body, MLayer):
            return self.body(standard)  # type: ignore[no-any-return]
        return linear(
            self.body.exponential(standard).flatten(-2), self.body.readout.flatten(1), self.body.output_bias
        )


@dataclass(frozen=True)
class RobustCrossEntropy:
    """Cross-entropy at the end of ``steps`` gradient steps within eps (L-infinity), cut to [0, 1].

    Attributes:
        eps: the radius at the end of the ramp.
        steps: of the attack; the first goes all the way, the others turn back from it.
        ramp: training batches over which eps grows from 0; 0 for none.
        clean: the share of the loss that stays at the clean images.
        remainder: weight of the penalty on what certificates cannot see: q^2 e^mu ||S||, see `remainder_of`.
    """

    eps: float
    steps: int = 1
    ramp: int = 0
    clean: float = 0.0
    remainder: float = 0.0

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs and the loss of each example."""
        assert isinstance(model, PixelModel)
        if not model.training:
            outputs = model(x)
            return outputs, cross_entropy(outputs, y, reduction="none")
        part = min(1.0, float(model.batches) / self.ramp) if self.ramp else 1.0
        model.batches += 1
        worst = worst_point(model, x, y, part * self.eps, self.steps)
        outputs = model(worst)
        handicapped = outputs
        if self.remainder and isinstance(model.body, MLayer):
            handicapped = outputs + self.remainder * remainders(
                model, model.body, worst, x, y, part * self.eps
            )
        losses = cross_entropy(handicapped, y, reduction="none")
        if self.clean:
            losses = torch.lerp(losses, cross_entropy(model.unwatched(x), y, reduction="none"), self.clean)
        return outputs, losses


def remainders(model: PixelModel, body: MLayer, point: Tensor, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """||S_y - S_j||_2 e^mu q^4 / 4!, the scale of what a third-order certificate loses.  (b, classes)"""
    reach = ((x + eps).clamp_(max=1) - (x - eps).clamp_(min=0)) / 2
    w = torch.softmax(model.weight_logits, 0)
    U = body.embedding * model.scale  # (d, m)
    delta_squared = top_of_product(body.generators.flatten(1), (U / w) @ U.mT)
    q_squared = delta_squared * (reach.square() @ w)  # (b,)
    M = body.matrix(torch.addcmul(model.offset, point, model.scale))
    mu = torch.linalg.eigvalsh((M + M.mT) / 2)[:, -1]
    return pair_norms(body.readout)[y] * (mu.exp() * q_squared.square() / 24)[:, None]


def worst_point(model: PixelModel, x: Tensor, y: Tensor, eps: float, steps: int) -> Tensor:
    """Up the cross-entropy by signs of its gradient, within eps of x and [0, 1]."""
    low, high = (x - eps).clamp_(min=0), (x + eps).clamp_(max=1)
    # The middle of the box: pixels at the border of [0, 1] can only move one way.
    point = (low + high) / 2
    for _ in range(steps):
        with torch.enable_grad():
            point.requires_grad_(True)
            loss = cross_entropy(model.unwatched(point), y, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, point)
        point = torch.where(gradient > 0, high, low)
    return point

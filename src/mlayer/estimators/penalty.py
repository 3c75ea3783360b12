"""The ridge of the estimators: loss + alpha * penalty, the same for every optimizer.

Two penalties, both zero for the constant model:

- "weights": the sum of squares of all weights but the output bias. Because the weights enter as a
  product of three factors (S, T, U), it favors few features (low rank).
- "matrix": the squares of what the weights amount to: ||T U||^2 + ||B + T u||^2 + ||S||^2, the same for
  every choice of T and U with the same product. Its first two terms are the mean of ||M(x)||^2 over inputs
  with unit covariance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mlayer.nn import MLayer
from mlayer.training import LOSSES


def weights_penalty(layer: MLayer) -> Tensor:
    """Sum of squares of all weights but the output bias."""
    terms = [p.square().sum() for p in layer.own_parameters() if p is not layer.output_bias]
    return torch.stack(terms).sum()


def matrix_penalty(layer: MLayer) -> Tensor:
    """||T U||^2 + ||B + T u||^2 + ||S||^2, Frobenius norms."""
    T = layer.generators.flatten(1)  # (d, n n)
    B = layer.matrix_bias
    total = layer.readout.square().sum()
    if layer.embedding is None:
        total = total + T.square().sum()
    else:
        # ||T' U||^2 = sum of (T T') * (U U'): two d x d matrices instead of one n n x in.
        total = total + ((T @ T.mT) * (layer.embedding @ layer.embedding.mT)).sum()
    constant = None if B is None else B.flatten()
    if layer.embedding_bias is not None:
        shift = layer.embedding_bias @ T
        constant = shift if constant is None else constant + shift
    return total if constant is None else total + constant.square().sum()


PENALTIES: dict[str, Callable[[MLayer], Tensor]] = {"weights": weights_penalty, "matrix": matrix_penalty}


@dataclass(frozen=True)
class Ridge:
    """A loss of :mod:`mlayer.training`: the named one plus alpha times the named penalty.

    Each example carries the penalty, so that the mean over weights of mean 1 has it once.
    """

    loss: str
    penalty: str
    alpha: float

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs at x and the loss of each example."""
        assert isinstance(model, MLayer)
        outputs = model(x)
        losses = LOSSES[self.loss](outputs, y)
        if self.alpha:
            losses = losses + self.alpha * PENALTIES[self.penalty](model)
        return outputs, losses

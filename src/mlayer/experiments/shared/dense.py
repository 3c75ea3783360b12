"""The paper's baselines: plain dense nets, Glorot uniform weights, zero biases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def dense_net(sizes: Sequence[int], activation: str, generator: torch.Generator) -> nn.Sequential:
    """A net with these layer sizes, inputs and outputs included.

    >>> import torch
    >>> parameter_count(dense_net((9, 30, 30, 30, 30, 1), "relu", torch.Generator()))
    3121
    """
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(sizes):
        linear = zeroed(nn.Linear(width_in, width_out, device="meta"))
        nn.init.xavier_uniform_(linear.weight, generator=generator)
        layers += [linear, ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def zeroed(layer: Layer) -> Layer:
    """A layer made on "meta", without torch's own draw, which would come from the global generator: zeros.

    (nn.utils.skip_init imports sympy and torch's symbolic shapes, hundreds of modules, to make a tensor like
    another.)
    """
    for name, parameter in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(torch.zeros(parameter.shape)))
    return layer


def initialized(layer: Layer, generator: torch.Generator) -> Layer:
    """A layer made on "meta" with torch's own start, from our generator; its bias is 0."""
    nn.init.kaiming_uniform_(zeroed(layer).get_parameter("weight"), a=5**0.5, generator=generator)
    return layer


def parameter_count(model: nn.Module) -> int:
    """Trainable numbers."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)

"""The paper's baselines: plain dense nets, Glorot uniform weights, zero biases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def dense_net(sizes: Sequence[int], activation: str, generator: torch.Generator) -> nn.Sequential:
    """A net with these layer sizes, inputs and outputs included.

    >>> import torch
    >>> parameter_count(dense_net((9, 30, 30, 30, 30, 1), "relu", torch.Generator()))
    3121
    """
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(sizes):
        # Without torch's own draw, which would come from the global generator. (nn.utils.skip_init imports
        # sympy and torch's symbolic shapes, hundreds of modules, to make a tensor like another.)
        linear = nn.Linear(width_in, width_out, device="meta")
        linear.weight = nn.Parameter(torch.empty(width_out, width_in))
        linear.bias = nn.Parameter(torch.zeros(width_out))
        nn.init.xavier_uniform_(linear.weight, generator=generator)
        layers += [linear, ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def parameter_count(model: nn.Module) -> int:
    """Trainable numbers."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)

"""Small convolutional networks for interval bounds, with one of three heads on their features.

The front: two 4 x 4 convolutions with stride 2, each followed by a ReLU, and a linear map to the features,
followed by a ReLU. For MNIST with 16 and 32 channels and 64 features:

| head | from 64 features to 10 classes | parameters of the head | of the network |
|---|---|---|---|
| M-layer | d = 16, n = 8 | 2,778 | 111,690 |
| ReLU | 64-37-10 | 2,785 | 111,697 |
| linear | 64-10 | 650 | 109,562 |

Everything is a `torch.nn.Sequential`, which `mlayer.certify` takes if it ends in an M-layer.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from mlayer.experiments.shared.dense import initialized
from mlayer.nn import MLayer

HEADS = ("M-layer", "ReLU", "linear")


def interval_network(
    shape: tuple[int, int, int],
    classes: int,
    head: str,
    *,
    channels: tuple[int, int],
    features: int,
    matrix_size: int,
    embedding_size: int,
    generator: torch.Generator,
) -> nn.Sequential:
    """A network for images of the shape (colors, height, width); its front is the same for all `HEADS`."""
    first, second = channels
    height, width = shape[1] // 4, shape[2] // 4
    front = [
        _convolution(shape[0], first, generator),
        nn.ReLU(),
        _convolution(first, second, generator),
        nn.ReLU(),
        nn.Flatten(),
        _linear(second * height * width, features, generator),
        nn.ReLU(),
    ]
    if head == "M-layer":
        ends: list[nn.Module] = [
            MLayer(features, classes, matrix_size, embedding_size, init="balanced", generator=generator)
        ]
    elif head == "ReLU":
        hidden = relu_width(features, classes, matrix_size, embedding_size)
        ends = [_linear(features, hidden, generator), nn.ReLU(), _linear(hidden, classes, generator)]
    else:
        ends = [_linear(features, classes, generator)]
    return nn.Sequential(*front, *ends)


def relu_width(features: int, classes: int, matrix_size: int, embedding_size: int) -> int:
    """Hidden units of the ReLU head that has about the M-layer's number of parameters.

    >>> relu_width(64, 10, 8, 16)
    37
    """
    d, square = embedding_size, matrix_size**2
    wanted = (features + 1) * d + (d + 1) * square + classes * (square + 1)
    return max(1, round((wanted - classes) / (features + 1 + classes)))


def _convolution(inputs: int, outputs: int, generator: torch.Generator) -> nn.Conv2d:
    return initialized(nn.Conv2d(inputs, outputs, 4, stride=2, padding=1, device="meta"), generator)


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    return initialized(nn.Linear(inputs, outputs, device="meta"), generator)


def interval_bounds(front: Iterable[nn.Module], low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Centers and half-widths of the features for inputs in boxes: interval bounds, differentiable.

    Their rounding is not charged: they are for training. `mlayer.certify` proves what they make likely.
    """
    center, reach = (low + high) / 2, (high - low) / 2
    for module in front:
        if isinstance(module, nn.Conv2d):
            reach = conv2d(reach, module.weight.abs(), None, module.stride, module.padding)
            center = module(center)
        elif isinstance(module, nn.Linear):
            center, reach = module(center), linear(reach, module.weight.abs())
        elif isinstance(module, nn.ReLU):
            low, high = (center - reach).relu(), (center + reach).relu()
            center, reach = (low + high) / 2, (high - low) / 2
        else:  # Flatten
            center, reach = module(center), module(reach)
    return center, reach

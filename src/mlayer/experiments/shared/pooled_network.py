"""One wide convolution, averages of its ReLUs, and an M-layer or a linear map: networks for zonotopes.

Behind a single layer of ReLUs the features are nearly affine in a small box of pixels, so that the
certificates lose little against the attack; the nonlinearity that pays is that of the M-layer.
"""

from __future__ import annotations

import torch
from torch import nn

from mlayer.experiments.shared.dense import initialized
from mlayer.nn import MLayer


def pooled_network(
    shape: tuple[int, int, int],
    classes: int,
    head: str,
    *,
    channels: int,
    patch: int,
    pool: tuple[int, int],
    matrix_size: int,
    embedding_size: int,
    generator: torch.Generator,
) -> nn.Sequential:
    """A network for images of the shape (colors, height, width).

    Patches at every second pixel, without padding; averages of windows of pool[0] places at every pool[1]-th.
    """
    front = [
        initialized(nn.Conv2d(shape[0], channels, patch, stride=2, device="meta"), generator),
        nn.ReLU(),
        nn.AvgPool2d(*pool),
        nn.Flatten(),
    ]
    features = nn.Sequential(*front)(torch.zeros(1, *shape)).shape[1]
    if head == "M-layer":
        end: nn.Module = MLayer(
            features, classes, matrix_size, embedding_size, init="balanced", generator=generator
        )
    else:
        end = initialized(nn.Linear(features, classes, device="meta"), generator)
    return nn.Sequential(*front, end)

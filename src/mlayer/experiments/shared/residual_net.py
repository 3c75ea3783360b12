"""A small residual net for images, with one of four heads on its features.

The trunk is a 3 x 3 convolution with stride 2 and three residual blocks (He et al. 2016) of 16, 32 and 64
channels, the second and third with stride 2; the mean over all places gives 64 features. The heads:

| head | from 64 features to 10 classes | parameters of the head | of the net |
|---|---|---|---|
| M-layer | d = 24, n = 16 | 10,530 | 87,730 |
| ReLU | 64-140-10 | 10,510 | 87,710 |
| linear | 64-10 | 650 | 77,850 |
| linear, wider net | the last block has 70 channels | 710 | 87,090 |

The M-layer is compared with a ReLU head of its size, with no hidden layer at all, and with a net that
spends the same number of parameters on convolutions.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from mlayer.experiments.shared.dense import dense_net, zeroed
from mlayer.experiments.shared.image_training import Build
from mlayer.nn import MLayer

HEADS = ("M-layer", "ReLU", "linear", "linear, wider net")
_WIDTHS = (16, 32, 64)
_WIDER = (16, 32, 70)


class _ResidualBlock(nn.Module):
    """A ReLU of x plus two convolutions of x; the shortcut is a 1 x 1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, generator: torch.Generator) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            _convolution(inputs, outputs, 3, stride, generator),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            _convolution(outputs, outputs, 3, 1, generator),
            nn.BatchNorm2d(outputs),
        )
        self.past = (
            nn.Identity() if inputs == outputs else _convolution(inputs, outputs, 1, stride, generator)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(b, c, h, w) -> (b, c', h / stride, w / stride)"""
        return torch.relu(self.past(x) + self.inner(x))


def _convolution(inputs: int, outputs: int, size: int, stride: int, generator: torch.Generator) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False, device="meta")
    nn.init.kaiming_normal_(zeroed(layer).weight, mode="fan_out", nonlinearity="relu", generator=generator)
    return layer


class ResidualNet(nn.Module):
    """The trunk, whose blocks have ``widths`` channels, and a head; ``shape`` is (height, width, colors)."""

    def __init__(
        self, shape: tuple[int, ...], widths: tuple[int, ...], head: nn.Module, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.shape = shape
        first = widths[0]
        layers: list[nn.Module] = [
            _convolution(shape[2], first, 3, 2, generator),
            nn.BatchNorm2d(first),
            nn.ReLU(),
            _ResidualBlock(first, first, 1, generator),
        ]
        for before, after in pairwise(widths):
            layers.append(_ResidualBlock(before, after, 2, generator))
        self.trunk = nn.Sequential(*layers)
        self.trunk.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.head = head

    def features(self, x: Tensor) -> Tensor:
        """(b, h w c), colors last -> (b, channels of the last block)"""
        # Colors last in memory is what the convolutions are fastest on.
        images = x.view(-1, *self.shape).permute(0, 3, 1, 2)
        means: Tensor = self.trunk(images).mean((2, 3))
        return means

    def forward(self, x: Tensor) -> Tensor:
        """(b, h w c), colors last -> (b, classes)"""
        scores: Tensor = self.head(self.features(x))
        return scores


def residual_builder(head: str, shape: tuple[int, ...]) -> Build:
    """Makes the net with one of `HEADS` for images of ``shape``, (height, width, colors)."""

    def build(inputs: int, classes: int, init: str, generator: torch.Generator) -> ResidualNet:
        # The trunk's weights are drawn first, so that with one seed equal trunks start equal.
        widths = _WIDER if head == "linear, wider net" else _WIDTHS
        net = ResidualNet(shape, widths, nn.Identity(), generator)
        last = widths[-1]
        if head == "M-layer":
            net.head = MLayer(last, classes, 16, 24, init=init, generator=generator)
        elif head == "ReLU":
            net.head = dense_net((last, 140, classes), "relu", generator)
        else:
            net.head = dense_net((last, classes), "relu", generator)
        return net

    return build

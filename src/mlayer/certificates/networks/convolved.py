"""Convolutions and averages that keep their weights: their dense matrices would be large and mostly zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d

from mlayer.certificates.linalg import UNIT
from mlayer.certificates.networks.windows import pair

Part = Callable[[Tensor], Tensor]  # of a map, entry by entry: its sizes, or the positive entries


@dataclass(frozen=True)
class Convolved:
    """A h + b for the matrix A of a convolution with padding by zeros; errors are stated as for `Affine`.

    Its float64 sums are those of torch's convolution on the CPU, which adds products in some order, as a
    matrix product does: there are no transforms of the weights.
    """

    weights: Tensor  # (out channels, channels of a group, height, width)
    b: Tensor  # (out,)
    relative: float
    error: Tensor  # (out,)
    shape: tuple[int, ...]  # of the inputs: (channels, height, width)
    size: tuple[int, int]  # of the outputs: (height, width)
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    @classmethod
    def of(cls, module: nn.Conv2d, b: Tensor, shape: tuple[int, ...], size: tuple[int, int]) -> Convolved:
        """The map of a module for inputs of this shape."""
        assert not isinstance(module.padding, str)
        return cls(
            module.weight.detach(),
            b,
            0.0,
            torch.zeros_like(b),
            shape,
            size,
            pair(module.stride),
            pair(module.padding),
            pair(module.dilation),
            module.groups,
        )

    @classmethod
    def averaging(cls, module: nn.AvgPool2d, shape: tuple[int, ...], size: tuple[int, int]) -> Convolved:
        """The map of averages with one divisor, each channel by itself."""
        kernel = pair(module.kernel_size)
        zero = torch.zeros(shape[0] * size[0] * size[1], dtype=torch.float64)
        return cls(
            torch.full((shape[0], 1, *kernel), 1 / (kernel[0] * kernel[1]), dtype=torch.float64),
            zero,
            2 * UNIT,
            zero,
            shape,
            size,
            pair(module.kernel_size if module.stride is None else module.stride),
            pair(module.padding),
            (1, 1),
            shape[0],
        )

    @property
    def outputs(self) -> int:
        """The number of rows of A."""
        return len(self.b)

    @property
    def inputs(self) -> int:
        """The number of columns of A."""
        return int(torch.Size(self.shape).numel())

    def ahead(self, h: Tensor, part: Part) -> Tensor:
        """H times the transpose of a part of A.  (rows, in) -> (rows, out)"""
        weights = part(self.weights)
        return conv2d(
            h.reshape(-1, *self.shape), weights, None, self.stride, self.padding, self.dilation, self.groups
        ).flatten(1)

    def behind(self, slopes: Tensor, part: Part) -> Tensor:
        """Slopes times a part of A.  (rows, q, out) -> (rows, q, in)"""
        unread = [
            full + 2 * pad - spread * (k - 1) - 1 - (out - 1) * step
            for full, pad, spread, k, out, step in zip(
                self.shape[1:], self.padding, self.dilation, self.weights.shape[2:], self.size, self.stride,
                strict=True,
            )
        ]  # fmt: skip
        images = slopes.reshape(-1, len(self.weights), *self.size)
        found = conv_transpose2d(
            images, part(self.weights), None, self.stride, self.padding, unread, self.groups, self.dilation
        )
        return found.reshape(*slopes.shape[:2], self.inputs)

    def takes(self, scale: Tensor) -> bool:
        """Whether the rows can be multiplied by these numbers: those of a channel share their weights."""
        of_channels = scale.reshape(len(self.weights), -1)
        return bool((of_channels == of_channels[:, :1]).all())

    def scaled(self, scale: Tensor, b: Tensor, error: Tensor, relative: float) -> Convolved:
        """The rows times a scale that it takes, with another b."""
        of_channels = scale.reshape(len(self.weights), -1)[:, 0]
        weights = of_channels[:, None, None, None] * self.weights
        return replace(self, weights=weights, b=b, error=error, relative=relative)

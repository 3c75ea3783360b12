"""The inputs in the windows of a convolution or a pooling."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

Size = int | tuple[int, ...]


def pair(size: Size) -> tuple[int, int]:
    """One number for both directions, alone or in a tuple, or two."""
    return (size, size) if isinstance(size, int) else (size[0], size[-1])


def windows(
    shape: tuple[int, ...], kernel: Size, stride: Size | None, padding: Size, dilation: Size
) -> tuple[Tensor, tuple[int, int]]:
    """For each output place the places of one channel in its window, -1 for padding; and the output's size.

    (out, window)
    """
    height, width = shape[1], shape[2]
    kernel, padding, dilation = pair(kernel), pair(padding), pair(dilation)
    step = kernel if stride is None else pair(stride)
    # Numbers from 1, so that padding by zeros can be recognized.
    numbers = torch.arange(1, height * width + 1, dtype=torch.float64).reshape(1, 1, height, width)
    unfolded = functional.unfold(numbers, kernel, dilation, padding, step)
    size = [
        (full + 2 * pad - spread * (k - 1) - 1) // s + 1
        for full, pad, spread, k, s in zip((height, width), padding, dilation, kernel, step, strict=True)
    ]
    return unfolded[0].T.long() - 1, (size[0], size[1])

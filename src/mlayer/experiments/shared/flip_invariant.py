"""M-layers that give an image and its mirror image the same outputs, at the size of an ordinary one.

An image is an even part, the same in the mirror, and an odd part, which changes its sign. Half of the
features are even and half are odd. With a parity for each of the n coordinates too, generators of even
features keep the parity, those of odd features change it, and the readout keeps it: mirroring then is a
change of gauge (docs/theory/layer.md). Most weights that this forbids would have to be learned to cancel.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from mlayer.nn import MLayer


class FlipParity(nn.Module):
    """Flat images in the basis of even and odd parts, an orthogonal one.

    Args:
        shape: (height, width, colors) of the images.

    >>> parity = FlipParity((1, 3, 1))
    >>> (parity(torch.tensor([[1.0, 5.0, 1.0], [1.0, 0.0, -1.0]])) ** 2).round().tolist()
    [[2.0, 25.0, 0.0], [0.0, 0.0, 2.0]]
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        height, width, colors = shape
        self.even = height * (width - width // 2) * colors  # inputs; a middle column is even

    def forward(self, x: Tensor) -> Tensor:
        """(b, h w c) -> (b, h w c), even parts first"""
        half = self.shape[1] // 2
        images = x.view(-1, *self.shape)
        left, middle, right = images[:, :, :half], images[:, :, half:-half], images[:, :, -half:].flip(2)
        even = torch.cat([(left + right) * math.sqrt(0.5), middle], 2)
        return torch.cat([even.flatten(1), ((left - right) * math.sqrt(0.5)).flatten(1)], 1)

    def to_pixels(self, weight: Tensor) -> Tensor:
        """Weights of even and odd parts as weights of pixels, the transposed map.  (d, h w c) -> same"""
        height, width, colors = self.shape
        half = width // 2
        even = weight[:, : self.even].reshape(-1, height, width - half, colors)
        odd = weight[:, self.even :].reshape(-1, height, half, colors)
        left = (even[:, :, :half] + odd) * math.sqrt(0.5)
        right = ((even[:, :, :half] - odd) * math.sqrt(0.5)).flip(2)
        return torch.cat([left, even[:, :, half:], right], 2).flatten(1)

    def masks(self, body: MLayer | nn.Linear) -> dict[str, Tensor]:
        """1 where a weight of a layer on even and odd parts may differ from 0, by the parameter's name."""
        inputs = torch.arange(self.shape[0] * self.shape[1] * self.shape[2]) < self.even
        if isinstance(body, nn.Linear):
            return {"weight": inputs.expand_as(body.weight).float()}
        d, n = body.free_generators.shape[:2]
        features, coordinates = torch.arange(d) < (d + 1) // 2, torch.arange(n) < (n + 1) // 2
        keeps = coordinates[:, None] == coordinates
        masks = {
            "embedding": features[:, None] == inputs,
            "embedding_bias": features,
            "free_generators": features[:, None, None] == keeps,
            "free_matrix_bias": keeps,
            "readout": keeps.expand(body.out_features, n, n),
        }
        return {name: mask.float() for name, mask in masks.items()}

    def restrict(self, body: MLayer | nn.Linear) -> None:
        """Hold the forbidden weights at 0 while the layer is trained."""
        for name, mask in self.masks(body).items():
            prune.custom_from_mask(body, name, mask)

    def release(self, body: MLayer | nn.Linear) -> None:
        """Make the weights of a restricted layer ordinary parameters again, with their zeros."""
        for name in self.masks(body):
            prune.remove(body, name)

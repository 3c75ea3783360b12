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
    """Flat images in an orthonormal basis of cosines: even and odd parts, coarse details first in each.

    Args:
        shape: (height, width, colors) of the images.
        frequencies: that are kept along each side, from the lowest; all of them if None.

    >>> parity = FlipParity((1, 3, 1))
    >>> (parity(torch.tensor([[1.0, 5.0, 1.0], [1.0, 0.0, -1.0]])) ** 2).double().round(decimals=3).tolist()
    [[16.333, 10.667, 0.0], [0.0, 0.0, 2.0]]
    """

    rows: Tensor
    columns: Tensor

    def __init__(self, shape: tuple[int, ...], frequencies: int | None = None) -> None:
        super().__init__()
        height, width, colors = shape
        along = _cosines(height, frequencies)
        across = _cosines(width, frequencies)
        across = torch.cat([across[::2], across[1::2]])  # those of even frequency are even
        self.even = len(along) * ((len(across) + 1) // 2) * colors  # features
        self.features = len(along) * len(across) * colors
        self.register_buffer("rows", along, persistent=False)
        # Columns and colors are one dimension: (w c, k c).
        self.register_buffer("columns", torch.kron(across, torch.eye(colors)).T, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(b, h w c) -> (b, features), even parts first"""
        rows, columns = self.rows.to(x.dtype), self.columns.to(x.dtype)
        parts = rows @ x.view(len(x), rows.shape[1], -1) @ columns  # (b, k, k c)
        even = self.even // len(rows)
        return torch.cat([parts[..., :even].flatten(1), parts[..., even:].flatten(1)], 1)

    def to_pixels(self, weight: Tensor) -> Tensor:
        """Weights of the features as weights of pixels, the transposed map.  (d, features) -> (d, h w c)"""
        rows, columns = self.rows.to(weight.dtype), self.columns.to(weight.dtype)
        even, odd = (
            part.view(len(weight), len(rows), -1) for part in weight.tensor_split([self.even], dim=1)
        )
        return (rows.T @ torch.cat([even, odd], 2) @ columns.T).flatten(1)

    def masks(self, body: MLayer | nn.Linear) -> dict[str, Tensor]:
        """1 where a weight of a layer on these features may differ from 0, by the parameter's name."""
        inputs = torch.arange(self.features) < self.even
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


def _cosines(size: int, frequencies: int | None) -> Tensor:
    """The orthonormal basis of the discrete cosine transform, lowest frequencies first.  (k, size)"""
    k = torch.arange(size if frequencies is None else min(frequencies, size), dtype=torch.float64)
    places = torch.arange(size) + 0.5
    basis = torch.cos(torch.pi / size * k[:, None] * places) * math.sqrt(2 / size)
    basis[0] /= math.sqrt(2)
    return basis.float()

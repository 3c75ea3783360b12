"""Random shifts, flips, cut-outs, distortions and colors of images, made for every batch on a CPU.

Images stay bytes until the last moment. A shifted image is a window of its copy with a wider border, and the
rows of all windows of a batch are gathered by one call.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

_ROWS = 4096  # padded at a time
_COLOR_SHARE = 0.3  # of the recoloring, for the mean color


@dataclass(frozen=True)
class Augmentation:
    """The random change of a training image, drawn again each time it is seen."""

    shift: int = 0  # at most this many pixels up, down, left, right; what comes in repeats the border
    flip: bool = False  # left and right swapped, every second time
    cutout: int = 0  # the side of a square that is set to the mean color, around any pixel
    # turned by at most this angle, height and width changed by factors of at most e to this; each at random
    distortion: float = 0.0
    # contrast changed by a factor of at most e to this, each color by at most 0.3 of this; cut to [0, 1]
    recoloring: float = 0.0

    def widened(self, pixels: Tensor) -> Tensor:
        """The images with the border that shifts need, one vector each.  (N, h, w, c) -> (N, h' w' c)"""
        if self.shift:
            # Floats, because torch repeats borders of nothing else; in pieces, because that takes memory.
            parts = [
                pad(part.permute(0, 3, 1, 2).float(), [self.shift] * 4, mode="replicate").to(torch.uint8)
                for part in pixels.split(_ROWS)
            ]
            pixels = torch.cat(parts).permute(0, 2, 3, 1).contiguous()
        return pixels.flatten(1)


class Augment:
    """Bytes from :meth:`Augmentation.widened` to standardized floats: the ``augment`` of `train`.

    Of pixel values in [0, 1], of which 1 is the byte ``white``, the mean, (colors,), becomes 0 and the
    deviation above it 1; without them pixels stay as they are. ``shape`` is (height, width, colors).
    """

    def __init__(
        self,
        how: Augmentation,
        shape: tuple[int, ...],
        mean: Tensor | None = None,
        deviation: Tensor | None = None,
        white: int = 255,
    ) -> None:
        self.how, self.shape = how, shape
        mean = torch.zeros(shape[2]) if mean is None else mean
        deviation = torch.ones(shape[2]) if deviation is None else deviation
        self.white, self.scale, self.offset = white, 1 / (white * deviation), -mean / deviation

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """(b, h' w' c) bytes -> (b, h w c)"""
        images = self._windows(x, generator).view(len(x), *self.shape)
        if self.how.flip:
            chosen = (torch.rand(len(x), generator=generator) < 0.5).nonzero()[:, 0]
            turned = images.index_select(0, chosen).flip(2)
            images = images.index_copy(0, chosen, turned)
        floats = images.to(torch.float32)
        if self.how.distortion:
            floats = self._distorted(floats, generator)
        if self.how.recoloring:
            floats = self._recolored(floats, generator)
        floats = floats.mul_(self.scale).add_(self.offset)
        if self.how.cutout:
            floats.masked_fill_(self._squares(len(x), generator), 0.0)
        return floats.flatten(1)

    def _windows(self, x: Tensor, generator: torch.Generator) -> Tensor:
        if not self.how.shift:
            return x
        height, width, colors = self.shape
        border = 2 * self.how.shift
        row = (width + border) * colors
        size = (height + border) * row
        corner = torch.randint(0, border + 1, (len(x), 2), generator=generator)
        first = torch.arange(len(x)) * size + corner[:, 0] * row + corner[:, 1] * colors
        starts = first[:, None] + torch.arange(height) * row  # (b, height), of the rows of each window
        # Every stretch of one row's length, as overlapping views: gathering copies whole rows.
        length = width * colors
        stretches = x.contiguous().view(-1).as_strided((len(x) * size - length + 1, length), (1, 1))
        return stretches.index_select(0, starts.flatten())

    def _squares(self, count: int, generator: torch.Generator) -> Tensor:
        """(b, h, w, 1), True where an image is cut out."""
        sides = []
        for size in self.shape[:2]:
            first = torch.randint(0, size, (count, 1), generator=generator) - self.how.cutout // 2
            place = torch.arange(size)
            sides.append((place >= first) & (place < first + self.how.cutout))
        rows, columns = sides
        return (rows[:, :, None] & columns[:, None, :])[..., None]

    def _distorted(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Turned and stretched around the middle; what comes in repeats the border."""
        angle, *stretches = self.how.distortion * (torch.rand(3, len(images), generator=generator) * 2 - 1)
        height, width = (stretch.exp() for stretch in stretches)
        turn = torch.stack(
            [width * angle.cos(), -width * angle.sin(), height * angle.sin(), height * angle.cos()]
        )
        maps = pad(turn.T.reshape(-1, 2, 2), [0, 1])  # no shift
        planes = images.permute(0, 3, 1, 2)
        places = affine_grid(maps, list(planes.shape), align_corners=False)
        found = grid_sample(planes, places, padding_mode="border", align_corners=False)
        return found.permute(0, 2, 3, 1).contiguous()

    def _recolored(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The images with another contrast around their mean gray and another mean color."""
        contrast, *colors = torch.rand(1 + self.shape[2], len(images), generator=generator) * 2 - 1
        factor = (self.how.recoloring * contrast).exp()[:, None, None, None]
        shift = _COLOR_SHARE * self.how.recoloring * self.white * torch.stack(colors, 1)[:, None, None]
        gray = images.mean((1, 2, 3), keepdim=True)
        return images.sub_(gray).mul_(factor).add_(gray + shift).clamp_(0, self.white)

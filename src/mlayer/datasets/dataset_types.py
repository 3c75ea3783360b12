"""The types of data sets: pixels are kept as bytes and converted to floats on request."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mlayer.checks import brief, flag
from mlayer.errors import ArgumentError, ArgumentTypeError


@dataclass(frozen=True, eq=False)
class Split:
    """One half of an image set.

    Attributes:
        pixels: uint8, (N, *image_shape); colors last.
        labels: int64, (N,).
        white: the pixel value that becomes 1.0.
    """

    pixels: Tensor
    labels: Tensor
    white: int = 255

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, index: Tensor | slice | None = None, *, flat: bool = True) -> Tensor:
        """Images in [0, 1] as float32: (N, pixels), or (N, *image_shape) if not ``flat``.

        Args:
            index: which rows; all if None. A batch at a time keeps memory small.
            flat: one vector per image, in the order height, width, color.
        """
        flag("flat", flat)
        chosen = self.pixels if index is None else self.pixels[_rows(index, len(self))]
        images = chosen.to(torch.float32).div_(self.white)
        return images.flatten(1) if flat else images

    def take(self, index: Tensor | slice) -> Split:
        """The rows ``index`` as a split."""
        rows = _rows(index, len(self))
        return Split(self.pixels[rows], self.labels[rows], self.white)


def _rows(index: Tensor | slice, count: int) -> Tensor | slice:
    one = isinstance(index, Tensor) and index.dim() != 1
    whole = not isinstance(index, Tensor) or index.dtype in (torch.bool, torch.int32, torch.int64)
    if not isinstance(index, Tensor | slice) or one or not whole:
        came = f"{index.dtype}, shape {tuple(index.shape)}" if isinstance(index, Tensor) else brief(index)
        raise ArgumentTypeError(
            "index", "a vector of row numbers or a slice", came, "For one row: slice(i, i + 1)."
        )
    if isinstance(index, Tensor) and index.numel():
        fits = (
            len(index) == count if index.dtype == torch.bool else -count <= index.min() <= index.max() < count
        )
        if not fits:
            raise ArgumentError(
                "index", f"of the {count} rows", "rows outside that range", f"They are 0 to {count - 1}."
            )
    return index


@dataclass(frozen=True, eq=False)
class ImageSet:
    """An image classification set.

    Attributes:
        train: the training half.
        test: the test half.
        name: "mnist", "cifar10", ...
        classes: what the labels 0, 1, ... stand for.
        image_shape: (height, width) or (height, width, 3).
        source: where it was read from.
    """

    train: Split
    test: Split
    name: str
    classes: tuple[str, ...]
    image_shape: tuple[int, ...]
    source: str

    @property
    def color_shape(self) -> tuple[int, int, int]:
        """(height, width, colors); gray images have one color."""
        height, width, *colors = self.image_shape
        return height, width, (*colors, 1)[0]


@dataclass(frozen=True, eq=False)
class Series:
    """A series of daily measurements.

    Attributes:
        values: float64, (N,).
        dates: "1981-01-01", ..., one per value.
        name: of the series.
        unit: of the values.
        source: where it was read from.
    """

    values: Tensor
    dates: tuple[str, ...]
    name: str
    unit: str
    source: str

    def __len__(self) -> int:
        return len(self.dates)


@dataclass(frozen=True, eq=False)
class Table:
    """Synthetic examples: inputs and targets.

    Attributes:
        x: (N, in_features).
        y: int64 classes, (N,), or float32 values, (N, 1).
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)

"""SVHN, the cropped digits as .mat files (Y. Netzer et al., for non-commercial use)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from mlayer.datasets.dataset_types import ImageSet, Split
from mlayer.datasets.download import Progress, fetch
from mlayer.datasets.local_files import DataPath, SourceFile, find
from mlayer.datasets.mat5 import read_mat
from mlayer.errors import FileFormatError

SHAPE = (32, 32, 3)
_URL = "https://ufldl.stanford.edu/housenumbers/"


# A file in MATLAB's format 5 begins with a text of this many bytes, which names the date.
_REMARK = 116


def _file(name: str, published: str, copy: str) -> SourceFile:
    places = ("svhn", "SVHN", ".")
    return SourceFile(name, (published,), _URL + name, places, remark=_REMARK, without_remark=(copy,))


# The SHA-256 of the published files, then those of a copy with the same digits, cut once more from the
# published full-number images, on which the figures in results/ were measured.
TRAIN = _file(
    "train_32x32.mat",
    "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    "ce1eabc650669573a7225a51d4603da8add23b401f48fccce5ee22b16560feb1",
)
TEST = _file(
    "test_32x32.mat",
    "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    "1e5a79b17304bd07f8ad817c03f1d30db87e1900b12b1d9ec390e85600218349",
)


def svhn(
    data: DataPath = None, *, download: bool = False, verify: bool = True, progress: Progress | None = None
) -> ImageSet:
    """SVHN, cropped: 73,257 + 26,032 color images of 32 x 32, colors last, digit 0 as label 0.

    The arguments are those of :func:`mlayer.datasets.images`.
    """
    fetch(data, (TRAIN, TEST), progress, download=download)
    paths = [find(data, file, verify=verify) for file in (TRAIN, TEST)]
    train, test = (_split(path) for path in paths)
    return ImageSet(train, test, "svhn", tuple(map(str, range(10))), SHAPE, str(paths[0].parent))


def test_half(data: DataPath, download: bool, verify: bool, progress: Progress | None) -> Split:
    """The test images alone; the file of the training half may be missing."""
    fetch(data, (TEST,), progress, download=download)
    return _split(find(data, TEST, verify=verify))


def _split(path: Path) -> Split:
    arrays = read_mat(path, ("X", "y"))
    images, labels = arrays["X"], arrays["y"].reshape(-1)  # (N, color, width, height): axes reversed
    again = f"Get it again from {_URL}."
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (3, 32, 32):
        came = f"{images.dtype} of {' x '.join(map(str, images.shape[::-1]))}"
        raise FileFormatError(path, "X of bytes, 32 x 32 x 3 x N", came, again)
    if len(labels) != len(images):
        raise FileFormatError(path, f"a y for each of {len(images)} images", f"{len(labels)}", again)
    if len(labels) and not set(np.unique(labels)) <= set(range(1, 11)):
        raise FileFormatError(path, "y of 1 to 10", f"{labels.min()} to {labels.max()}", again)
    pixels = np.ascontiguousarray(images.transpose(0, 3, 2, 1))
    return Split(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64) % 10))

"""SVHN, the cropped digits as .mat files (Y. Netzer et al., for non-commercial use)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from mlayer.datasets.download import Progress, fetch
from mlayer.datasets.mat5 import read_mat
from mlayer.datasets.places import DataPath, SourceFile, find
from mlayer.datasets.sets import ImageSet, Split
from mlayer.errors import FileFormatError

SHAPE = (32, 32, 3)
_URL = "http://ufldl.stanford.edu/housenumbers/"


def _file(name: str, md5: str) -> SourceFile:
    return SourceFile(name, (md5,), _URL + name, ("svhn", "SVHN", "."), strict=False)


TRAIN = _file("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373")
TEST = _file("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3")


def svhn(
    data: DataPath = None, *, download: bool = False, verify: bool = True, progress: Progress | None = None
) -> ImageSet:
    """SVHN, cropped: 73,257 + 26,032 colour images of 32 x 32, colours last, digit 0 as label 0.

    Args:
        data: the folder of the data sets; ``$MLAYER_DATA`` if None.
        download: fetch files that are missing.
        verify: warn of files whose sums are not the published ones; the same digits come in other
            containers too, so they are not refused.
        progress: called during a download with name, bytes so far, bytes in all (or None).
    """
    fetch(data, (TRAIN, TEST), progress, download=download)
    paths = [find(data, file, verify=verify) for file in (TRAIN, TEST)]
    train, test = (_split(path) for path in paths)
    return ImageSet(train, test, "svhn", tuple(map(str, range(10))), SHAPE, str(paths[0].parent))


def _split(path: Path) -> Split:
    arrays = read_mat(path, ("X", "y"))
    images, labels = arrays["X"], arrays["y"].reshape(-1)  # (N, colour, width, height): axes reversed
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (3, 32, 32):
        came = f"{images.dtype} of {' x '.join(map(str, images.shape[::-1]))}"
        raise FileFormatError(path, "X of bytes, 32 x 32 x 3 x N", came, f"Get it again from {_URL}.")
    if len(labels) != len(images):
        raise FileFormatError(
            path, f"a y for each of {len(images)} images", f"{len(labels)}", f"Get it again from {_URL}."
        )
    if len(labels) and not set(np.unique(labels)) <= set(range(1, 11)):
        raise FileFormatError(
            path, "y of 1 to 10", f"{labels.min()} to {labels.max()}", f"Get it again from {_URL}."
        )
    pixels = np.ascontiguousarray(images.transpose(0, 3, 2, 1))
    return Split(torch.from_numpy(pixels), torch.from_numpy(labels.astype(np.int64) % 10))

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


def _file(name: str, *sha256: str) -> SourceFile:
    return SourceFile(name, sha256, _URL + name, ("svhn", "SVHN", "."))


# The SHA-256 of the published files, then those of a copy with the same digits, cut once more from the
# published full-number images, on which the figures in results/ were measured.
TRAIN = _file(
    "train_32x32.mat",
    "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    "20f24f02c08fa7b1fddfa644a2919ab7844cb97142eb0a12c51d03be57644075",
)
TEST = _file(
    "test_32x32.mat",
    "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    "e08c21a9e34ba3c4ed1cb4e5ce7d0606701852e694c54bee11a40c6310db4851",
)


def svhn(
    data: DataPath = None, *, download: bool = False, verify: bool = True, progress: Progress | None = None
) -> ImageSet:
    """SVHN, cropped: 73,257 + 26,032 color images of 32 x 32, colors last, digit 0 as label 0.

    Args:
        data: the folder of the data sets; ``$MLAYER_DATA`` if None.
        download: fetch files that are missing.
        verify: refuse files whose checksums are not known.
        progress: called during a download with name, bytes so far, total bytes (or None).
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

"""CIFAR-10, the binary version (A. Krizhevsky): a label byte, then 3 x 32 x 32 bytes an image.

The "python version" is pickled. Reading a pickle runs whatever program the file holds, so it is not read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from mlayer.datasets.download import Progress, fetch
from mlayer.datasets.places import DataPath, SourceFile, data_folder, find, locate
from mlayer.datasets.sets import ImageSet, Split
from mlayer.errors import FileFormatError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (32, 32, 3)
_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_ROW = 1 + 3 * 32 * 32


def _file(name: str, md5: str) -> SourceFile:
    return SourceFile(name, (md5,), _URL, ("cifar-10-batches-bin", "cifar10", "."))


TRAIN = (
    _file("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
    _file("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
    _file("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
    _file("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
    _file("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
)
TEST = (_file("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),)


def cifar10(
    data: DataPath = None, *, download: bool = False, verify: bool = True, progress: Progress | None = None
) -> ImageSet:
    """CIFAR-10: 50,000 + 10,000 colour images of 32 x 32, colours last.

    Args:
        data: the folder of the data sets; ``$MLAYER_DATA`` if None.
        download: fetch the archive if a file is missing.
        verify: refuse files whose sums are not the published ones.
        progress: called during a download with name, bytes so far, bytes in all (or None).
    """
    folder = data_folder(data)
    fetch(data, (*TRAIN, *TEST), progress, download=download)
    if folder is not None and locate(folder, TRAIN[0]) is None:
        _complain_of_pickles(folder)
    halves = []
    for files in (TRAIN, TEST):
        paths = [find(data, file, verify=verify) for file in files]
        halves.append(_split(paths))
    return ImageSet(halves[0], halves[1], "cifar10", CLASSES, SHAPE, str(paths[0].parent))


def _split(paths: list[Path]) -> Split:
    batches = [read_batch(path) for path in paths]
    pixels = np.empty((sum(map(len, batches)), *SHAPE), np.uint8)
    labels = np.empty(len(pixels), np.int64)
    start = 0
    for rows in batches:
        stop = start + len(rows)
        labels[start:stop] = rows[:, 0]
        pixels[start:stop] = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        start = stop
    return Split(torch.from_numpy(pixels), torch.from_numpy(labels))


def read_batch(path: Path) -> np.ndarray:
    """The rows of a binary batch.  (N, 3073)"""
    raw = np.fromfile(path, np.uint8)
    if raw.size > 1 and raw[0] == 0x80 and 2 <= raw[1] <= 5:
        raise FileFormatError(path, "a binary batch", "a pickled one (the python version)", _BINARY)
    if raw.size == 0 or raw.size % _ROW:
        raise FileFormatError(
            path, f"rows of {_ROW} bytes", f"{raw.size} bytes, not a positive multiple", _BINARY
        )
    rows = raw.reshape(-1, _ROW)
    if rows[:, 0].max() > 9:
        raise FileFormatError(
            path, "rows that begin with a label 0 to 9", f"a label {rows[:, 0].max()}", _BINARY
        )
    return rows


_BINARY = f"Get the binary version, {_URL}."


def _complain_of_pickles(folder: Path) -> None:
    for place in ("cifar-10-batches-py", *TRAIN[0].folders):
        path = folder / place / "data_batch_1"
        if path.is_file():
            raise FileFormatError(
                path,
                "data_batch_1.bin of the binary version",
                "the pickled python version, which is not read because unpickling runs code",
                f"Get {_URL} and unpack it in {folder}.",
            )

"""CIFAR-10, the binary version (A. Krizhevsky): a label byte, then 3 x 32 x 32 bytes per image.

The "python version" is pickled. Reading a pickle runs whatever program the file holds, so it is not read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from mlayer.datasets.dataset_types import ImageSet, Split
from mlayer.datasets.download import Progress, fetch
from mlayer.datasets.local_files import DataPath, SourceFile, data_folder, find, locate
from mlayer.errors import FileFormatError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (32, 32, 3)
_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_ARCHIVE = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"  # its SHA-256
_ROW = 1 + 3 * 32 * 32


def _file(name: str, sha256: str) -> SourceFile:
    return SourceFile(name, (sha256,), _URL, ("cifar-10-batches-bin", "cifar10", "."), archive=_ARCHIVE)


TRAIN = (
    _file("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    _file("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    _file("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    _file("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    _file("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
)
TEST = (_file("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),)


def cifar10(
    data: DataPath = None, *, download: bool = False, verify: bool = True, progress: Progress | None = None
) -> ImageSet:
    """CIFAR-10: 50,000 + 10,000 color images of 32 x 32, colors last.

    The arguments are those of :func:`mlayer.datasets.images`.
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


def test_half(data: DataPath, download: bool, verify: bool, progress: Progress | None) -> Split:
    """The test images alone; the files of the training half may be missing."""
    fetch(data, TEST, progress, download=download)
    return _split([find(data, file, verify=verify) for file in TEST])


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

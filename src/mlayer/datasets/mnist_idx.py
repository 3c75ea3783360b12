"""MNIST in its original idx format, packed or not (Y. LeCun, C. Cortes, C. Burges)."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch

from mlayer.datasets.download import Progress, fetch
from mlayer.datasets.places import DataPath, SourceFile, find
from mlayer.datasets.sets import ImageSet, Split
from mlayer.errors import FileFormatError

_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # the original site no longer serves files
_FOLDERS = ("mnist", "MNIST/raw", "MNIST", ".")


def _file(name: str, *md5: str) -> SourceFile:
    return SourceFile(name, md5, _URL + name, _FOLDERS)


# The published sums of the .gz files, then those of their contents.
FILES = {
    ("train", "images"): _file(
        "train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"
    ),
    ("train", "labels"): _file(
        "train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"
    ),
    ("test", "images"): _file(
        "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"
    ),
    ("test", "labels"): _file(
        "t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"
    ),
}


def mnist(
    data: DataPath = None, *, download: bool = False, verify: bool = True, progress: Progress | None = None
) -> ImageSet:
    """MNIST: 60,000 + 10,000 grey digits of 28 x 28.

    Args:
        data: the folder of the data sets; ``$MLAYER_DATA`` if None.
        download: fetch files that are missing.
        verify: refuse files whose sums are not the published ones.
        progress: called during a download with name, bytes so far, bytes in all (or None).
    """
    fetch(data, list(FILES.values()), progress, download=download)
    halves = {}
    sources = []
    for half in ("train", "test"):
        paths = {kind: find(data, FILES[half, kind], verify=verify) for kind in ("images", "labels")}
        images, labels = read_idx(paths["images"], 3), read_idx(paths["labels"], 1)
        if len(images) != len(labels):
            raise FileFormatError(
                paths["labels"], f"one label for each of {len(images)} images", f"{len(labels)}", _AGAIN
            )
        if labels.size and labels.max() > 9:
            raise FileFormatError(paths["labels"], "labels 0 to 9", f"a label {labels.max()}", _AGAIN)
        halves[half] = Split(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))
        sources.append(str(paths["images"].parent))
    shape = tuple(halves["train"].pixels.shape[1:])
    return ImageSet(
        halves["train"],
        halves["test"],
        "mnist",
        tuple(map(str, range(10))),
        shape,
        ", ".join(dict.fromkeys(sources)),
    )


_AGAIN = f"Get it again from {_URL}."


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """An idx file of unsigned bytes: two zero bytes, type 8, the dimensions, their sizes, the entries."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise FileFormatError(path, "a whole .gz file", f"a broken one ({error})", _AGAIN) from None
    magic = bytes((0, 0, 8, dimensions))
    if raw[:4] != magic:
        raise FileFormatError(
            path,
            f"an idx file of bytes with {dimensions} dimensions, {magic.hex()}",
            raw[:4].hex() or "nothing",
            _AGAIN,
        )
    start = 4 + 4 * dimensions
    if len(raw) < start:
        raise FileFormatError(path, f"a head of {start} bytes", f"{len(raw)} bytes in all", _AGAIN)
    shape = np.frombuffer(raw[4:start], ">u4").astype(np.int64)
    if len(raw) - start != shape.prod():
        sizes = " x ".join(map(str, shape))
        raise FileFormatError(path, f"{sizes} bytes after its head", f"{len(raw) - start} bytes", _AGAIN)
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()

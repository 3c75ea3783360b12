"""MNIST in its original idx format, packed or not (Y. LeCun, C. Cortes, C. Burges)."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch

from mlayer.datasets.dataset_types import ImageSet, Split
from mlayer.datasets.download import Progress, fetch
from mlayer.datasets.local_files import DataPath, SourceFile, find
from mlayer.errors import FileFormatError, in_one_line

_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # the original site no longer serves files
_MOST_BYTES = 2**28  # five times the largest file, unpacked
_FOLDERS = ("mnist", "MNIST/raw", "MNIST", ".")


def _file(name: str, *sha256: str) -> SourceFile:
    return SourceFile(name, sha256, _URL + name, _FOLDERS)


# The SHA-256 of the published .gz files, then those of their contents.
FILES = {
    ("train", "images"): _file(
        "train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    ("train", "labels"): _file(
        "train-labels-idx1-ubyte.gz",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    ("test", "images"): _file(
        "t10k-images-idx3-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    ("test", "labels"): _file(
        "t10k-labels-idx1-ubyte.gz",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}


def mnist(
    data: DataPath = None, *, download: bool = False, verify: bool = True, progress: Progress | None = None
) -> ImageSet:
    """MNIST: 60,000 + 10,000 gray digits of 28 x 28.

    The arguments are those of :func:`mlayer.datasets.images`.
    """
    fetch(data, list(FILES.values()), progress, download=download)
    train, test = (_half(data, half, verify) for half in ("train", "test"))
    folders = dict.fromkeys(str(find(data, FILES[half, "images"], verify=False).parent) for half, _ in FILES)
    shape = tuple(train.pixels.shape[1:])
    return ImageSet(train, test, "mnist", tuple(map(str, range(10))), shape, ", ".join(folders))


def test_half(data: DataPath, download: bool, verify: bool, progress: Progress | None) -> Split:
    """The test images alone; the files of the training half may be missing."""
    files = [FILES["test", kind] for kind in ("images", "labels")]
    fetch(data, files, progress, download=download)
    return _half(data, "test", verify)


def _half(data: DataPath, half: str, verify: bool) -> Split:
    paths = {kind: find(data, FILES[half, kind], verify=verify) for kind in ("images", "labels")}
    images, labels = read_idx(paths["images"], 3), read_idx(paths["labels"], 1)
    if len(images) != len(labels):
        raise _wrong(paths["labels"], f"one label for each of {len(images)} images", f"{len(labels)}")
    if labels.size and labels.max() > 9:
        raise _wrong(paths["labels"], "labels 0 to 9", f"a label {labels.max()}")
    return Split(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))


def _wrong(path: Path, must_be: str, came: str) -> FileFormatError:
    return FileFormatError(path, must_be, came, f"Get it again from {_URL}.")


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """An idx file of unsigned bytes: two zero bytes, type 8, the dimensions, their sizes, the entries."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            with gzip.open(path) as file:
                raw = file.read(_MOST_BYTES + 1)
            if len(raw) > _MOST_BYTES:
                raise OSError(f"more than {_MOST_BYTES} bytes unpacked")
        except (EOFError, OSError, zlib.error) as error:
            came = f"a damaged one ({in_one_line(error)})"
            raise _wrong(path, "a complete .gz file", came) from None
    magic = bytes((0, 0, 8, dimensions))
    if raw[:4] != magic:
        must_be = f"an idx file of bytes with {dimensions} dimensions, {magic.hex()}"
        raise _wrong(path, must_be, raw[:4].hex() or "nothing")
    start = 4 + 4 * dimensions
    if len(raw) < start:
        raise _wrong(path, f"a header of {start} bytes", f"{len(raw)} bytes in all")
    shape = np.frombuffer(raw[4:start], ">u4").tolist()
    if len(raw) - start != math.prod(shape):  # in Python's integers: a product of three may be 2^64, and 0
        sizes = " x ".join(map(str, shape))
        raise _wrong(path, f"{sizes} bytes after its header", f"{len(raw) - start} bytes")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()

"""Data sets by name: the table of image loaders, and the table of files to download."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mlayer.checks import flag, one_of, several
from mlayer.datasets import cifar10_binary, melbourne, mnist_idx, svhn_mat
from mlayer.datasets.cifar10_binary import cifar10
from mlayer.datasets.dataset_types import ImageSet, Split
from mlayer.datasets.download import Progress, fetch
from mlayer.datasets.local_files import DataPath, SourceFile
from mlayer.datasets.mnist_idx import mnist
from mlayer.datasets.sklearn_digits import digits
from mlayer.datasets.svhn_mat import svhn

_TestHalf = Callable[[DataPath, bool, bool, Progress | None], Split]
# Image sets in files: what loads both halves, and what loads the test half alone.
_LOADERS: dict[str, tuple[Callable[..., ImageSet], _TestHalf]] = {
    "mnist": (mnist, mnist_idx.test_half),
    "cifar10": (cifar10, cifar10_binary.test_half),
    "svhn": (svhn, svhn_mat.test_half),
}
IMAGE_SETS = (*_LOADERS, "digits")
_MODEL = "cifar10_model.npy"
AUTHORS_MODEL = SourceFile(
    _MODEL,
    ("abe15f55bffd5f26df664c87bd9a4db2d2cbc05dd086bc39c860cc66b7dc1d25",),
    "https://raw.githubusercontent.com/google-research/google-research/master/m_layer/" + _MODEL,
    (".",),
)
# What `fetch_sets` can fetch.
FILES: dict[str, tuple[SourceFile, ...]] = {
    "mnist": tuple(mnist_idx.FILES.values()),
    "cifar10": (*cifar10_binary.TRAIN, *cifar10_binary.TEST),
    "svhn": (svhn_mat.TRAIN, svhn_mat.TEST),
    "temperatures": (melbourne.FILE,),
    "authors_model": (AUTHORS_MODEL,),
}


def images(
    name: str,
    data: DataPath = None,
    *,
    download: bool = False,
    verify: bool = True,
    progress: Progress | None = None,
) -> ImageSet:
    """An image set by its name: "mnist", "cifar10", "svhn", or "digits", which needs no files.

    Args:
        name: of the set.
        data: the folder of the data sets; ``$MLAYER_DATA`` if None.
        download: fetch files that are missing.
        verify: refuse files whose checksums are not known.
        progress: called during a download with name, bytes so far, total bytes (or None).
    """
    one_of("name", name, IMAGE_SETS, "digits needs no files.")
    if name == "digits":
        return digits()
    return _LOADERS[name][0](data, download=download, verify=verify, progress=progress)


def evaluation_split(
    name: str,
    data: DataPath = None,
    *,
    download: bool = False,
    verify: bool = True,
    progress: Progress | None = None,
) -> Split:
    """The test half of an image set, read without the files of the training half; arguments as `images`.

    For evaluating a model that exists: CIFAR-10's test images are one file of 31 MB, the others five.

    >>> from mlayer.datasets import evaluation_split
    >>> len(evaluation_split("digits"))
    360
    """
    one_of("name", name, IMAGE_SETS, "digits needs no files.")
    flag("download", download)
    flag("verify", verify)
    if name == "digits":
        return digits().test
    return _LOADERS[name][1](data, download, verify, progress)


def fetch_sets(names: Iterable[str], data: DataPath = None, *, progress: Progress | None = None) -> None:
    """Download the files of these sets that the data folder lacks, without reading them.

    Checksums are compared before a file gets its name; a download that fails or is stopped leaves nothing
    behind.

    Args:
        names: of "mnist", "cifar10", "svhn", "temperatures", and "authors_model", the CIFAR-10 model that
            the authors released.
        data: the folder of the data sets; ``$MLAYER_DATA`` if None.
        progress: called with name, bytes so far, total bytes (or None).
    """
    names = several("names", names, "several names", 'For example ["mnist"].')
    for name in names:
        one_of("names", name, FILES, "Other sets need no files.")
    for name in names:
        fetch(data, FILES[name], progress)

"""The image sets by name, as a command line has them."""

from __future__ import annotations

from collections.abc import Callable

from mlayer.checks import one_of
from mlayer.datasets.cifar10_binary import cifar10
from mlayer.datasets.download import Progress
from mlayer.datasets.mnist_idx import mnist
from mlayer.datasets.places import DataPath
from mlayer.datasets.sets import ImageSet
from mlayer.datasets.sklearn_digits import digits
from mlayer.datasets.svhn_mat import svhn

_FROM_FILES: dict[str, Callable[..., ImageSet]] = {"mnist": mnist, "cifar10": cifar10, "svhn": svhn}
IMAGE_SETS = (*_FROM_FILES, "digits")


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
        verify: check the files' sums.
        progress: called during a download with name, bytes so far, bytes in all (or None).
    """
    one_of("name", name, IMAGE_SETS, "digits needs no files.")
    if name == "digits":
        return digits()
    return _FROM_FILES[name](data, download=download, verify=verify, progress=progress)

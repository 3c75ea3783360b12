"""Scikit-learn's digits, which need no files."""

from __future__ import annotations

import torch

from mlayer.datasets.dataset_types import ImageSet, Split
from mlayer.errors import MissingPackageError


def digits() -> ImageSet:
    """1,797 gray digits of 8 x 8 that come with scikit-learn; every fifth is for the test.

    >>> from mlayer.datasets import digits
    >>> small = digits()
    >>> len(small.train), len(small.test), small.image_shape
    (1437, 360, (8, 8))
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingPackageError(
            "datasets.digits", "scikit-learn", "pip install 'mlayer[estimators]'"
        ) from None
    bunch = load_digits()
    pixels = torch.from_numpy(bunch.images).to(torch.uint8)
    labels = torch.from_numpy(bunch.target).to(torch.int64)
    for_test = torch.arange(len(labels)) % 5 == 0
    whole = Split(pixels, labels, white=16)
    return ImageSet(
        whole.take(~for_test),
        whole.take(for_test),
        "digits",
        tuple(map(str, range(10))),
        (8, 8),
        "scikit-learn",
    )

"""Scikit-learn's digits, which need no files."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mlayer.datasets.dataset_types import ImageSet, Split
from mlayer.errors import MissingPackageError


def digits() -> ImageSet:
    """1,797 gray digits of 8 x 8 that come with scikit-learn; every fifth is for the test.

    >>> from mlayer.datasets import digits
    >>> small = digits()
    >>> len(small.train), len(small.test), small.image_shape
    (1437, 360, (8, 8))
    """
    table = _table()
    pixels = torch.from_numpy(table[:, :64].reshape(-1, 8, 8)).to(torch.uint8)
    labels = torch.from_numpy(table[:, 64]).to(torch.int64)
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


def _table() -> NDArray[np.float64]:
    """Rows of 64 pixels and the label, read from scikit-learn's file without importing scikit-learn.

    The import takes longer than anything that is done with the digits here.
    """
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise MissingPackageError("datasets.digits", "scikit-learn", "pip install 'mlayer[estimators]'")
    file = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not file.is_file():  # another version keeps it elsewhere
        from sklearn.datasets import load_digits

        bunch = load_digits()
        return np.column_stack([bunch.data, bunch.target])
    with gzip.open(file, "rt", encoding="ascii") as stream:
        table: NDArray[np.float64] = np.loadtxt(stream, delimiter=",")
    return table

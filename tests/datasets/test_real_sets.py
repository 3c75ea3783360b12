"""The image sets as published: sizes, means of the pixels, labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlayer.datasets import IMAGE_SETS, images

# Name, folder, sizes, and means of the training pixels as commonly published for normalization.
ROWS = [
    ("mnist", "mnist", (60_000, 10_000), [0.1307]),
    ("cifar10", "cifar-10-batches-bin", (50_000, 10_000), [0.4914, 0.4822, 0.4465]),
    ("svhn", "svhn", (73_257, 26_032), [0.4377, 0.4438, 0.4728]),
]


@pytest.mark.parametrize(("name", "folder", "sizes", "mean"), ROWS)
def test_real_sets(
    real_data: Path, name: str, folder: str, sizes: tuple[int, int], mean: list[float]
) -> None:
    if not (real_data / folder).exists():
        pytest.skip(f"$MLAYER_DATA has no {folder}")
    set_ = images(name, real_data)
    assert (len(set_.train), len(set_.test)) == sizes
    pixels = set_.train.pixels.reshape(sizes[0], -1, len(mean)).numpy()
    np.testing.assert_allclose(pixels.mean((0, 1), dtype=np.float64) / 255, mean, atol=6e-5)
    assert set_.train.labels.unique().tolist() == list(range(10))


def test_every_image_set_with_files_has_its_row() -> None:
    assert {row[0] for row in ROWS} == set(IMAGE_SETS) - {"digits"}

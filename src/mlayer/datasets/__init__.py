"""Data sets: loaders of the real ones in their original formats, generators of the synthetic ones."""

from mlayer.datasets.cifar10_binary import cifar10
from mlayer.datasets.dataset_types import ImageSet, Series, Split, Table
from mlayer.datasets.download import Progress
from mlayer.datasets.load_by_name import IMAGE_SETS, evaluation_split, fetch_sets, images
from mlayer.datasets.local_files import data_folder
from mlayer.datasets.melbourne import temperatures
from mlayer.datasets.mnist_idx import mnist
from mlayer.datasets.sklearn_digits import digits
from mlayer.datasets.svhn_mat import svhn
from mlayer.datasets.synthetic import (
    FIGURE_COSINES,
    Cosines,
    cosine_samples,
    determinants,
    permanent,
    permanents,
    random_cosines,
    spirals,
)

__all__ = [
    "FIGURE_COSINES",
    "IMAGE_SETS",
    "Cosines",
    "ImageSet",
    "Progress",
    "Series",
    "Split",
    "Table",
    "cifar10",
    "cosine_samples",
    "data_folder",
    "determinants",
    "digits",
    "evaluation_split",
    "fetch_sets",
    "images",
    "mnist",
    "permanent",
    "permanents",
    "random_cosines",
    "spirals",
    "svhn",
    "temperatures",
]

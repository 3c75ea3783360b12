"""Certified radii of the authors' released CIFAR-10 model by the paper's bound: section 3.7, the histogram.

    mlayer reproduce robustness             the first 2,000 test images
    mlayer reproduce robustness --full      all 10,000
    mlayer reproduce robustness --smoke     seconds, on a small untrained layer; no data needed

Expected (paper): delta_in about 200, ||S||_2 about 3, ||M||_2 between 3 and 4, radii of about 1e-5 on the
correctly classified test images. The model is looked for in the data folder as ``cifar10_model.npy``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mlayer.certificates import Certifier
from mlayer.datasets import cifar10, data_folder
from mlayer.errors import MissingDataError
from mlayer.experiments.protocol import Results, Where
from mlayer.files.authors import load_authors_model
from mlayer.nn import MLayer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Certified radii of the authors' CIFAR-10 model"
# "delta_in ~ 200, ||S||_2 ~ 3, ||M||_2 typically between 3 and 4", a typical bound of ~ 1e-5.
EXPECTED = {"radius": 1e-5, "delta_in": 200.0, "readout_norm": 3.0, "matrix_norm": [3.0, 4.0]}
MODEL = "cifar10_model.npy"
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Config:
    """What is certified.

    Attributes:
        seed: of the small layer, if there is one; the rest is not random.
        images: the first so many test images.
        released: the authors' model on CIFAR-10; False: a small untrained layer on random inputs.
    """

    seed: int = 0
    images: int = 2000
    released: bool = True


SCALES = {
    "smoke": Config(images=50, released=False),
    "default": Config(),
    "full": Config(images=10_000),
}


def run(config: Config, where: Where) -> Results:
    """The constants of the model and the radius of every correctly classified image."""
    layer, x, labels = _released(config, where) if config.released else _small(config)
    certifier = Certifier(layer, fit_steps=0)  # the paper's bound has nothing to fit
    found = certifier(
        x,
        labels,
        method="paper",
        progress=lambda done, total: where.say("certifying", done / total),
    )
    with torch.no_grad():
        norms = torch.linalg.matrix_norm(layer.matrix(x), 2)
    levels = torch.tensor(_LEVELS, dtype=torch.float64)
    radii = found.radius[found.correct]
    return {
        "images": len(x),
        "accuracy": round(100 * float(found.correct.double().mean()), 4),
        "delta_in": certifier.constants.delta_in,
        "readout_norm": certifier.constants.readout_norm,
        "matrix_norm": dict(zip(map(str, _LEVELS), norms.quantile(levels).tolist(), strict=True)),
        "radius": dict(zip(map(str, _LEVELS), radii.quantile(levels).tolist(), strict=True)),
        "radii": [float(f"{radius:.5g}") for radius in radii],
    }


def _released(config: Config, where: Where) -> tuple[MLayer, Tensor, Tensor]:
    folder = data_folder(where.data)
    path = None if folder is None else folder / MODEL
    if path is None or not path.is_file():
        raise MissingDataError(
            f"{MODEL}, the authors' released model, is not in "
            f"{'any data folder (argument data, or $MLAYER_DATA)' if folder is None else folder}. "
            "Get it from github.com/google-research/google-research, folder m_layer, and put it there."
        )
    test = cifar10(where.data).test.take(slice(0, config.images))
    return load_authors_model(path, dtype=torch.float64), test.images().double(), test.labels


def _small(config: Config) -> tuple[MLayer, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(config.seed)
    layer = MLayer(6, 3, 4, 5, generator=generator, dtype=torch.float64)
    x = torch.rand(config.images, 6, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return layer, x, layer(x).argmax(1)


def headline(results: Results) -> dict[str, float]:
    """The median radius and the model's constants."""
    return {
        "robustness.paper_median_radius": results["radius"]["0.5"],
        "robustness.delta_in": results["delta_in"],
        "robustness.readout_norm": results["readout_norm"],
        "robustness.median_matrix_norm": results["matrix_norm"]["0.5"],
        "robustness.accuracy": results["accuracy"],
    }


def plot(results: Results) -> Figure:
    """The paper's histogram: how many images have which radius."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.hist(results["radii"], bins=60, color="C0")
    axes.axvline(results["radius"]["0.5"], color="C3", label=f"median {results['radius']['0.5']:.2e}")
    axes.set_xlabel("certified $L_\\infty$ radius, the paper's bound")
    axes.set_ylabel("correctly classified images")
    axes.set_title(f"{len(results['radii']):,} of {results['images']:,} images")
    axes.legend()
    return figure

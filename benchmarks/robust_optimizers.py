"""Optimizers for certified training at 2/255 on CIFAR-10: accuracy on training images that were set aside.

    python benchmarks/robust_optimizers.py DATA            a quarter of an hour on a core; writes
                                                           results/robust_optimizers.json
    python benchmarks/robust_optimizers.py DATA --quick    one epoch of 2,000 images; no file

The layer and the recipe are those of `mlayer reproduce certified` (n = 32, d = 96, one cycle of the learning
rate), for 12 epochs on the first 45,000 training images, with three learning rates for each optimizer. The
last 5,000 are judged as they are and at the corner that two steps of the gradient's sign reach.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

import torch
from measure import circumstances, save

from mlayer.datasets import Split, images
from mlayer.experiments.certified import CIFAR10_SMALL
from mlayer.experiments.shared.image_augmentation import Augment
from mlayer.experiments.shared.image_training import colors
from mlayer.experiments.shared.robust_loss import PixelModel, box_of, last_corner
from mlayer.nn import MLayer
from mlayer.training import train

EPS, EPOCHS, ASIDE, SHAPE = 2 / 255, 12, 5000, (32, 32, 3)
RATES = {"sgd": (0.01, 0.03, 0.1), "adamw": (3e-4, 1e-3, 3e-3), "muon": (3e-5, 1e-4, 3e-4)}
# SGD as in the recipe of images: clipped gradients; decay as each optimizer understands it.
OPTIONS: dict[str, dict[str, Any]] = {
    "sgd": {"gradient_clip": 1.0, "weight_decay": 3e-4},
    "adamw": {"gradient_clip": 1.0, "weight_decay": 0.01},
    "muon": {},
}


def judged(model: PixelModel, aside: Split) -> dict[str, float]:
    """Percent of the images that are classified correctly, and that stay so under attack."""
    model.eval()
    clean = attacked = 0
    for begin in range(0, len(aside), 500):
        x, y = aside.images(slice(begin, begin + 500)), aside.labels[begin : begin + 500]
        corner = last_corner(model, y, *box_of(x, EPS), 2)
        with torch.no_grad():
            right = model(x).argmax(1) == y
            clean += int(right.sum())
            attacked += int((right & (model(corner).argmax(1) == y)).sum())
    return {"clean": round(100 * clean / len(aside), 2), "attacked": round(100 * attacked / len(aside), 2)}


def trained(optimizer: str, rate: float, training: Split, aside: Split, epochs: int) -> dict[str, Any]:
    """One training, judged at its end."""
    recipe = replace(
        CIFAR10_SMALL, optimizer=optimizer, learning_rate=rate, epochs=epochs, **OPTIONS[optimizer]
    )
    assert isinstance(recipe.matrix_size, int)
    mean, deviation = colors(training, SHAPE)
    layer = MLayer(
        3072,
        10,
        recipe.matrix_size,
        recipe.embedding_size,
        init="notebook",
        generator=torch.Generator().manual_seed(0),
    )
    model = PixelModel(layer, mean.repeat(1024), deviation.repeat(1024))
    settings = replace(recipe.settings(len(training), EPS, 0), on_divergence="stop")
    pixels = recipe.augmentation.widened(training.pixels.view(-1, *SHAPE))
    augment = Augment(recipe.augmentation, SHAPE, white=training.white)
    result = train(model, (pixels, training.labels), settings, augment=augment)
    row = {"optimizer": optimizer, "learning_rate": rate, "epochs": epochs, "stopped": result.stopped}
    row |= {"loss": round(result.history[-1]["loss"], 4), **judged(model, aside)}
    print(row, flush=True)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", help="folder of the data sets")
    parser.add_argument("--quick", action="store_true", help="one epoch of 2,000 images; no file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    whole = images("cifar10", options.data).train
    training, aside = whole.take(slice(0, len(whole) - ASIDE)), whole.take(slice(len(whole) - ASIDE, None))
    if options.quick:
        training, aside = training.take(slice(0, 2000)), aside.take(slice(0, 500))
    rows = [
        trained(optimizer, rate, training, aside, 1 if options.quick else EPOCHS)
        for optimizer, rates in RATES.items()
        for rate in rates
    ]
    if not options.quick:
        facts = circumstances() | {"command": "python benchmarks/robust_optimizers.py DATA"}
        save("robust_optimizers", {"circumstances": facts, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Certified training at 2/255 on CIFAR-10, optimizers and flip invariance: accuracy on images set aside.

    python benchmarks/robust_optimizers.py DATA            20 minutes on a core; writes
                                                           results/robust_optimizers.json
    python benchmarks/robust_optimizers.py DATA --resume   the rows that the file lacks
    python benchmarks/robust_optimizers.py DATA --quick    one epoch of 2,000 images; no file

The recipe is that of `mlayer reproduce certified` (d = 96, one cycle of the learning rate), with n = 32 and
images that are shifted only, for 12 epochs on the first 45,000 training images. An ordinary layer is trained
on flipped images too, with three learning rates for each optimizer; the flip-invariant layer with the best
of these. The last 5,000 images are judged as they are and at the corner that two steps of the gradient's sign
reach.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import torch
from measure import RESULTS, argument_parser, circumstances, save

from mlayer.datasets import Split, images
from mlayer.experiments.certified import CIFAR10_SMALL
from mlayer.experiments.shared.image_augmentation import Augment, Augmentation
from mlayer.experiments.shared.robust_loss import PixelModel, box_of, last_corner
from mlayer.experiments.shared.robust_training import RobustRecipe, build_model
from mlayer.training import train

EPS, EPOCHS, ASIDE, SHAPE = 2 / 255, 12, 5000, (32, 32, 3)
RATES = {"sgd": (0.01, 0.03, 0.1), "adamw": (3e-4, 1e-3, 3e-3), "muon": (3e-5, 1e-4, 3e-4)}
# SGD as in the recipe of images: clipped gradients; decay as each optimizer understands it.
OPTIONS: dict[str, dict[str, Any]] = {
    "sgd": {"gradient_clip": 1.0, "weight_decay": 3e-4},
    "adamw": {"gradient_clip": 1.0, "weight_decay": 0.01},
    "muon": {},
}
# The recipe before larger matrices, distorted images and a limit on the frequencies: see `robust_recipes.py`.
SHIFTED = replace(
    CIFAR10_SMALL,
    matrix_size=32,
    learning_rate=1e-4,
    batch_size=128,
    augmentation=Augmentation(shift=3),
    frequencies=None,
)
INVARIANT = ("muon", 1e-4, True)  # the best of the rates for the ordinary layer


def parts_of(data: str, *, quick: bool) -> tuple[Split, Split]:
    """The training images without the last ones, and these; a few of both if it is to be quick."""
    whole = images("cifar10", data).train
    training, aside = whole.take(slice(0, len(whole) - ASIDE)), whole.take(slice(len(whole) - ASIDE, None))
    return (training.take(slice(0, 2000)), aside.take(slice(0, 500))) if quick else (training, aside)


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


def trained(recipe: RobustRecipe, training: Split, aside: Split) -> dict[str, Any]:
    """One training, judged at its end."""
    model = build_model(recipe, training, SHAPE, classes=10, seed=0, linear=False)
    settings = replace(recipe.settings(len(training), EPS, 0), on_divergence="stop")
    pixels = recipe.augmentation.widened(training.pixels.view(-1, *SHAPE))
    augment = Augment(recipe.augmentation, SHAPE, white=training.white)
    result = train(model, (pixels, training.labels), settings, augment=augment)
    found = {"epochs": recipe.epochs, "stopped": result.stopped}
    return found | {"loss": round(result.history[-1]["loss"], 4), **judged(model, aside)}


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("data", help="folder of the data sets")
    parser.add_argument("--quick", action="store_true", help="one epoch of 2,000 images; no file")
    parser.add_argument("--resume", action="store_true", help="keep the rows of the present file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training, aside = parts_of(options.data, quick=options.quick)
    facts = circumstances() | {"command": "python benchmarks/robust_optimizers.py DATA"}
    file = RESULTS / "robust_optimizers.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text())["rows"] if options.resume else []
    wanted = [(name, rate, False) for name, rates in RATES.items() for rate in rates]
    for optimizer, rate, invariant in [*wanted, INVARIANT]:
        key = {"optimizer": optimizer, "learning_rate": rate, "flip_invariant": invariant}
        if any(key.items() <= row.items() for row in rows):
            continue
        recipe = replace(
            SHIFTED,
            optimizer=optimizer,
            learning_rate=rate,
            epochs=1 if options.quick else EPOCHS,
            flip_invariant=invariant,
            # A layer that does not see flips needs no flipped images.
            augmentation=replace(SHIFTED.augmentation, flip=not invariant),
            **OPTIONS[optimizer],
        )
        rows.append(key | trained(recipe, training, aside) | {"commit": facts["commit"]})
        print(rows[-1], flush=True)
        if not options.quick:
            save("robust_optimizers", {"circumstances": facts, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One certified training of a small convolutional network: split, train on interval bounds, test once.

The last images of the training set are set aside: the epoch whose bounds certify most of them is kept. The
test set is read once, after that.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from mlayer.certificates.networks.certifier import Effort
from mlayer.datasets import ImageSet
from mlayer.disk import make_folder
from mlayer.experiments.running.protocol import RunContext
from mlayer.experiments.shared.dense import parameter_count
from mlayer.experiments.shared.image_augmentation import Augment, Augmentation
from mlayer.experiments.shared.interval_loss import BoundedNetwork, IntervalCrossEntropy, as_images
from mlayer.experiments.shared.interval_network import interval_network
from mlayer.experiments.shared.network_accuracy import network_tally
from mlayer.files.network_file import save_network
from mlayer.training import Settings


@dataclass(frozen=True)
class IntervalRecipe:
    """The recipe of a network."""

    channels: tuple[int, int] = (16, 32)  # of the two convolutions
    features: int = 64  # that reach the head
    matrix_size: int = 8  # n of the M-layer
    embedding_size: int = 16  # d of the M-layer
    epochs: int = 20  # of one cycle of the learning rate
    learning_rate: float = 2e-3  # its largest, of Adam
    gradient_clip: float = 5.0  # largest norm of a gradient
    batch_size: int = 128  # of the optimizer
    start: float = 0.04  # the part of the training with radius 0
    ramp: float = 0.5  # the part of the training over which the radius then grows
    stretch: float = 1.0  # the radius while training, as a multiple of the one in the test
    bounded: float = 0.5  # the share of the bounds in the loss, at the end of the ramp
    validation: int = 5000  # training images that are set aside
    augmentation: Augmentation = field(default_factory=Augmentation)  # of training images
    efforts: tuple[Effort, ...] = ("intervals", "margins")  # of the certificates

    def settings(self, examples: int, eps: float, seed: int) -> Settings:
        """The settings of `mlayer.training.train` for a network that is to be certified at eps."""
        batches = self.epochs * math.ceil(examples / self.batch_size)
        loss = IntervalCrossEntropy(
            self.stretch * eps, eps, round(self.start * batches), round(self.ramp * batches), self.bounded
        )
        return Settings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            loss=loss,
            optimizer="adam",
            learning_rate=self.learning_rate,
            schedule="one_cycle",
            gradient_clip=self.gradient_clip,
            metrics=("accuracy",),  # of the bounds: see the loss
            monitor="accuracy",
            seed=seed,
        )


def train_network(
    part: str,
    *,
    images: ImageSet,
    recipe: IntervalRecipe,
    eps: float,
    head: str,
    seed: int,
    context: RunContext,
    test_images: int | None = None,
) -> dict[str, Any]:
    """Train one network at eps, keep it, and test it once: one :meth:`RunContext.part` of an experiment.

    ``eps`` is an L-infinity radius in pixel values, ``head`` one of `HEADS`. The first ``test_images`` are
    tested, all if None. The result has clean, attacked and certified accuracy in percent, and how the
    training went.
    """
    shape = images.color_shape
    kept = len(images.train) - recipe.validation
    training, validation = images.train.take(slice(0, kept)), images.train.take(slice(kept, None))
    network = interval_network(
        (shape[2], shape[0], shape[1]),
        len(images.classes),
        head,
        channels=recipe.channels,
        features=recipe.features,
        matrix_size=recipe.matrix_size,
        embedding_size=recipe.embedding_size,
        generator=torch.Generator().manual_seed(seed),
    )
    model = BoundedNetwork(network, shape)
    result = context.train(
        model,
        (recipe.augmentation.widened(training.pixels.view(-1, *shape)), training.labels),
        recipe.settings(len(training), eps, seed),
        part,
        f"{part}: training",
        validation=(validation.images(), validation.labels),
        augment=Augment(recipe.augmentation, shape, white=training.white),
    )
    parameters = parameter_count(network)
    network.eval().requires_grad_(False)
    if context.models is not None:
        make_folder(context.models)
        notes = {"set": images.name, "eps": eps, "head": head, "seed": seed, "efforts": list(recipe.efforts)}
        save_network(network, context.models / f"{part}.safetensors", notes)
    started = time.monotonic()
    with torch.no_grad():
        right = network(as_images(validation.images(), shape)).argmax(1) == validation.labels
    tested = images.test if test_images is None else images.test.take(slice(0, test_images))
    tally = network_tally(
        network,
        as_images(tested.images(), shape),
        tested.labels,
        eps,
        efforts=recipe.efforts,
        progress=lambda done: context.say(f"{part}: certifying", done),
    )
    best = result.history[result.best_epoch - 1] if result.best_epoch else {}
    return {
        "set": images.name,
        "eps": eps,
        "model": head,
        "seed": seed,
        "parameters": parameters,
        **tally.facts(),
        "validation_clean": round(100 * float(right.double().mean()), 3),
        "validation_certified": round(100 * best.get("validation_accuracy", 0.0), 3),
        "training_examples": len(training),
        "epochs": len(result.history),
        "best_epoch": result.best_epoch,
        "training_seconds": round(result.seconds, 1),
        "test_seconds": round(time.monotonic() - started, 1),
        # A resumed training brought its time with it.
        "seconds": round(result.seconds + time.monotonic() - started, 1),
        "history": [
            [record["epoch"], round(record["loss"], 4), round(100 * record["validation_accuracy"], 2)]
            for record in result.history
        ],
    }

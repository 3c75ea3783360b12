"""One certified training of a small convolutional network: split, train by a recipe, test once.

The last images of the training set are set aside: they judge every epoch, and with interval bounds the best
one is kept. The test set is read once, after that.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch

from mlayer.certificates.networks.certifier import Effort
from mlayer.datasets import ImageSet, Split
from mlayer.disk import make_folder
from mlayer.experiments.running.protocol import RunContext
from mlayer.experiments.shared.dense import parameter_count
from mlayer.experiments.shared.image_augmentation import Augment, Augmentation
from mlayer.experiments.shared.interval_loss import as_images
from mlayer.experiments.shared.network_accuracy import network_tally
from mlayer.files.network_file import save_network
from mlayer.training import Settings


class NetworkRecipe(Protocol):
    """The parts of a recipe that `train_network` reads."""

    @property
    def validation(self) -> int:
        """Training images that are set aside."""

    @property
    def augmentation(self) -> Augmentation:
        """The random change of training images."""

    @property
    def efforts(self) -> tuple[Effort, ...]:
        """The efforts of the certificates."""

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads that it can train."""

    @property
    def judged(self) -> str:
        """The kind of the validation accuracy in each epoch: "certified" or "attacked"."""

    def model(
        self, training: Split, shape: tuple[int, ...], *, classes: int, head: str, seed: int
    ) -> Any:  # a module with one method more
        """The model to be trained, of flat images; its ``plain()`` is the network of images in [0, 1]."""

    def settings(self, examples: int, eps: float, seed: int) -> Settings:
        """The settings of `mlayer.training.train`."""


def train_network(
    part: str,
    *,
    images: ImageSet,
    recipe: NetworkRecipe,
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
    model = recipe.model(training, shape, classes=len(images.classes), head=head, seed=seed)
    settings = recipe.settings(len(training), eps, seed)
    result = context.train(
        model,
        (recipe.augmentation.widened(training.pixels.view(-1, *shape)), training.labels),
        settings,
        part,
        f"{part}: training",
        validation=(validation.images(), validation.labels),
        augment=Augment(recipe.augmentation, shape, white=training.white),
    )
    network = model.plain()
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
    kept_epoch = result.best_epoch if settings.restore_best else len(result.history)
    best = result.history[kept_epoch - 1] if kept_epoch else {}
    return {
        "set": images.name,
        "eps": eps,
        "model": head,
        "seed": seed,
        "parameters": parameters,
        **tally.facts(),
        "validation_clean": round(100 * float(right.double().mean()), 3),
        f"validation_{recipe.judged}": round(100 * best.get("validation_accuracy", 0.0), 3),
        "training_examples": len(training),
        "epochs": len(result.history),
        "best_epoch": kept_epoch,
        "training_seconds": round(result.seconds, 1),
        "test_seconds": round(time.monotonic() - started, 1),
        # A resumed training brought its time with it.
        "seconds": round(result.seconds + time.monotonic() - started, 1),
        "history": [
            [record["epoch"], round(record["loss"], 4), round(100 * record["validation_accuracy"], 2)]
            for record in result.history
        ],
    }

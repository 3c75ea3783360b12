"""One robust training of an image classifier, an M-layer or a linear layer, by one recipe."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mlayer.datasets import ImageSet, Split
from mlayer.disk import make_folder
from mlayer.experiments.running.protocol import RunContext
from mlayer.experiments.shared.dense import parameter_count
from mlayer.experiments.shared.flip_invariant import FlipParity
from mlayer.experiments.shared.image_augmentation import Augment, Augmentation
from mlayer.experiments.shared.image_training import colors, fold_in
from mlayer.experiments.shared.robust_accuracy import tally_of
from mlayer.experiments.shared.robust_loss import PixelModel, RobustCrossEntropy
from mlayer.files.network_file import save_network
from mlayer.nn import BlockTriangular, MLayer
from mlayer.training import Settings

_REFERENCES = 64


@dataclass(frozen=True)
class RobustRecipe:
    """The recipe of a robust classifier."""

    # n; or the sizes of blocks: three give an M-layer of degree two, see `BlockTriangular`
    matrix_size: int | tuple[int, ...]
    embedding_size: int  # d
    epochs: int  # of one cycle of the learning rate
    learning_rate: float = 0.1  # its largest
    weight_decay: float = 3e-4  # of the optimizer
    activity_penalty: float = 0.0  # times the sum of |exp(M)|, added to the loss
    gradient_clip: float | None = 1.0  # largest norm of a gradient; None: any
    attack_steps: int = 1  # gradient steps to the corner where the loss is taken
    ramp: float = 0.0  # the part of the training over which eps grows from 0
    worst_of_way: bool = False  # take the worst point on the attack's way, not its last corner; for large eps
    # eps while training, as a multiple of the one in the test: more makes up for overfitting
    stretch: float = 1.0
    augmentation: Augmentation = field(default_factory=Augmentation)  # of training images
    batch_size: int = 128  # of the optimizer
    optimizer: str = "sgd"  # "sgd", with Nesterov momentum 0.9, or another name of `mlayer.training`
    flip_invariant: bool = False  # an image and its mirror image have the same outputs, see `FlipParity`
    # of the images, along each side, that a flip-invariant layer reads, from the lowest; None: all
    frequencies: int | None = None

    def settings(self, examples: int, eps: float, seed: int) -> Settings:
        """The settings of `mlayer.training.train` for a model that is to withstand eps."""
        batches = self.epochs * math.ceil(examples / self.batch_size)
        return Settings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            loss=RobustCrossEntropy(
                self.stretch * eps, self.attack_steps, round(self.ramp * batches), self.worst_of_way
            ),
            optimizer=self.optimizer,
            optimizer_options={"momentum": 0.9, "nesterov": True} if self.optimizer == "sgd" else {},
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            schedule="one_cycle",
            gradient_clip=self.gradient_clip,
            activity_penalty=self.activity_penalty,
            activity_kind="l1",
            restore_best=False,
            seed=seed,
        )


def train_robustly(
    part: str,
    *,
    images: ImageSet,
    recipe: RobustRecipe,
    eps: float,
    seed: int,
    context: RunContext,
    linear: bool = False,
    test_images: int | None = None,
    fit_steps: int = 0,
) -> dict[str, Any]:
    """Train one model at eps and test it once: one :meth:`RunContext.part` of an experiment.

    ``eps`` is an L-infinity radius in pixel values. ``test_images`` are spread evenly over the test set, all
    if None; ``fit_steps`` are of the constants of the certificates, where the layer's expansion does not end.
    The result has clean, attacked and certified accuracy in percent, and how the training went.
    """
    training = images.train
    shape = images.color_shape
    model = build_model(recipe, training, shape, classes=len(images.classes), seed=seed, linear=linear)
    body, parity = model.body, model.basis if isinstance(model.basis, FlipParity) else None
    assert isinstance(body, MLayer | nn.Linear)
    parameters = parameter_count(body)
    if parity is not None:
        parameters -= sum(int((mask == 0).sum()) for mask in parity.masks(body).values())
    result = context.train(
        model,
        (recipe.augmentation.widened(training.pixels.view(-1, *shape)), training.labels),
        recipe.settings(len(training), eps, seed),
        part,
        f"{part}: training",
        augment=Augment(recipe.augmentation, shape, white=training.white),  # the model standardizes by itself
    )
    tested_model = _plain(body, -model.offset / model.scale, 1 / model.scale, parity)
    steps = fit_steps if isinstance(recipe.matrix_size, int) else 0
    if context.models is not None and isinstance(tested_model, MLayer):
        make_folder(context.models)
        notes = {"set": images.name, "eps": eps, "head": "M-layer", "seed": seed, "fit_steps": steps}
        save_network(nn.Sequential(tested_model), context.models / f"layer-{part}.safetensors", notes)
    trained = time.monotonic()
    tested = images.test if test_images is None else images.test.take(evenly(len(images.test), test_images))
    tally = tally_of(
        tested_model,
        tested,
        eps,
        training.images(slice(0, _REFERENCES)),
        fit_steps=steps,
        folder=context.checkpoint(part),
        progress=lambda done: context.say(f"{part}: certifying", done),
    )
    return {
        "set": images.name,
        "eps": eps,
        "model": "linear" if linear else "M-layer",
        "seed": seed,
        "parameters": parameters,
        **tally.percent(),
        "training_examples": len(training),
        "epochs": len(result.history),
        "training_seconds": round(result.seconds, 1),
        "test_seconds": round(time.monotonic() - trained, 1),
        # A resumed training brought its time with it.
        "seconds": round(result.seconds + time.monotonic() - trained, 1),
        "losses": [round(record["loss"], 4) for record in result.history],
    }


def build_model(
    recipe: RobustRecipe, training: Split, shape: tuple[int, ...], *, classes: int, seed: int, linear: bool
) -> PixelModel:
    """The model to be trained: an M-layer or a linear layer on standardized images, as the recipe says."""
    pixels = shape[0] * shape[1]
    mean, deviation = colors(training, shape)
    generator = torch.Generator().manual_seed(seed)
    parity = FlipParity(shape, recipe.frequencies) if recipe.flip_invariant else None
    body = _body(recipe, pixels * shape[2], classes, generator, linear)
    if parity is not None:
        _change_inputs(body, parity)
        parity.restrict(body)
    return PixelModel(body, mean.repeat(pixels), deviation.repeat(pixels), parity)


def evenly(total: int, count: int) -> slice:
    """A slice of at least ``count`` of ``total`` places at equal distances, or of all of them.

    >>> list(range(10))[evenly(10, 3)], list(range(4))[evenly(4, 9)]
    ([0, 3, 6, 9], [0, 1, 2, 3])
    """
    return slice(None, None, max(1, total // count))


def _body(
    recipe: RobustRecipe, inputs: int, classes: int, generator: torch.Generator, linear: bool
) -> MLayer | nn.Linear:
    if not linear:
        size = recipe.matrix_size
        matrix_size, structure, init = (
            (size, "full", "notebook")
            if isinstance(size, int)
            else (sum(size), BlockTriangular(size), "balanced")
        )
        return MLayer(
            inputs,
            classes,
            matrix_size,
            recipe.embedding_size,
            structure=structure,
            init=init,
            generator=generator,
        )
    layer = nn.Linear(inputs, classes)
    with torch.no_grad():  # zeros: a convex problem needs no random start
        layer.weight.zero_()
        layer.bias.zero_()
    return layer


def _plain(
    body: MLayer | nn.Linear, mean: Tensor, deviation: Tensor, parity: FlipParity | None = None
) -> MLayer | nn.Linear:
    """A model of (x - mean) / deviation as the same model of x, ready to be certified."""
    if parity is not None:
        parity.release(body)
        _change_inputs(body, parity.to_pixels)
    plain = body.with_structure("full") if isinstance(body, MLayer) else body
    fold_in(plain, mean, deviation)
    return plain


@torch.no_grad()
def _change_inputs(body: MLayer | nn.Linear, change: Callable[[Tensor], Tensor]) -> None:
    """Change the weights of the inputs, and with them the number of inputs."""
    name = "embedding" if isinstance(body, MLayer) else "weight"
    weight = nn.Parameter(change(getattr(body, name)))
    setattr(body, name, weight)
    body.in_features = weight.shape[1]

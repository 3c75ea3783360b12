"""One training of an image classifier: split, train by a recipe, fold, test once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from mlayer.datasets import ImageSet, Split
from mlayer.experiments.running.protocol import RunContext
from mlayer.experiments.shared.dense import parameter_count
from mlayer.experiments.shared.image_augmentation import Augment
from mlayer.experiments.shared.image_recipes import ImageRecipe
from mlayer.nn import MLayer
from mlayer.training import evaluate

# What a row of a search keeps of the row of a training.
_SEARCH_FACTS = ("set", "epochs", "stopped", "seconds", "training_examples", "validation_accuracy")
_SAMPLE = 7  # every seventh image gives the colors' mean and deviation well enough


# Makes the net to be trained, from flat images to scores: of inputs, classes, initial weights, generator.
Build = Callable[[int, int, str, torch.Generator], nn.Module]


def layer_builder(matrix_size: int = 30, embedding_size: int = 35) -> Build:
    """Makes an M-layer, of the paper's sizes by default, with the initial weights of the recipe."""
    return lambda inputs, classes, init, generator: MLayer(
        inputs, classes, matrix_size, embedding_size, init=init, generator=generator
    )


def train_images(
    images: ImageSet,
    recipe: ImageRecipe,
    seed: int,
    context: RunContext,
    part: str,
    *,
    build: Build,
    then: Callable[[nn.Module], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Train one model and test it once.

    The seed draws the validation set, the initial weights, the order and the augmentation. A resumed
    experiment does not repeat a finished training. The result has accuracies in percent, how the training
    went, and what ``then`` measures of the trained net.
    """

    def make(name: str) -> dict[str, Any]:
        started = time.monotonic()
        generator = torch.Generator().manual_seed(seed)
        training, validation = split(images.train, recipe.validation, generator)
        shape = images.color_shape
        plain = torch.zeros(shape[2]), torch.ones(shape[2])
        mean, deviation = colors(training, shape) if recipe.standardize else plain
        inputs = recipe.augmentation.widened(training.pixels.view(-1, *shape))
        net = build(shape[0] * shape[1] * shape[2], len(images.classes), recipe.init, generator)
        settings = replace(recipe.settings, seed=seed)
        judged = None
        if validation is not None:
            judged = _standardized(validation, shape, mean, deviation), validation.labels
        augment = Augment(recipe.augmentation, shape, mean, deviation, training.white)
        data = inputs, training.labels
        result = context.train(net, data, settings, name, validation=judged, augment=augment)
        if recipe.standardize:
            fold_in(net, mean.repeat(shape[0] * shape[1]), deviation.repeat(shape[0] * shape[1]))
        tested = evaluate(
            net, (images.test.images(), images.test.labels), replace(settings, metrics=("accuracy",))
        )
        row = {
            "set": images.name,
            "seed": seed,
            "parameters": parameter_count(net),
            "test_accuracy": round(100 * tested["accuracy"], 4),
            "test_loss": tested["loss"],
            "validation_accuracy": _best_validation(result.history, result.best_epoch),
            "training_examples": len(training),
            "best_epoch": result.best_epoch,
            "epochs": len(result.history),
            "stopped": result.stopped,
            "message": result.message,
            "seconds": round(result.seconds if result.resumed_at else time.monotonic() - started, 1),
            "history": [_short(record) for record in result.history],
        }
        return row if then is None else row | then(net)

    return context.part(part, make)


def search_rates(
    images: ImageSet,
    recipes: Mapping[float, ImageRecipe],
    seed: int,
    context: RunContext,
    part: str,
    *,
    build: Build,
) -> Iterator[dict[str, Any]]:
    """One short training for each rate, by its recipe, judged on a tenth of the training set."""
    for rate, recipe in recipes.items():
        settings = replace(recipe.settings, metrics=("accuracy",), monitor="accuracy")
        trial = replace(recipe, settings=settings, validation=0.1)
        row = train_images(images, trial, seed, context, f"search-{part}-{rate:g}", build=build)
        yield {"learning_rate": rate} | {key: row[key] for key in _SEARCH_FACTS}


def split(images: Split, part: float, generator: torch.Generator) -> tuple[Split, Split | None]:
    """A shuffled training set and the part of it that is set aside, if any."""
    order = torch.randperm(len(images), generator=generator)
    aside = round(part * len(images))
    return images.take(order[aside:]), images.take(order[:aside]) if aside else None


@torch.no_grad()
def fold_in(net: nn.Module, mean: Tensor, deviation: Tensor) -> None:
    """Change a net for (x - mean) / deviation, linear at its inputs, into the same net for x."""
    first = next(part for part in net.modules() if isinstance(part, nn.Linear | MLayer))
    weight, bias = (
        (first.embedding, first.embedding_bias) if isinstance(first, MLayer) else (first.weight, first.bias)
    )
    assert weight is not None
    assert bias is not None
    weight.div_(deviation)
    bias.sub_(weight @ mean)


def colors(images: Split, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each color, of pixel values in [0, 1]."""
    sample = images.images(slice(None, None, _SAMPLE)).view(-1, shape[2]).double()
    return sample.mean(0).float(), sample.std(0).float()


def _standardized(images: Split, shape: tuple[int, ...], mean: Tensor, deviation: Tensor) -> Tensor:
    return images.images(flat=False).view(-1, *shape).sub_(mean).div_(deviation).flatten(1)


def _best_validation(history: list[dict[str, Any]], epoch: int) -> float | None:
    if not epoch or "validation_accuracy" not in history[epoch - 1]:
        return None
    return round(100 * history[epoch - 1]["validation_accuracy"], 4)


def _short(record: dict[str, Any]) -> list[float]:
    """Epoch, training loss, and validation accuracy if there is one."""
    row = [record["epoch"], round(record["loss"], 5)]
    if "validation_accuracy" in record:
        row.append(round(100 * record["validation_accuracy"], 3))
    return row

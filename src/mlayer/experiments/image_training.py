"""One training of an image classifier: split, train by a recipe, fold, test once."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlayer.datasets import ImageSet, Split
from mlayer.disk import replace_bytes
from mlayer.experiments.dense import parameter_count
from mlayer.experiments.image_augmentation import Augment
from mlayer.experiments.image_recipes import Recipe
from mlayer.experiments.protocol import Where
from mlayer.nn import MLayer
from mlayer.training import evaluate, train

_SAMPLE = 7  # every seventh image tells the colours' mean and deviation well enough


def train_images(
    images: ImageSet,
    recipe: Recipe,
    seed: int,
    where: Where,
    part: str,
    *,
    matrix_size: int = 30,
    embedding_size: int = 35,
) -> dict[str, Any]:
    """Train one model and test it once.

    The seed draws the validation set, the initial weights, the order and the augmentation. What a finished
    training gave is kept in its checkpoint folder, so that a resumed experiment does not repeat it.

    Returns:
        Accuracies in per cent, and how the training went.
    """
    finished = _finished_file(where, part)
    if finished is not None and finished.exists():
        known: dict[str, Any] = json.loads(finished.read_text())
        return known
    started = time.monotonic()
    generator = torch.Generator().manual_seed(seed)
    training, validation = split(images.train, recipe.validation, generator)
    shape = (*images.image_shape, 1)[:3]
    mean, deviation = colours(training, shape) if recipe.standardise else _plain(shape)
    inputs = recipe.augmentation.widened(training.pixels.view(-1, *shape))
    layer = MLayer(
        shape[0] * shape[1] * shape[2],
        len(images.classes),
        matrix_size,
        embedding_size,
        init=recipe.init,
        generator=generator,
    )
    settings = replace(recipe.settings, seed=seed)
    result = train(
        layer,
        (inputs, training.labels),
        settings,
        validation=None
        if validation is None
        else (_standardised(validation, shape, mean, deviation), validation.labels),
        checkpoint=where.checkpoint(part),
        progress=where.follow(part),
        augment=Augment(recipe.augmentation, shape, mean, deviation, training.white),
    )
    fold_in(layer, mean.repeat(shape[0] * shape[1]), deviation.repeat(shape[0] * shape[1]))
    tested = evaluate(
        layer, (images.test.images(), images.test.labels), replace(settings, metrics=("accuracy",))
    )
    row = {
        "set": images.name,
        "seed": seed,
        "parameters": parameter_count(layer),
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
    if finished is not None:
        replace_bytes(finished, json.dumps(row).encode())
    return row


def split(images: Split, part: float, generator: torch.Generator) -> tuple[Split, Split | None]:
    """A shuffled training set and the part of it that is set aside, if any."""
    order = torch.randperm(len(images), generator=generator)
    aside = round(part * len(images))
    return images.take(order[aside:]), images.take(order[:aside]) if aside else None


@torch.no_grad()
def fold_in(layer: MLayer, mean: Tensor, deviation: Tensor) -> None:
    """Change a layer for (x - mean) / deviation into the same layer for x."""
    assert layer.embedding is not None
    assert layer.embedding_bias is not None
    layer.embedding.div_(deviation)
    layer.embedding_bias.sub_(layer.embedding @ mean)


def colours(images: Split, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each colour, of pixel values in [0, 1]."""
    sample = images.images(slice(None, None, _SAMPLE)).view(-1, shape[2]).double()
    return sample.mean(0).float(), sample.std(0).float()


def _plain(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return torch.zeros(shape[2]), torch.ones(shape[2])


def _standardised(images: Split, shape: tuple[int, ...], mean: Tensor, deviation: Tensor) -> Tensor:
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


def _finished_file(where: Where, part: str) -> Path | None:
    folder = where.checkpoint(part)
    return None if folder is None else folder / "finished.json"

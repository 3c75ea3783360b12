"""One training run of the estimators: a layer, standardized rows, a recipe."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mlayer.estimators.all_rows import NO_STEP, Objective, fit_all_rows
from mlayer.estimators.penalty import Ridge
from mlayer.estimators.rows import Rows
from mlayer.estimators.watch import Listener, OutOfTimeError
from mlayer.nn import MLayer
from mlayer.training import LOSSES, Settings, TrainingResult, train
from mlayer.training.progress import as_progress

_CHUNK = 4096  # rows in one batch without gradients
# The cost of an epoch is measured on this many batches; this share of the time left is planned for.
_TRIAL_BATCHES = 20
_SAFE_SHARE = 0.85
# From this number of rows on classifiers are fitted in float32, in half of the time: such fits end at gains
# of 0.05% of the loss, which float32 has digits for, and on five tables the held-out losses were the same
# within 1%. Squared errors may fall without end, and need float64.
_ROWS_IN_SINGLE = 1000


@dataclass(frozen=True)
class Tensors:
    """Standardized rows in the precision of the layer."""

    x: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def rows(self) -> Rows:
        """The tensors as float64 arrays of numpy."""
        return Rows(*(each.double().numpy() for each in (self.x, self.y, self.weight)))

    def double(self) -> Tensors:
        """The tensors in float64; class numbers as they are."""
        y = self.y.double() if self.y.is_floating_point() else self.y
        return Tensors(self.x.double(), y, self.weight.double())

    def float(self) -> Tensors:
        """Inputs and weights in float32."""
        return Tensors(self.x.float(), self.y, self.weight.float())

    def some(self, most: int, seed: int) -> Tensors:
        """Rows drawn at random, in their order, if there are more than ``most``."""
        if len(self) <= most:
            return self
        chosen = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:most]
        return self.part(chosen.sort().values)

    def part(self, chosen: Tensor) -> Tensors:
        """The chosen rows, weights again of mean 1."""
        weight = self.weight[chosen]
        return Tensors(self.x[chosen], self.y[chosen], weight / weight.mean())


@dataclass(frozen=True)
class Recipe:
    """The settings of a training, with nothing left to choose."""

    loss: str  # "cross_entropy" or "squared_error"
    penalty: str  # a name of `PENALTIES`
    alpha: float  # its factor
    activity_penalty: float  # the factor of the paper's
    solver: str  # "lbfgs" (all rows in each step), or the name of an optimizer for batches
    max_iter: int  # iterations of L-BFGS, or epochs
    learning_rate: float  # of the other optimizers
    batch_size: int  # likewise
    patience: int  # epochs without improvement on the validation rows
    seed: int  # of shuffling


@dataclass(frozen=True)
class Fit:
    """A trained layer and how the training went."""

    layer: MLayer
    result: TrainingResult
    iterations: int


def fit_layer(
    layer: MLayer,
    data: Tensors,
    recipe: Recipe,
    *,
    validation: Tensors | None = None,
    progress: bool | Listener = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> Fit:
    """Train ``layer`` in place; with ``optimizer``, if given, at its own constant rate.

    Ends with finite weights whatever happens; the result says what did. A listener whose time is over ends
    the training where it is.
    """
    if recipe.solver == "lbfgs":
        result = None
        if recipe.loss == "cross_entropy" and len(data) >= _ROWS_IN_SINGLE and data.x.dtype == torch.float64:
            single = copy.deepcopy(layer).float()  # a copy: constants of the structure keep their digits
            result = _on_all_rows(single, data.float(), recipe, progress)
            with torch.no_grad():
                for weights, found in zip(layer.parameters(), single.parameters(), strict=True):
                    weights.copy_(found)
        if result is None or result.stopped == "diverged" or result.message == NO_STEP:
            result = _on_all_rows(layer, data, recipe, progress)
        return Fit(layer, result, max(1, result.steps))
    ridge = Ridge(recipe.loss, recipe.penalty, recipe.alpha)
    settings = Settings(
        epochs=recipe.max_iter,
        batch_size=min(recipe.batch_size, len(data)),
        loss=ridge,
        optimizer=recipe.solver if optimizer is None else lambda _: optimizer,
        learning_rate=recipe.learning_rate,
        schedule="cosine" if optimizer is None else None,
        gradient_clip=1.0,
        activity_penalty=recipe.activity_penalty,
        early_stopping=recipe.patience if validation is not None else None,
        restore_best=validation is not None,
        seed=recipe.seed,
        on_divergence="stop",
    )
    held_out = None if validation is None else (validation.x, validation.y, validation.weight)
    try:
        result = train(layer, (data.x, data.y, data.weight), settings, validation=held_out, progress=progress)
    except OutOfTimeError:
        assert isinstance(progress, Listener)
        history, steps = progress.history, progress.steps
        loss = float(history[-1]["loss"]) if history else None
        result = TrainingResult(history, len(history), loss, "early", "the time was over", steps, 0.0)
    return Fit(layer, result, max(1, len(result.history)))


def _on_all_rows(layer: MLayer, data: Tensors, recipe: Recipe, progress: bool | Listener) -> TrainingResult:
    ridge = Ridge(recipe.loss, recipe.penalty, recipe.alpha)
    objective = Objective(layer, (data.x, data.y, data.weight), ridge, recipe.activity_penalty)
    return fit_all_rows(objective, recipe.max_iter, as_progress(progress))


def affordable_epochs(layer: MLayer, data: Tensors, recipe: Recipe, seconds: float) -> int:
    """Epochs that fit into this many seconds, by the cost of a few batches."""
    few = data.part(torch.arange(len(data)) < _TRIAL_BATCHES * recipe.batch_size)
    trial = copy.deepcopy(layer)
    once = replace(recipe, max_iter=1)
    fit_layer(trial, few.part(torch.arange(len(few)) < recipe.batch_size), once)
    start = time.monotonic()
    fit_layer(trial, few, once)
    epoch = (time.monotonic() - start) * len(data) / len(few)
    return max(1, min(recipe.max_iter, int(_SAFE_SHARE * seconds / max(epoch, 1e-6))))


@torch.no_grad()
def outputs_of(layer: MLayer, x: Tensor) -> Tensor:
    """The outputs, a bounded number of rows at a time.  (rows, inputs) -> (rows, outputs)"""
    return torch.cat([layer(part) for part in x.split(_CHUNK)])


def class_losses(layer: MLayer, data: Tensors) -> Tensor:
    """The terms of the weighted mean of the cross-entropy, (rows,)."""
    losses = LOSSES["cross_entropy"](outputs_of(layer, data.x), data.y)
    return losses * data.weight / data.weight.mean()


def loss_on(layer: MLayer, data: Tensors, loss: str) -> float:
    """The weighted mean loss without penalties; infinity if it is not finite."""
    losses = LOSSES[loss](outputs_of(layer, data.x), data.y)
    value = ((losses * data.weight).sum() / data.weight.sum()).item()
    return value if math.isfinite(value) else math.inf

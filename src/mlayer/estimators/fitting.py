"""One training run of the estimators: a layer, standardised rows, a recipe."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from mlayer.estimators.penalty import Ridge
from mlayer.nn import MLayer
from mlayer.training import LOSSES, Settings, TrainingResult, train

# Iterations of L-BFGS between two lines of the history.
_STRIDE = 20
_CHUNK = 4096


@dataclass(frozen=True)
class Tensors:
    """Standardised rows in the precision of the layer."""

    x: Tensor
    y: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def part(self, chosen: Tensor) -> Tensors:
        """The chosen rows, weights again of mean 1."""
        weight = self.weight[chosen]
        return Tensors(self.x[chosen], self.y[chosen], weight / weight.mean())


@dataclass(frozen=True)
class Recipe:
    """How to train, with nothing left to choose.

    Attributes:
        loss: "cross_entropy" or "squared_error".
        penalty: a name of `PENALTIES`.
        alpha: its factor.
        activity_penalty: the factor of the paper's.
        solver: "lbfgs" (all rows in each step), or the name of an optimizer for batches.
        max_iter: iterations of L-BFGS, or epochs.
        learning_rate: of the other optimizers.
        batch_size: likewise.
        patience: epochs without improvement on the validation rows.
        seed: of shuffling.
    """

    loss: str
    penalty: str
    alpha: float
    activity_penalty: float
    solver: str
    max_iter: int
    learning_rate: float
    batch_size: int
    patience: int
    seed: int

    def but(self, **changes: object) -> Recipe:
        """The same recipe with changes."""
        return replace(self, **changes)  # type: ignore[arg-type]


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
    progress: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> Fit:
    """Train ``layer`` in place; with ``optimizer``, if given, at its own constant rate.

    Ends with finite weights whatever happens; the result says what did.
    """
    made: list[torch.optim.Optimizer] = []
    ridge = Ridge(recipe.loss, recipe.penalty, recipe.alpha)
    if recipe.solver == "lbfgs":
        stride = min(_STRIDE, recipe.max_iter)

        def lbfgs(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
            made.append(
                torch.optim.LBFGS(
                    parameters,
                    max_iter=stride,
                    history_size=20,
                    tolerance_grad=1e-7,
                    tolerance_change=1e-10,
                    line_search_fn="strong_wolfe",
                )
            )
            return made[0]

        settings = Settings(
            epochs=math.ceil(recipe.max_iter / stride),
            batch_size=len(data),
            loss=ridge,
            optimizer=lbfgs,
            activity_penalty=recipe.activity_penalty,
            early_stopping=1,
            seed=recipe.seed,
            on_divergence="stop",
        )
        validation = None
    else:
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
    result = train(layer, (data.x, data.y, data.weight), settings, validation=held_out, progress=progress)
    iterations = max(1, len(result.history))
    if made:
        states = [state["n_iter"] for state in made[0].state.values() if "n_iter" in state]
        iterations = max(1, *states) if states else 1
    return Fit(layer, result, iterations)


@torch.no_grad()
def outputs_of(layer: MLayer, x: Tensor) -> Tensor:
    """The outputs, a bounded number of rows at a time.  (rows, inputs) -> (rows, outputs)"""
    return torch.cat([layer(part) for part in x.split(_CHUNK)])


def loss_on(layer: MLayer, data: Tensors, loss: str) -> float:
    """The weighted mean loss without penalties; infinity if it is not finite."""
    losses = LOSSES[loss](outputs_of(layer, data.x), data.y)
    value = ((losses * data.weight).sum() / data.weight.sum()).item()
    return value if math.isfinite(value) else math.inf

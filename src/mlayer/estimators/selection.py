"""What is left to the data: the ridge, and whether the inputs act by waves. Chosen on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlayer.estimators.fitting import Recipe, Tensors, fit_layer, loss_on
from mlayer.nn import MLayer

# From smooth to free. Unit variance of inputs and targets makes them comparable between tables.
ALPHAS = (0.1, 0.05, 0.025, 0.01, 0.004, 0.0015, 0.0005)
# A smaller alpha is not tried after two in a row that are this much worse than the best.
_HOPELESS = 1.1
_ITERATIONS = 60

# Makes a fresh layer, the same each time.
Maker = Callable[[], MLayer]


@dataclass(frozen=True)
class Choice:
    """A chosen alpha and the held-out loss behind it; losses by alpha for the curious."""

    alpha: float
    loss: float
    losses: dict[float, float]


def fold_count(rows: int) -> int:
    """How many folds: one split is enough where rows are many."""
    return 3 if rows < 3000 else 1


def random_folds(y: Tensor, count: int, generator: torch.Generator) -> list[Tensor]:
    """Masks of held-out rows; each class is spread evenly. One fold holds out a fifth.

    Args:
        y: (rows,) class indices, or targets.
        count: folds.
        generator: of the shuffling.
    """
    number = torch.empty(len(y), dtype=torch.long)
    parts = max(count, 5) if count == 1 else count
    groups = (
        [torch.arange(len(y))] if y.is_floating_point() else [(y == c).nonzero()[:, 0] for c in y.unique()]
    )
    start = 0
    for group in groups:
        shuffled = group[torch.randperm(len(group), generator=generator)]
        number[shuffled] = (torch.arange(len(group)) + start) % parts
        start += len(group)  # so that small classes do not all land in the first fold
    return [number == fold for fold in range(count)]


def stretches(x: Tensor, count: int) -> list[Tensor]:
    """Masks of consecutive stretches along one input: what is held out is a gap or lies beyond the end."""
    number = torch.empty(len(x), dtype=torch.long)
    number[x[:, 0].argsort(stable=True)] = torch.arange(len(x)) * count // len(x)
    return [number == fold for fold in range(count)]


def choose_alpha(
    make: Maker, data: Tensors, recipe: Recipe, folds: Sequence[Tensor], alphas: Sequence[float] = ALPHAS
) -> Choice:
    """The alpha with the least loss on held-out rows."""
    losses: dict[float, float] = {}
    worse = 0
    for alpha in alphas:
        attempt = recipe.but(alpha=alpha, max_iter=min(_ITERATIONS, recipe.max_iter))
        losses[alpha] = held_out_loss(make, data, attempt, folds, stop_at=_HOPELESS * _least(losses))
        worse = worse + 1 if losses[alpha] >= _HOPELESS * _least(losses) else 0
        if worse == 2:
            break
    best = min(losses, key=lambda alpha: losses[alpha])
    return Choice(best, losses[best], losses)


def held_out_loss(
    make: Maker, data: Tensors, recipe: Recipe, folds: Sequence[Tensor], stop_at: float = math.inf
) -> float:
    """Mean over the folds of the loss on the rows that were held out.

    Losses are positive, so that once the sum of the first folds is beyond ``stop_at`` the rest need not run.
    """
    total = 0.0
    for fold in folds:
        layer = make()
        fit_layer(layer, data.part(~fold), recipe)
        total += loss_on(layer, data.part(fold), recipe.loss) / len(folds)
        if total >= stop_at:
            break
    return total


def _least(losses: dict[float, float]) -> float:
    return min(losses.values(), default=math.inf)

"""The ridge penalty, chosen on held-out rows, and the folds that it is judged on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from mlayer.estimators.fitting import Recipe, Tensors, fit_layer, loss_on, outputs_of
from mlayer.estimators.watch import Listener, Watch
from mlayer.nn import MLayer


@dataclass(frozen=True)
class SearchEffort:
    """The budget of a search for alpha."""

    # of small tables, and of others: on tables of 1100 to 3000 rows one split chose the same alpha as three
    # folds, at a third of the time; on tables of some 400 rows its choice had a test loss up to 14% higher
    folds: tuple[int, int]
    iterations: int  # of a trial
    every: bool = False  # try all values and those between them; else walk downhill from the middle


EFFORTS = {
    "quick": SearchEffort((1, 1), 40),
    "default": SearchEffort((3, 1), 60),
    "thorough": SearchEffort((5, 3), 120, every=True),
}
_SMALL = 600  # rows, below which three folds judge alpha and not one split
# From strong to weak. Unit variance of inputs and targets makes them comparable between tables.
ALPHAS = (0.1, 0.05, 0.025, 0.01, 0.004, 0.0015, 0.0005)
_MIDDLE = 0.01  # where the search starts

# Makes a fresh layer, the same each time.
Maker = Callable[[], MLayer]


@dataclass(frozen=True)
class Choice:
    """A chosen alpha and the trial behind it."""

    alpha: float
    loss: float  # on held-out rows
    losses: dict[float, float]  # by alpha
    layer: MLayer  # of the trial
    # absolute, of each row when it was held out, (rows, outputs), NaN where it never was; None for classes
    errors: Tensor | None = None


def fold_count(rows: int, effort: str) -> int:
    """The number of folds: one split is enough where rows are many."""
    return EFFORTS[effort].folds[0 if rows < _SMALL else 1]


def alphas_of(effort: str) -> tuple[float, ...]:
    """The values that are tried; a thorough search also tries the geometric means between them."""
    if not EFFORTS[effort].every:
        return ALPHAS
    between = [(a * b) ** 0.5 for a, b in pairwise(ALPHAS)]
    return tuple(sorted((*ALPHAS, *between), reverse=True))


def random_folds(y: Tensor, count: int, generator: torch.Generator) -> list[Tensor]:
    """Masks of held-out rows; each class is spread evenly. One fold holds out a fifth."""
    number = torch.empty(len(y), dtype=torch.long)
    parts = 5 if count == 1 else count
    groups = (
        [torch.arange(len(y))] if y.is_floating_point() else [(y == c).nonzero()[:, 0] for c in y.unique()]
    )
    start = 0
    for group in groups:
        shuffled = group[torch.randperm(len(group), generator=generator)]
        number[shuffled] = (torch.arange(len(group)) + start) % parts
        start += len(group)  # so that small classes do not all land in the first fold
    return [number == fold for fold in range(count)]


def stretches(column: Tensor, count: int) -> list[tuple[Tensor, Tensor]]:
    """Masks (train, test): each of the last two of ``count`` stretches along an input, and all before it."""
    # By value, not by row: rows of one moment stay together.
    values, place = column.unique(return_inverse=True)
    number = place * count // len(values)
    return [(number < fold, number == fold) for fold in (count - 2, count - 1)]


def choose_alpha(
    make: Maker,
    data: Tensors,
    recipe: Recipe,
    folds: Sequence[Tensor],
    *,
    effort: str = "default",
    watch: Watch | None = None,
    to_beat: float = math.inf,
) -> Choice:
    """The alpha with the least loss on held-out rows; where the time runs out, the best of those tried.

    A trial ends as soon as its loss exceeds the best so far, or the loss ``to_beat`` of another model.

    The loss over log(alpha) falls to one minimum and rises again, up to noise, so the default walks downhill
    from the middle; a thorough search tries every value.
    """
    watch = watch or Watch()
    alphas = alphas_of(effort)
    trial = replace(recipe, max_iter=min(EFFORTS[effort].iterations, recipe.max_iter))
    losses: dict[float, float] = {}
    kept: list[tuple[MLayer, Tensor | None]] = []

    def attempt(place: int) -> bool:
        """Try an alpha; whether it is the best so far."""
        if not 0 <= place < len(alphas) or (losses and watch.left == 0.0):
            return False
        alpha = alphas[place]
        watch.tell(len(losses) / len(alphas))
        best = min(losses.values(), default=math.inf)
        loss, layer, errors = _held_out_loss(
            make, data, replace(trial, alpha=alpha), folds, stop_at=min(best, to_beat), watch=watch
        )
        if losses and watch.left == 0.0:
            return False  # cut short, it would not be a fair comparison
        losses[alpha] = loss
        if loss < best or not kept:
            kept[:] = [(layer, errors)]
        return loss < best

    middle = min(range(len(alphas)), key=lambda k: abs(math.log(alphas[k] / _MIDDLE)))
    if EFFORTS[effort].every:
        for place in sorted(range(len(alphas)), key=lambda k: abs(k - middle)):
            attempt(place)
    else:
        attempt(middle)
        for direction in (1, -1):
            place = middle + direction
            while attempt(place):
                place += direction
            if place != middle + direction:
                break  # downhill on this side: the other one is uphill
    best = min(losses, key=lambda alpha: losses[alpha])
    return Choice(best, losses[best], losses, *kept[0])


def _held_out_loss(
    make: Maker, data: Tensors, recipe: Recipe, folds: Sequence[Tensor], *, stop_at: float, watch: Watch
) -> tuple[float, MLayer, Tensor | None]:
    """Mean over the folds of the loss on the rows that were held out, the layer of the last fold, the errors.

    Losses are positive, so that once the sum of the first folds is beyond ``stop_at`` the rest need not run.
    """
    total = 0.0
    layer = make()
    errors = torch.full_like(data.y, math.nan) if data.y.is_floating_point() else None
    for place, fold in enumerate(folds):
        layer = layer if not place else make()
        rows = data.part(~fold)
        fit_layer(layer, rows, recipe, progress=Listener(watch, shown=False))
        total += loss_on(layer, data.part(fold), recipe.loss) / len(folds)
        if errors is not None:
            errors[fold] = (outputs_of(layer, data.x[fold]) - data.y[fold]).abs()
        if total >= stop_at or watch.left == 0.0:
            break
    return total, layer, errors

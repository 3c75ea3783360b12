"""The ridge penalty, chosen on held-out rows, and the folds that it is judged on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from mlayer.estimators.fitting import Recipe, Tensors, class_losses, fit_layer, loss_on, outputs_of
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
# Of a standard error: a loss that is higher by less is as good. Of 36 fits to 18 tables a whole one raised
# the error on new rows by up to 25% (laws nearly without noise) and by 0.6% on average; a half lowered it
# by 1%.
_DOUBT = 0.5

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


@dataclass(frozen=True)
class _Trial:
    """A layer and what it did on the rows that were held out."""

    loss: float
    layer: MLayer  # of the last fold
    losses: Tensor  # the terms of the mean, (rows,), NaN where a row was not held out
    errors: Tensor | None  # as those of a choice

    def hardly_differs(self, best: _Trial) -> bool:
        """Whether its loss is within half of a standard error of the difference from that of the best."""
        more = (self.losses - best.losses)[~best.losses.isnan()]
        # NaN where this trial ended early, infinite after an overflow
        return bool(more.isfinite().all() and more.mean() <= _DOUBT * more.std() / math.sqrt(len(more)))


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
    from the middle; a thorough search tries every value. Of those whose loss is within half of a standard
    error of the least one the largest is taken (with a whole one: Breiman et al., "Classification and
    Regression Trees", 1984): a layer that is as good and smoother goes less astray where rows are rare.
    """
    watch = watch or Watch()
    alphas = alphas_of(effort)
    trial = replace(recipe, max_iter=min(EFFORTS[effort].iterations, recipe.max_iter))
    trials: dict[float, _Trial] = {}

    def attempt(place: int) -> bool:
        """Try an alpha; whether it is the best so far."""
        if not 0 <= place < len(alphas) or (trials and watch.left == 0.0):
            return False
        alpha = alphas[place]
        watch.tell(len(trials) / len(alphas))
        best = min((each.loss for each in trials.values()), default=math.inf)
        found = _trial(
            make, data, replace(trial, alpha=alpha), folds, stop_at=min(best, to_beat), watch=watch
        )
        if trials and watch.left == 0.0:
            return False  # cut short, it would not be a fair comparison
        trials[alpha] = found
        return found.loss < best

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
    best = min(trials.values(), key=lambda each: each.loss)
    alpha = max(alpha for alpha, each in trials.items() if each is best or each.hardly_differs(best))
    chosen = trials[alpha]
    losses = {alpha: each.loss for alpha, each in trials.items()}
    return Choice(alpha, chosen.loss, losses, chosen.layer, chosen.errors)


def _trial(
    make: Maker, data: Tensors, recipe: Recipe, folds: Sequence[Tensor], *, stop_at: float, watch: Watch
) -> _Trial:
    """The mean over the folds of the loss on the held-out rows, and the terms of that mean.

    Losses are positive, so that once the sum of the first folds is beyond ``stop_at`` the rest need not run.
    """
    total = 0.0
    layer = make()
    quantity = data.y.is_floating_point()
    errors = torch.full_like(data.y, math.nan) if quantity else None
    losses = torch.full((len(data),), math.nan, dtype=torch.float64)
    for place, fold in enumerate(folds):
        layer = layer if not place else make()
        fit_layer(layer, data.part(~fold), recipe, progress=Listener(watch, shown=False))
        held = data.part(fold)
        total += loss_on(layer, held, recipe.loss) / len(folds)
        if errors is not None:
            errors[fold] = (outputs_of(layer, held.x) - held.y).abs()
            losses[fold] = (errors[fold].square().mean(dim=1) * held.weight).double()
        else:
            losses[fold] = class_losses(layer, held).double()
        if total >= stop_at or watch.left == 0.0:
            break
    return _Trial(total, layer, losses, errors)

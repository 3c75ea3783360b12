"""Losses and metrics by name, one number per example, so that weighted and sharded means are exact.

Targets of cross entropy are class indices, (b,), or probabilities, (b, classes). Squared errors are
means over the outputs of an example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from mlayer.checks import brief
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.training.settings import Loss

# torch's default ignore_index, -100, would hide a wrong label.
_NO_CLASS = -(2**31)

# (outputs, targets) -> one number per example, (b,).
EachExample = Callable[[Tensor, Tensor], Tensor]


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """The squared error of each example, a mean over its outputs: (b, k), (b, k) or (b,) -> (b,)."""
    difference = outputs - _like(outputs, targets)
    return difference.square().flatten(1).mean(1)


def hits(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the largest output is the target class, or the most probable one, else 0."""
    if targets.shape == outputs.shape and targets.dim() > 1 and targets.is_floating_point():
        targets = targets.argmax(-1)
    if targets.shape != outputs.shape[:-1]:  # broadcasting would count pairs of examples
        check_labels(targets)
        raise ArgumentError(
            "y",
            f"of shape {tuple(outputs.shape[:-1])}, the classes, for the metric 'accuracy'",
            f"shape {tuple(targets.shape)}",
            "Give one class number per example.",
        )
    return (outputs.argmax(-1) == targets).to(outputs.dtype)


def cross_entropies(outputs: Tensor, targets: Tensor, reduction: str = "none") -> Tensor:
    """The cross entropy of torch; where that refuses the targets, an error that says what is wrong with them.

    A loader brings its targets one batch at a time, so that they cannot be checked before; asking for the
    reason only where torch refuses costs a training step nothing. No class number stands for "ignore".
    """
    try:
        return cross_entropy(outputs, targets, reduction=reduction, ignore_index=_NO_CLASS)
    except (RuntimeError, IndexError, ValueError):
        check_labels(targets, one_number=outputs.dim() == 2)
        if targets.dim() == 1 and not targets.is_floating_point():
            _check_scores(outputs)
        _check_range(targets, outputs.shape[-1])
        if targets.shape != outputs.shape and targets.dim() > 1:
            raise ArgumentError(
                "y",
                f"class numbers of shape ({len(outputs)},), or probabilities of shape {tuple(outputs.shape)}",
                f"shape {tuple(targets.shape)}",
                'For quantities: Settings(loss="squared_error").',
            ) from None
        raise


LOSSES: dict[str, EachExample] = {
    "cross_entropy": cross_entropies,
    "squared_error": squared_errors,
}
# Their means over a batch, each in one operation: at batch 32 of a small model operations are what costs.
_MEANS: dict[str, EachExample] = {
    "cross_entropy": partial(cross_entropies, reduction="mean"),
    "squared_error": lambda outputs, targets: mse_loss(outputs, _like(outputs, targets)),
}
# Name -> one number per example; what their mean becomes; whether larger is better.
METRICS: dict[str, tuple[EachExample, Callable[[float], float], bool]] = {
    "accuracy": (hits, float, True),
    "rmse": (squared_errors, lambda mean: mean**0.5, False),
}


@dataclass(frozen=True)
class PeriodicLoss:
    """The loss of the paper's section on periodic functions: (f(x) - y)^2 + max(0, |f(2x + 6)| - 100)^2.

    The second term penalizes very large values on the range [6, 10], which the data do not reach.
    """

    slope: float = 2.0
    offset: float = 6.0
    bound: float = 100.0

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs at x and the loss of each example."""
        # One pass for both: for small models the cost is per call, not per row.
        inside, outside = model(torch.cat([x, self.slope * x + self.offset])).chunk(2)
        excess = (outside.abs() - self.bound).clamp_min(0)
        return inside, squared_errors(inside, y) + excess.square().flatten(1).mean(1)


def as_loss(loss: str | Loss) -> Loss:
    """A named loss as a function of model, inputs and targets."""
    if not isinstance(loss, str):
        return lambda model, x, y: _one_per_example(loss(model, x, y), x)
    each = LOSSES[loss]

    def named(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        outputs = _outputs(model, x)
        return outputs, each(outputs, y)

    return named


def mean_loss(loss: str | Loss) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """The mean loss of a batch without weights."""
    if isinstance(loss, str):
        mean = _MEANS[loss]
        return lambda model, x, y: mean(_outputs(model, x), y)
    checked = as_loss(loss)
    return lambda model, x, y: checked(model, x, y)[1].mean()


def _outputs(model: nn.Module, x: Tensor) -> Tensor:
    """The outputs of the model; an error if they are not one tensor, as those of a recurrent net."""
    outputs = model(x)
    if not isinstance(outputs, Tensor):
        raise ArgumentTypeError(
            "model",
            "a module that returns a tensor",
            f"one that returns {brief(outputs)}",
            "Wrap it in a module that returns the outputs alone.",
        )
    return outputs


def _check_scores(outputs: Tensor) -> None:
    """One class number per example needs one row of outputs per example."""
    if outputs.dim() != 2:
        raise ArgumentError(
            "model",
            "one that returns a row of outputs per example, of shape (examples, classes)",
            f"outputs of shape {tuple(outputs.shape)}",
            "Reduce the other dimensions in the model, for example by outputs[:, -1] or outputs.mean(1).",
        )


def _one_per_example(returned: object, x: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs and losses that a user's loss returned; an error if it is no such pair.

    Without the check the second row of a tensor would be taken for the losses.
    """
    parts = returned if isinstance(returned, tuple | list) and len(returned) == 2 else (None, returned)
    outputs, losses = parts
    if not isinstance(outputs, Tensor) or not isinstance(losses, Tensor) or losses.shape != x.shape[:1]:
        came = f"a tensor of shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else brief(losses)
        raise ArgumentError(
            "loss",
            f"a callable (model, x, y) -> (outputs, losses) with one loss per example, of shape ({len(x)},)",
            f"{came}{' as its losses' if isinstance(outputs, Tensor) else ' alone'}",
            "For example: lambda model, x, y: (p := model(x), (p - y).square().mean(1)).",
        )
    return outputs, losses


def check_labels(y: Tensor, one_number: bool = False) -> None:
    """Class indices must be of a kind that torch's cross entropy takes; probabilities are (b, classes).

    ``one_number`` says that an example can have only one, so that rows of integers are wrong too.
    """
    column = y.dim() == 2 and y.shape[1] == 1 and not y.is_floating_point()
    rows = one_number and y.dim() == 2 and not y.is_floating_point()
    if column or rows or (y.dim() == 1 and y.dtype not in {torch.int64, torch.uint8}):
        remedy = (
            "y.flatten().long()" if column else "y.argmax(1) if each row has one 1" if rows else "y.long()"
        )
        raise ArgumentError(
            "y",
            'integers of dtype torch.int64, one per example, for loss="cross_entropy"',
            f"{y.dtype} of shape {tuple(y.shape)}",
            f"Convert them with {remedy}.",
        )


@torch.no_grad()
def check_classes(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """Class indices must be those of outputs."""
    if y.is_floating_point() or y.dim() != 1:
        return
    training = model.training
    model.eval()
    try:
        outputs = _outputs(model, x[:1].to(next(iter(model.parameters())).device))
    finally:
        model.train(training)
    _check_scores(outputs)
    _check_range(y, outputs.shape[1])


def _check_range(y: Tensor, classes: int) -> None:
    if y.is_floating_point() or y.dim() != 1:
        return
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= classes:
        raise ArgumentError(
            "y",
            f"class numbers from 0 to {classes - 1}, for a model of {classes} outputs",
            f"numbers from {low} to {high}",
            "Number the classes from 0, or give the model more outputs.",
        )


def _like(outputs: Tensor, targets: Tensor) -> Tensor:
    """Targets (b,) with outputs (b, 1); anything else must fit, or broadcasting would hide the error."""
    if targets.dim() == 1 and outputs.dim() == 2 and outputs.shape[1] == 1:
        targets = targets[:, None]
    if targets.is_complex() and not outputs.is_complex():
        raise ArgumentError(
            "y",
            "real, as the outputs of the model",
            str(targets.dtype),
            "Use torch.view_as_real(y).flatten(1).",
        )
    if outputs.shape != targets.shape:
        classes = targets.dim() == 1 and not targets.is_floating_point()
        raise ArgumentError(
            "y",
            f"of shape {tuple(outputs.shape)}, as the outputs of the model",
            f"shape {tuple(targets.shape)}",
            "Give one row per example and one column per output."
            + (' For classes: Settings(loss="cross_entropy").' if classes else ""),
        )
    return targets

"""The message for a loss that is not finite: its cause, and what to do about it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mlayer.errors import MLayerError
from mlayer.nn.layer import MLayer

if TYPE_CHECKING:
    from mlayer.training.result import TrainingResult

# exp of a number beyond these overflows.
_OVERFLOW = {torch.float32: 88.7, torch.float64: 709.8}


class DivergenceError(MLayerError, ArithmeticError):
    """Training diverged. The model has its best weights again; ``result`` has the history."""

    def __init__(self, message: str, result: TrainingResult) -> None:
        super().__init__(message)
        self.result = result


def diagnosis(
    model: nn.Module, x: Tensor | None, *, loss: float, step: int, epoch: int, rate: float, kept: str
) -> str:
    """One message: at which step, why, what is kept, what to try."""
    parts = [f"training diverged at step {step} (epoch {epoch}): the loss is {loss}."]
    advice = "Try a smaller learning_rate, gradient_clip=1.0, or an activity_penalty such as 1e-4."
    if step == 1:  # no step was taken: what the training does cannot be the cause
        advice = "Scale the inputs to about unit variance, or give the layer init='balanced'."
    if x is not None and x.is_floating_point() and not torch.isfinite(x).all():
        parts.append("The inputs of this batch hold NaN or inf.")
        advice = "Correct the data."
    elif not all(torch.isfinite(p).all() for p in model.parameters()):
        parts.append("The weights are no longer finite: the gradient of the step before overflowed.")
    elif x is not None:
        norm = _largest_norm(model, x)
        if norm is not None:
            limit = _OVERFLOW.get(x.dtype, math.inf)
            parts.append(
                f"The largest norm of M in this batch is {norm:.4g}; exp overflows from {limit:g} on."
            )
    parts.append(f"Learning rate {rate:g}. {kept}")
    parts.append(advice)
    return " ".join(parts)


@torch.no_grad()
def _largest_norm(model: nn.Module, x: Tensor) -> float | None:
    """The largest norm of the matrices M of all M-layers, 2-norms bounded by Frobenius norms."""
    norms: list[float] = []

    def watch(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, MLayer)
        norms.append(float(torch.linalg.matrix_norm(layer.matrix(inputs[0])).max()))

    handles = [m.register_forward_pre_hook(watch) for m in model.modules() if isinstance(m, MLayer)]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return max(norms) if norms else None

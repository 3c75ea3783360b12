"""The result of a training besides the trained model: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

# One epoch: epoch, step, loss, learning_rate, seconds, and validation_* if there is a validation set.
Record = dict[str, Any]
Stopped = Literal["epochs", "early", "diverged"]


@dataclass(frozen=True)
class TrainingResult:
    """The course of a run.

    Attributes:
        history: one dictionary per epoch: epoch, step, loss, learning_rate, seconds, validation_loss, ...
        best_epoch: the epoch of the best monitored value; 0 is the start.
        best_value: that value, or None if no epoch was completed.
        stopped: "epochs" (all done), "early" (no more improvement) or "diverged".
        message: the reason, as a sentence.
        steps: optimizer steps.
        seconds: spent, over all parts of a resumed run.
        resumed_at: the step from which this call resumed an older run, or None.
    """

    history: list[Record] = field(repr=False)
    best_epoch: int
    best_value: float | None
    stopped: Stopped
    message: str
    steps: int
    seconds: float
    resumed_at: int | None = None

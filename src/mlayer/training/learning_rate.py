"""The learning rate of a step: base x plateau factor x schedule(fraction done) / (1 + decay x step)."""

from __future__ import annotations

import math
from typing import Any

import torch

from mlayer.training.settings import Schedule, Settings

# Of the one-cycle schedule, as torch's OneCycleLR: share of the steps that rise, and the first rate over the
# top one.
_WARM_UP = 0.3
_START = 1 / 25


def cosine(fraction: float) -> float:
    """Fall from 1 to 0 along half a wave.

    >>> cosine(0.0), round(cosine(0.5), 6), round(cosine(1.0), 6)
    (1.0, 0.5, 0.0)
    """
    return 0.5 * (1 + math.cos(math.pi * fraction))


def one_cycle(fraction: float) -> float:
    """Rise from 1/25 to 1 during the first 30%, then fall to 0, each along half a wave.

    >>> round(one_cycle(0.0), 6), one_cycle(0.3), round(one_cycle(1.0), 6)
    (0.04, 1.0, 0.0)
    """
    if fraction < _WARM_UP:
        return 1 - (1 - _START) * cosine(fraction / _WARM_UP)
    return cosine((fraction - _WARM_UP) / (1 - _WARM_UP))


SCHEDULES: dict[str, Schedule] = {"cosine": cosine, "one_cycle": one_cycle}


class LearningRate:
    """Sets the learning rate of each parameter group before a step; remembers the plateau's reductions."""

    def __init__(self, optimizer: torch.optim.Optimizer, settings: Settings, total_steps: int | None) -> None:
        self.optimizer = optimizer
        self.base = [group["lr"] for group in optimizer.param_groups]
        self.decay = settings.time_decay
        self.plateau = settings.plateau
        self.schedule = (
            SCHEDULES[settings.schedule] if isinstance(settings.schedule, str) else settings.schedule
        )
        self.total_steps = total_steps
        self.reduction = 1.0
        self.epochs_without_gain = 0
        self.moves = self.schedule is not None or self.decay > 0

    def before_step(self, step: int) -> None:
        """Set the rate; called with the number of steps done."""
        if not self.moves:
            return
        factor = 1 / (1 + self.decay * step)
        if self.schedule is not None:
            factor *= self.schedule(min(1.0, step / max(1, self.total_steps or 1)))
        self._set(factor)

    def after_epoch(self, improved: bool) -> None:
        """Reduce on a plateau."""
        if self.plateau is None:
            return
        self.epochs_without_gain = 0 if improved else self.epochs_without_gain + 1
        if self.epochs_without_gain >= self.plateau.patience:
            self.epochs_without_gain = 0
            self.reduction *= self.plateau.factor
            self._set(1.0)

    def _set(self, factor: float) -> None:
        for group, base in zip(self.optimizer.param_groups, self.base, strict=True):
            # A base below the floor stays where it is: a floor never raises a rate.
            floor = 0.0 if self.plateau is None else min(self.plateau.floor, base)
            group["lr"] = max(base * self.reduction, floor) * factor

    @property
    def now(self) -> float:
        """The rate of the first parameter group."""
        return float(self.optimizer.param_groups[0]["lr"])

    def state(self) -> dict[str, Any]:
        """The state for checkpoints; the rates themselves are in the optimizer's state."""
        return {"reduction": self.reduction, "epochs_without_gain": self.epochs_without_gain}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` gave."""
        reduction, waited = state["reduction"], state["epochs_without_gain"]
        if not isinstance(reduction, int | float) or not 0 <= reduction < math.inf:
            raise ValueError(f"a reduction of the learning rate of {reduction!r:.60}")
        if not isinstance(waited, int) or waited < 0:
            raise ValueError(f"{waited!r:.60} epochs without gain")
        self.reduction, self.epochs_without_gain = reduction, waited

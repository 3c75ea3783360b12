"""The best weights so far.

A validation set (or metrics, which are measured on the training set) judges the weights at the end of an
epoch. The training loss of an epoch cannot: it was measured during the epoch, before most of the steps. It is
taken as that of the weights at the start of the epoch, and the last weights of a run are measured by a
separate pass. So a step that spoils everything never passes for the best, however small the loss before it
was.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from mlayer.training.losses import METRICS

Weights = dict[str, Tensor]


class Best:
    """Remembers the weights with the best monitored value; at first the start itself."""

    def __init__(self, monitor: str) -> None:
        self.larger_is_better = monitor in METRICS and METRICS[monitor][2]
        self.value: float | None = None  # the best value, or None before the first
        self.epoch = 0  # epochs done when the weights were those that are kept; 0 is the start
        self.seen = 0  # the epoch in which the value was seen
        self.weights: Weights | None = None  # those weights

    def better(self, value: float) -> bool:
        """Whether this is better than everything before."""
        if self.value is None:
            return True
        return value > self.value if self.larger_is_better else value < self.value

    def see(self, value: float, weights: Weights, *, epoch: int, seen: int) -> bool:
        """Keep these weights if they are the best so far."""
        better = self.better(value)
        if better:
            self.value, self.weights, self.epoch, self.seen = value, weights, epoch, seen
        return better

    def state(self) -> dict[str, Any]:
        """The state for checkpoints."""
        return {"value": self.value, "epoch": self.epoch, "seen": self.seen, "weights": self.weights}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` gave."""
        if not isinstance(state["value"], int | float | None):
            raise TypeError("a best value that is not a number")
        if not all(isinstance(state[name], int) and state[name] >= 0 for name in ("epoch", "seen")):
            raise ValueError("epochs of the best value that are not counts")
        self.value, self.epoch, self.weights = state["value"], state["epoch"], state["weights"]
        self.seen = state["seen"]


def copy_of(model: nn.Module) -> Weights:
    """The weights as they are now."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

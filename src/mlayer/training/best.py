"""The best epoch so far and its weights."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from mlayer.training.losses import METRICS


class Best:
    """Remembers the weights with the best monitored value; at first the start itself."""

    def __init__(self, monitor: str) -> None:
        self.larger_is_better = monitor in METRICS and METRICS[monitor][2]
        self.value: float | None = None
        self.epoch = 0
        self.weights: dict[str, Tensor] | None = None

    def start_from(self, model: nn.Module) -> None:
        """What is kept if not even one epoch ends well."""
        self.weights = _copy(model)

    def see(self, value: float, epoch: int, model: nn.Module) -> bool:
        """Is this epoch the best so far? Then keep its weights."""
        better = self.value is None or (value > self.value if self.larger_is_better else value < self.value)
        if better:
            self.value, self.epoch, self.weights = value, epoch, _copy(model)
        return better

    def state(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"value": self.value, "epoch": self.epoch, "weights": self.weights}

    def load_state(self, state: dict[str, Any]) -> None:
        """What :meth:`state` gave."""
        self.value, self.epoch, self.weights = state["value"], state["epoch"], state["weights"]


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

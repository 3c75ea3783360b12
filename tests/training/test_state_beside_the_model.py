"""State outside the model's state_dict is resumed too: buffers, parameters of a loss."""

from __future__ import annotations

import collections
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from problems import product, same_weights
from torch import Tensor, nn

from mlayer.errors import ArgumentError, ArgumentTypeError, MLayerError
from mlayer.training import CheckpointWarning, Settings, train


class Weighted(nn.Module):
    """A loss with a parameter that is trained, and a running mean."""

    mean: Tensor

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.register_buffer("mean", torch.ones(()))

    def forward(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        outputs = model(x)
        loss = ((outputs - y) ** 2).mean(1)
        self.mean = 0.9 * self.mean + 0.1 * loss.detach().mean()
        return outputs, self.weight.abs() * loss / self.mean + (self.weight - 2) ** 2


class Drifting(nn.Module):
    """A shift that grows with every call; no state_dict has it."""

    by: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("by", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor, generator: torch.Generator) -> Tensor:
        self.by = self.by + 0.01
        return x + self.by


class Slowing(nn.Module):
    """A model with a buffer that changes and is not saved with its weights."""

    factor: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(2, 1)
        self.register_buffer("factor", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.factor = 0.99 * self.factor
        outputs: Tensor = self.factor * self.linear(x)
        return outputs


def arguments(epochs: int, weight: float = 1.0) -> dict[str, Any]:
    loss = Weighted(weight)
    settings = Settings(
        epochs=epochs,
        batch_size=16,
        loss=loss,
        optimizer=lambda parameters: torch.optim.Adam([*parameters, *loss.parameters()], lr=0.05),
    )
    return {"model": Slowing(), "data": product(48), "settings": settings, "augment": Drifting()}


def test_it_is_resumed_to_the_bit(tmp_path: Path) -> None:
    whole, part, rest = arguments(4), arguments(2), arguments(4)
    train(**whole)
    train(**part, checkpoint=tmp_path)
    assert train(**rest, checkpoint=tmp_path).resumed_at == 6
    assert same_weights(whole["model"], rest["model"])
    for name in ("weight", "mean"):
        assert torch.equal(getattr(whole["settings"].loss, name), getattr(rest["settings"].loss, name))
    assert torch.equal(whole["augment"].by, rest["augment"].by)


def test_a_run_that_has_just_ended_is_prolonged(tmp_path: Path) -> None:
    given = arguments(2)
    train(**given, checkpoint=tmp_path)
    longer = given | {"settings": replace(given["settings"], epochs=4)}
    assert train(**longer, checkpoint=tmp_path).resumed_at == 6


def test_other_weights_of_the_loss_are_another_run(tmp_path: Path) -> None:
    train(**arguments(2), checkpoint=tmp_path)
    other = arguments(2, weight=1.5)
    with pytest.raises(ArgumentError, match="starts from other weights"):
        train(**other, checkpoint=tmp_path)
    assert other["settings"].loss.weight == 1.5


class Keeping(torch.optim.SGD):
    """Keeps something in its state, or in its options."""

    def __init__(self, parameters: Any, kept: Any, option: Any = None) -> None:
        self.kept = kept
        super().__init__([{"params": list(parameters), "option": option}], lr=0.01)

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["kept"] = self.kept
        return super().step(closure)


STRANGE = {
    "deque": collections.deque([1.0]),
    "float32": np.float32(1),
    "set": {1},
    "the key": {(1, 2): 3},
    "an integer of": 10**5000,
}


@pytest.mark.parametrize("kind", STRANGE)
def test_what_no_checkpoint_can_hold_costs_no_training(kind: str, tmp_path: Path) -> None:
    """It ended the run at its first checkpoint, with all that was trained, or made an unreadable file."""

    def settings(**given: Any) -> Settings:
        return Settings(epochs=2, optimizer=lambda parameters: Keeping(parameters, **given))

    with pytest.warns(CheckpointWarning, match=rf"cannot hold {kind}.*state\['optimizer'\]\['state'\]"):
        result = train(nn.Linear(2, 1), product(48), settings(kept=STRANGE[kind]), checkpoint=tmp_path / "a")
    assert result.steps == 4
    with pytest.raises(MLayerError, match=f"a checkpoint cannot hold {kind}"):
        train(nn.Linear(2, 1), product(48), settings(kept=0, option=STRANGE[kind]), checkpoint=tmp_path / "b")


class WithExtraState(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"version": 2}

    def set_extra_state(self, state: Any) -> None: ...


def test_a_model_whose_state_is_no_tensor_is_refused_by_a_sentence() -> None:
    with pytest.raises(ArgumentTypeError, match=r"tensors alone; got .* under '_extra_state'"):
        train(WithExtraState(2, 1), product(48), Settings(epochs=1))

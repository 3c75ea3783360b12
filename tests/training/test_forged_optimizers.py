"""States of optimizers that fit the digest and not the weights: torch's fused kernels do not look at shapes.

They walk through memory by the length of the weights. A shorter tensor from a file had them write beyond its
end, which ended the process at some later moment, or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from problems import layer, product, same_weights

from mlayer.errors import FileFormatError
from mlayer.training import Settings, train
from mlayer.training.checkpoints import Checkpoints

OPTIONS: dict[str, dict[str, Any]] = {
    "adam": {"amsgrad": True},
    "adamw": {},
    "adagrad": {},
    "sgd": {"momentum": 0.9},
    "rmsprop": {},
}


def run(optimizer: str, folder: Path, epochs: int) -> torch.nn.Module:
    model = layer()
    settings = Settings(epochs=epochs, optimizer=optimizer, optimizer_options=OPTIONS[optimizer])
    train(model, product(8), settings, checkpoint=folder)
    return model


def changes(state: dict[str, Any]) -> list[tuple[dict[Any, Any], Any, Any]]:
    """The dictionary that is changed, the name in it, and the new value."""
    inner, (group,) = state["state"], state["param_groups"]
    found: list[tuple[dict[Any, Any], Any, Any]] = []
    for name, value in inner[0].items():
        assert isinstance(value, torch.Tensor), "the cases are those of fused kernels"
        # Nothing is written beyond the end of these where the check fails: they are longer than the weights.
        found.append((inner[0], name, torch.zeros(2) if name == "step" else torch.zeros(64, 64)))
    found.append((group, "params", group["params"][::-1]))
    return found + [(group, name, "x") for name in ("fused", "foreach") if name in group]


@pytest.mark.parametrize("optimizer", OPTIONS)
def test_tensors_that_do_not_fit_the_weights_are_refused(optimizer: str, tmp_path: Path) -> None:
    run(optimizer, tmp_path, 1)
    checkpoints = Checkpoints(tmp_path)
    for number in range(len(changes(checkpoints.read()["optimizer"]))):  # type: ignore[index]
        state: Any = checkpoints.read()
        place, name, value = changes(state["optimizer"])[number]
        before = place[name]
        place[name] = value
        checkpoints._write(state)
        with pytest.raises(FileFormatError, match="one that does not fit it"):
            run(optimizer, tmp_path, 2)
        place[name] = before
        checkpoints._write(state)
    assert same_weights(run(optimizer, tmp_path, 2), run(optimizer, tmp_path / f"all {optimizer}", 2))


@pytest.mark.parametrize("value", [torch.zeros(2), {"inner": torch.zeros(2)}, [[torch.zeros(2)]]])
def test_a_history_that_cannot_be_written_is_refused(value: Any, tmp_path: Path) -> None:
    run("adam", tmp_path, 1)
    checkpoints = Checkpoints(tmp_path)
    state: Any = checkpoints.read()
    history = tmp_path / "history.jsonl"
    kept = history.read_bytes()
    state["history"][0]["loss"] = value
    with pytest.raises(TypeError, match="not JSON"):
        checkpoints._write(state)
    assert history.read_bytes() == kept
    with pytest.raises(FileFormatError, match="one that does not fit it"):
        run("adam", tmp_path, 2)

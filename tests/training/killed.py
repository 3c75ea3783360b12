"""A run in a process of its own, to be killed: python killed.py KIND FOLDER OUT SECONDS [WHEN].

SECONDS between checkpoints. WHEN the process kills itself:
    batch 37     as it asks for that batch
    rename 41    the 41st time that it is about to give a file its name: in the middle of writing a checkpoint
    never        it waits at each batch, so that whoever kills it has time to
The training sees nothing of this, because a run whose functions differ would be refused the checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import torch
from problems import product, with_dropout
from torch.utils.data import DataLoader, TensorDataset

import mlayer
from mlayer.training import Plateau, Settings, train


def noisy(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    sys.audit("killed.batch")
    return x + 0.01 * torch.randn(x.shape, generator=generator)


class Jittered(TensorDataset):
    """Draws from torch's generator for every example, as random transforms do."""

    def __getitem__(self, index: Any) -> Any:
        x, y = super().__getitem__(index)
        return x + 0.01 * torch.randn(x.shape), y


def watch(when: str) -> None:
    """Kills this process at the event that is named, or slows it down."""
    name, _, number = when.partition(" ")
    left = int(number or 0)
    watched = {"batch": "killed.batch", "rename": "os.rename", "never": "killed.batch"}[name]

    def count(event: str, _: object) -> None:
        nonlocal left
        if event != watched:
            return
        if name == "never":
            time.sleep(0.01)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def main(kind: str, folder: str, out: str, seconds: float) -> None:
    model = with_dropout()
    data: Any = product(200)
    if kind == "loader":
        data = DataLoader(Jittered(*data), batch_size=8, shuffle=True)
    settings = Settings(
        epochs=12,
        batch_size=8,
        learning_rate=1e-3 if kind == "rmsprop" else 1e-2,
        weight_decay=0.0 if kind == "rmsprop" else 1e-4,
        plateau=Plateau(0.5, 1),
        optimizer={"momentum": "sgd", "rmsprop": "rmsprop"}.get(kind, "adam"),
        optimizer_options={"momentum": 0.9} if kind == "momentum" else {},
    )

    train(
        model,
        data,
        settings,
        validation=product(50, 1),
        checkpoint=folder,
        checkpoint_seconds=seconds,
        augment=noisy,
    )
    layer_inside = model[1]
    assert isinstance(layer_inside, mlayer.MLayer)
    mlayer.save(layer_inside, out)


if __name__ == "__main__":
    if len(sys.argv) > 5:
        watch(sys.argv[5])
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))

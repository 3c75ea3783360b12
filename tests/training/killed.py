"""A run in a process of its own, to be killed: python killed.py KIND FOLDER OUT."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from problems import product, with_dropout
from torch.utils.data import DataLoader, TensorDataset

import mlayer
from mlayer.training import Plateau, Settings, train


def noisy(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x + 0.01 * torch.randn(x.shape, generator=generator)


class Jittered(TensorDataset):
    """Draws from torch's generator for every example, as random transforms do."""

    def __getitem__(self, index: Any) -> Any:
        x, y = super().__getitem__(index)
        return x + 0.01 * torch.randn(x.shape), y


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

    def noisy_and_slow(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        time.sleep(0.01)  # or a busy machine kills it after its end
        return noisy(x, generator)

    train(
        model,
        data,
        settings,
        validation=product(50, 1),
        checkpoint=folder,
        checkpoint_seconds=seconds,
        augment=noisy_and_slow if seconds == 0 else noisy,
    )
    layer_inside = model[1]
    assert isinstance(layer_inside, mlayer.MLayer)
    mlayer.save(layer_inside, out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))

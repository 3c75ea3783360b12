"""A small training with a checkpoint after every step, as a write point."""

from __future__ import annotations

import json
from pathlib import Path

import torch

import mlayer
from mlayer.tensorfile import digest_of
from mlayer.training import Settings, train


def run(folder: Path | None) -> str:
    """Train; the digest of the weights."""
    generator = torch.Generator().manual_seed(0)
    model = mlayer.MLayer(2, 1, 3, 2, init="balanced", generator=generator)
    x = torch.rand(32, 2, generator=generator)
    settings = Settings(epochs=2, batch_size=16, learning_rate=1e-2)
    train(model, (x, x.prod(1, keepdim=True)), settings, checkpoint=folder, checkpoint_seconds=0.0)
    return digest_of(dict(model.state_dict()))


def history_is_whole(folder: Path) -> bool:
    """Two epochs, a line each."""
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines] == [1, 2]

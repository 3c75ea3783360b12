"""Started in pairs, by torchrun and by the tests: python torchrun_script.py FOLDER OUT [EPOCHS [DIES]]."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextvars import ContextVar
from pathlib import Path

import torch
from problems import layer, product

import mlayer
from mlayer.training import Settings, train

# Calls until the process kills itself; the value of a context variable does not count for the checkpoint.
left: ContextVar[int] = ContextVar("left")


def main(folder: Path, out: Path, epochs: int = 6, dies: int = 0) -> None:
    """``dies``: the call of the model at which rank 1 kills itself."""
    rank = int(os.environ.get("RANK", "0"))
    # Ranks start from different weights: those of rank 0 must win. 97 rows: a batch of one row is left.
    model = layer(seed=rank, dtype=torch.float64)
    left.set(dies if rank == 1 else 0)

    def count(*_: object) -> None:
        left.set(left.get() - 1)
        if left.get() == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    hook = model.register_forward_pre_hook(count)
    x, y = (t.double() for t in product(97))
    weight = torch.linspace(0.5, 1.5, 97, dtype=torch.float64)
    settings = Settings(
        epochs=epochs, batch_size=16, learning_rate=1e-2, activity_penalty=1e-3, gradient_clip=0.5
    )
    result = train(
        model,
        (x, y, weight),
        settings,
        validation=tuple(t.double() for t in product(33, 1)),
        checkpoint=folder,
        checkpoint_seconds=0,
    )
    hook.remove()
    mlayer.save(model, out.with_suffix(f".{rank}.safetensors"))
    if rank == 0:
        out.write_text(json.dumps([[r["loss"], r["validation_loss"]] for r in result.history]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))

"""Started by torchrun and alone: python torchrun_script.py FOLDER OUT [EPOCHS [SLOW]]."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from problems import layer, product

import mlayer
from mlayer.training import Settings, train

if __name__ == "__main__":
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    epochs = int(sys.argv[3]) if len(sys.argv) > 3 else 6
    slow = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    out.parent.mkdir(parents=True, exist_ok=True)
    (out.parent / f"pid-{rank}").write_text(str(os.getpid()))
    # Ranks start from different weights: those of rank 0 must win. 97 rows: a batch of one row is left.
    model = layer(seed=rank, dtype=torch.float64)
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
        on_epoch=lambda record: time.sleep(slow),
    )
    mlayer.save(model, out.with_suffix(f".{rank}.safetensors"))
    if rank == 0:
        out.write_text(json.dumps([[r["loss"], r["validation_loss"]] for r in result.history]))

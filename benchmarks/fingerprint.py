"""Claim: what `train` compares before it resumes from a checkpoint costs less than 1 % of a run.

Digests of every byte of data, validation data and weights, compared with the training of one epoch, in the
same
process: data in memory of the size and shape of CIFAR-10, batch 32, one epoch cut short and scaled up by
the number of its steps (a run has many epochs, so that the share of a real run is smaller still).

    python benchmarks/fingerprint.py        writes results/fingerprint.json
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import torch

import mlayer
from mlayer.training import Settings, train
from mlayer.training.distributed import World
from mlayer.training.run import Run

ROWS, FEATURES, CLASSES, BATCH = 50_000, 3072, 10, 32
STEPS, REPEATS, WANTED = 60, 5, 0.01


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (ROWS,), generator=generator)
    validation = (x[:5000], y[:5000])
    settings = Settings(epochs=1, batch_size=BATCH, loss="cross_entropy")
    digests, epochs = [], []
    for _ in range(REPEATS):
        layer = mlayer.MLayer(FEATURES, CLASSES, matrix_size=30, embedding_size=35, generator=generator)
        run = Run(layer, (x, y), settings, World(), validation=validation)
        started = time.perf_counter()
        run._fingerprint()
        digests.append(time.perf_counter() - started)
        rows = STEPS * BATCH
        started = time.perf_counter()
        train(layer, (x[:rows], y[:rows]), settings)
        epochs.append((time.perf_counter() - started) * ROWS / rows)
    shares = [d / e for d, e in zip(digests, epochs, strict=True)]
    share = statistics.median(shares)
    result = {
        "command": "python benchmarks/fingerprint.py",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "bytes": x.nbytes + y.nbytes,
        "digest_seconds": statistics.median(digests),
        "epoch_seconds": statistics.median(epochs),
        "share_of_one_epoch": share,
        "spread": [min(shares), max(shares)],
        "share_of_30_epochs": share / 30,
    }
    Path("results/fingerprint.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    assert share / 30 < WANTED, "the digests take more than 1 % of a run of 30 epochs"


if __name__ == "__main__":
    main()

"""Claim: what `train` compares before it resumes from a checkpoint costs less than 1 % of a run of 10 epochs.

Digests of every byte of data, validation data and weights, compared with the training of one epoch in one
process: data in memory of the size and shape of CIFAR-10, batch 32, one epoch cut short and scaled up by the
number of its steps. SHA-256 of the same data is timed in turn, for comparison. Times are those of the
processor, with one thread: other programs on the machine do not count.

    python benchmarks/fingerprint.py            writes results/fingerprint.json
    python benchmarks/fingerprint.py --quick    a tenth of the data, to see that it runs; no file
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import time

import torch
from measure import Target, argument_parser, circumstances, save, verdict

import mlayer
from mlayer.training import Settings, train
from mlayer.training.distributed import World
from mlayer.training.run import Run

ROWS, FEATURES, CLASSES, BATCH = 50_000, 3072, 10, 32
STEPS, REPEATS, EPOCHS, WANTED = 60, 5, 10, 0.01


def main() -> int:
    quick = argument_parser("What the fingerprint of a run costs.", "a smoke run: no file").parse_args().quick
    torch.set_num_threads(1)
    count = ROWS // 10 if quick else ROWS
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (count,), generator=generator)
    validation = (x[: count // 10], y[: count // 10])
    settings = Settings(epochs=1, batch_size=BATCH, loss="cross_entropy")
    times: dict[str, list[float]] = {"digest": [], "sha256": [], "epoch": []}
    for _ in range(REPEATS):
        layer = mlayer.MLayer(FEATURES, CLASSES, matrix_size=30, embedding_size=35, generator=generator)
        run = Run(layer, (x, y), settings, World(), validation=validation)
        started = time.process_time()
        run._fingerprint()
        times["digest"].append(time.process_time() - started)
        started = time.process_time()
        for tensor in (x, y, *validation):
            hashlib.sha256(tensor.numpy().data).hexdigest()
        times["sha256"].append(time.process_time() - started)
        rows = STEPS * BATCH
        started = time.process_time()
        train(layer, (x[:rows], y[:rows]), settings)
        times["epoch"].append((time.process_time() - started) * count / rows)
    shares = [d / e for d, e in zip(times["digest"], times["epoch"], strict=True)]
    share = statistics.median(shares)
    faster = statistics.median(s / d for s, d in zip(times["sha256"], times["digest"], strict=True))
    result = {
        "circumstances": circumstances(),
        "bytes": sum(tensor.nbytes for tensor in (x, y, *validation)),
        **{f"{name}_seconds": statistics.median(values) for name, values in times.items()},
        "times_as_fast_as_sha256": faster,
        "share_of_one_epoch": share,
        "spread": [min(shares), max(shares)],
        f"share_of_{EPOCHS}_epochs": share / EPOCHS,
    }
    if not quick:
        save("fingerprint", result)
    for name, value in result.items():
        print(name, value)
    return verdict([Target(f"share of {EPOCHS} epochs", WANTED, share / EPOCHS, at_most=True)])


if __name__ == "__main__":
    sys.exit(main())

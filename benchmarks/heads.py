"""M-layers as heads of a convolutional net, compared with a linear head and dense nets of the same size.

    python benchmarks/heads.py             about a minute on an idle core; writes results/heads.json
    python benchmarks/heads.py --quick     one seed, two epochs; no file

The net: 8 x 8 digits (scikit-learn), a convolution of 8 filters, ReLU, pooling, 72 features. The heads are
trained together with it, 20 epochs of Adam at 3e-3 on batches of 64, five seeds. Accuracy on unseen digits:
median, lowest and highest. "times": seconds of a training step over those of the linear head, in one run.
Nothing is tuned by the test digits; the recipe (LayerNorm, init="balanced", activity penalty 1e-4) is that of
docs/start/pytorch.md with a LayerNorm in front.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import argument_parser, circumstances, save
from torch import nn

import mlayer
from mlayer.datasets import digits

SEEDS, EPOCHS, FEATURES = range(5), 20, 72
PENALTY = 1e-4


def recipe(n: int, d: int) -> nn.Module:
    """The recommended head."""
    layer = mlayer.MLayer(FEATURES, 10, matrix_size=n, embedding_size=d, init="balanced")
    return nn.Sequential(nn.LayerNorm(FEATURES), layer)


def dense(size: int) -> nn.Module:
    """A dense net with a hidden layer, of about this many parameters."""
    hidden = round((size - 10) / (FEATURES + 11))
    return nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def parameters(head: nn.Module) -> int:
    return sum(p.numel() for p in head.parameters())


HEADS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(FEATURES, 10),
    "recipe, n = 8, d = 10": lambda: recipe(8, 10),
    "dense, as large": lambda: dense(parameters(recipe(8, 10))),
    "plain M-layer, n = 8, d = 10": lambda: mlayer.MLayer(FEATURES, 10, matrix_size=8, embedding_size=10),
    "recipe, n = 16, d = 16": lambda: recipe(16, 16),
    "dense, as large as n = 16": lambda: dense(parameters(recipe(16, 16))),
    "M-layer, all defaults (n = 30, d = 35)": lambda: mlayer.MLayer(FEATURES, 10),
    "dense, as large as the defaults": lambda: dense(parameters(mlayer.MLayer(FEATURES, 10))),
}


def trained(make: Callable[[], nn.Module], seed: int, epochs: int) -> tuple[float, float]:
    """Accuracy on unseen digits, and processor seconds of a step."""
    data = digits()
    x, y = data.train.images(flat=False).unsqueeze(1), data.train.labels
    torch.manual_seed(seed)
    front = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    model = nn.Sequential(front, make())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    start, steps = time.process_time(), 0
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            with mlayer.nn.watch_activity(model) as activities:
                loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            loss = loss + PENALTY * sum(activities)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    seconds = (time.process_time() - start) / steps
    with torch.no_grad():
        right = model(data.test.images(flat=False).unsqueeze(1)).argmax(1) == data.test.labels
    return right.double().mean().item(), seconds


def main() -> int:
    """Train, print, write."""
    quick = argument_parser("M-layers as heads.", "one seed, two epochs; no file").parse_args().quick
    torch.set_num_threads(1)
    trained(HEADS["linear"], 0, 1)
    record: dict[str, Any] = {}
    base = 0.0
    for name, make in HEADS.items():
        runs = [trained(make, seed, 2 if quick else EPOCHS) for seed in (SEEDS[:1] if quick else SEEDS)]
        scores, seconds = [run[0] for run in runs], statistics.median(run[1] for run in runs)
        base = base or seconds
        record[name] = {"parameters": parameters(make()), "accuracy": statistics.median(scores)}
        record[name] |= {"lowest": min(scores), "highest": max(scores), "times": seconds / base}
        print(name, {key: round(value, 4) for key, value in record[name].items()}, flush=True)
    if not quick:
        save("heads", {"circumstances": circumstances(), "heads": record})
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Claim: the initializer "balanced" trains as well as the paper's and the authors', at any input size.

    python benchmarks/initializers.py            some minutes on one core; writes results/initializers.json
    python benchmarks/initializers.py --quick    one step of each, to see that it runs; asserts nothing

Three small tasks, 2, 9 and 2000 inputs of about unit variance. Every initializer is trained from three seeds
at each of several learning rates, all else alike (Adam, batch 32, no penalty). What counts is the loss after
the last epoch on examples not trained on, divided by the loss of the best constant: the median over the seeds
at the initializer's own best rate. Asserted: "balanced" is best or within 10 % of it on each task, and
beats "normal", the paper's, on each.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from measure import argument_parser, circumstances
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

import mlayer

INITIALIZERS = ("normal", "notebook", "balanced")
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
SEEDS = (0, 1, 2)
RESULT = Path(__file__).resolve().parents[1] / "results" / "initializers.json"


def spirals(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two spirals with noise: 2 inputs, 2 classes."""
    count = 2000
    angle = 3 * math.pi * torch.rand(count, generator=generator).sqrt()
    label = torch.randint(0, 2, (count,), generator=generator)
    radius = 10 * angle / angle.max() * (1.0 - 2.0 * label)
    x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    x = x + torch.rand(count, 2, generator=generator) - 0.5
    return x / x.std(), label


def determinant(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """3 x 3 determinants: 9 inputs, 1 number."""
    x = torch.randn(4000, 9, generator=generator)
    return x, torch.linalg.det(x.reshape(-1, 3, 3))[:, None]


def hidden_factors(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Classes from products of three factors that are seen through 2000 noisy inputs."""
    count, inputs = 2000, 2000
    z = torch.randn(count, 3, generator=generator)
    x = z @ torch.randn(3, inputs, generator=generator) + torch.randn(count, inputs, generator=generator)
    label = 2 * (z[:, 0] * z[:, 1] + z[:, 2] > 0).long() + (z[:, 0] + z[:, 1] * z[:, 2] > 0).long()
    return x / x.std(), label


@dataclass(frozen=True)
class Task:
    """Data, and the size of the model for them."""

    make: Callable[[torch.Generator], tuple[Tensor, Tensor]]
    matrix_size: int
    embedding_size: int | None
    epochs: int


TASKS = {
    "spirals": Task(spirals, 10, 10, 20),
    "determinant": Task(determinant, 9, None, 20),
    "hidden factors": Task(hidden_factors, 15, 20, 8),
}


def train(task: Task, init: str, rate: float, seed: int, epochs: int) -> float:
    """Loss on the last fifth of the data over that of the best constant; infinity if training diverged."""
    x, y = task.make(torch.Generator().manual_seed(1000 + seed))
    classes = not y.is_floating_point()
    loss_of: Callable[[Tensor, Tensor], Tensor] = cross_entropy if classes else mse_loss
    outputs = int(y.max()) + 1 if classes else 1
    generator = torch.Generator().manual_seed(seed)
    layer = mlayer.MLayer(
        x.shape[1],
        outputs,
        matrix_size=task.matrix_size,
        embedding_size=task.embedding_size,
        init=init,
        generator=generator,
    )
    optimizer = torch.optim.Adam(layer.parameters(), rate)
    split = len(x) * 4 // 5
    for _ in range(epochs):
        order = torch.randperm(split, generator=generator)
        for start in range(0, split, 32):
            rows = order[start : start + 32]
            loss = loss_of(layer(x[rows]), y[rows])
            if not loss.isfinite():
                return math.inf
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        value = loss_of(layer(x[split:]), y[split:]).item()
    if classes:
        share = torch.bincount(y[split:]).float() / len(y[split:])
        constant = -(share * share.log()).sum().item()
    else:
        constant = y[split:].var(correction=0).item()
    return value / constant if math.isfinite(value) else math.inf


def main() -> int:
    """Train, print, write, judge."""
    parser = argument_parser(__doc__, "a smoke run: no file, no claims")
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rates, seeds = (RATES[:1], SEEDS[:1]) if arguments.quick else (RATES, SEEDS)
    record: dict[str, dict[str, dict[str, object]]] = {}
    holds = True
    for name, task in TASKS.items():
        record[name] = {}
        best = {}
        for init in INITIALIZERS:
            epochs = 1 if arguments.quick else task.epochs
            runs = {rate: [train(task, init, rate, seed, epochs) for seed in seeds] for rate in rates}
            rate = min(runs, key=lambda rate: statistics.median(runs[rate]))
            best[init] = statistics.median(runs[rate])
            failed = sum(value > 1 for values in runs.values() for value in values)
            total = len(rates) * len(seeds)
            remark = f"{failed} of {total} no better than a constant"
            print(f"{name:15} {init:9} {best[init]:.4f} at rate {rate:g}; {remark}", flush=True)
            record[name][init] = {
                "best": best[init],
                "rate": rate,
                "failed": failed,
                "runs": {
                    str(r): [v if math.isfinite(v) else None for v in values] for r, values in runs.items()
                },
            }
        holds &= best["balanced"] <= 1.1 * min(best.values()) and best["balanced"] < best["normal"]
    if arguments.quick:
        print("quick: a smoke run, nothing is judged")
        return 0
    setting = circumstances()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(
        json.dumps({"setting": setting, "tasks": record, "holds": holds}, indent=2) + "\n"
    )
    print("the claim holds" if holds else "THE CLAIM DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())

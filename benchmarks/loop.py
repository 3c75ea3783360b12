"""Claim: the training loop itself costs less than 10 % of a step at batch 32.

    python benchmarks/loop.py            about a minute; writes results/loop.json; exit code 1 if missed
    python benchmarks/loop.py --quick    a few steps of each, to see that it runs; asserts no speed

Two models: the paper's CIFAR-10 model (148,965 parameters) and its 3 x 3 determinant model (811). Three
contenders take turns, each making the same number of steps on the same data:

    bare      forward, loss, backward and optimizer step on batches that are there already, in order
    train     mlayer.training.train: shuffling, batches, loss sums, checks for divergence, the clock
    loader    what one would write by hand: the bare step in a loop over a shuffled torch DataLoader

Each makes twelve epochs; `train` also looks at the data before and at the last weights after them. The
cost of the loop is (train - bare) / train. The learning rate is 0 in effect (1e-12), so that all do the same
arithmetic on the same weights.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict

import torch
from measure import Target, Timing, argument_parser, circumstances, finish, interleaved
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

import mlayer
from mlayer.training import Settings, train

BATCH = 32
EPOCHS = 12


def cifar() -> tuple[nn.Module, Tensor, Tensor, str]:
    """The paper's CIFAR-10 model on random images."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(4096, 3072, generator=g), torch.randint(0, 10, (4096,), generator=g)
    return mlayer.MLayer(3072, 10, init="notebook", generator=g), x, y, "cross_entropy"


def determinant() -> tuple[nn.Module, Tensor, Tensor, str]:
    """The paper's 3 x 3 determinant model."""
    g = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(8192, 9, generator=g) - 1
    model = mlayer.MLayer(9, 1, 9, None, matrix_bias=False, generator=g)
    return model, x, torch.linalg.det(x.view(-1, 3, 3))[:, None], "squared_error"


def contenders(
    model: nn.Module, x: Tensor, y: Tensor, loss: str, steps: int
) -> dict[str, Callable[[], None]]:
    """Each makes ``steps`` optimizer steps."""
    x, y = x[: steps * BATCH], y[: steps * BATCH]
    loss_of = cross_entropy if loss == "cross_entropy" else mse_loss
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-12, fused=True)
    settings = Settings(epochs=EPOCHS, batch_size=BATCH, loss=loss, learning_rate=1e-12)
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
    ready = list(zip(x.split(BATCH), y.split(BATCH), strict=True))

    def step(a: Tensor, b: Tensor) -> None:
        optimizer.zero_grad()
        loss_of(model(a), b).backward()
        optimizer.step()

    def bare() -> None:
        for _ in range(EPOCHS):
            for a, b in ready:
                step(a, b)

    def by_hand() -> None:
        for _ in range(EPOCHS):
            for a, b in loader:
                step(a, b)

    def ours() -> None:
        train(model, (x, y), settings)

    return {"bare": bare, "train": ours, "loader": by_hand}


def main() -> int:
    """Measure, print, write, judge."""
    quick = argument_parser(__doc__, "a smoke run: no file").parse_args().quick
    rows, targets = {}, []
    for name, build in (("CIFAR-10", cifar), ("3 x 3 determinant", determinant)):
        model, x, y, loss = build()
        steps = 4 if quick else len(x) // BATCH
        times: dict[str, Timing] = interleaved(
            contenders(model, x, y, loss, steps=steps), 3 if quick else 5, 0.0
        )
        share = 1 - times["bare"].median / times["train"].median
        hand = 1 - times["bare"].median / times["loader"].median
        micro = {k: 1e6 * t.median / (EPOCHS * steps) for k, t in times.items()}
        rows[name] = {
            "share": share,
            "share_of_a_loop_by_hand": hand,
            "microseconds_a_step": micro,
            "steps": EPOCHS * steps,
            "times": {k: asdict(t) for k, t in times.items()},
        }
        print(
            f"{name:18s} bare {micro['bare']:7.0f} us per step; the loop's share {100 * share:5.1f} %, "
            f"a DataLoader by hand {100 * hand:5.1f} %"
        )
        targets.append(Target(f"{name}: share of the loop at batch 32", 0.10, share, at_most=True))
    if quick:
        return 0
    return finish("loop", {"circumstances": circumstances(), "rows": rows}, targets)


if __name__ == "__main__":
    sys.exit(main())

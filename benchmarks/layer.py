"""Claim: an M-layer trains at the cost of an ordinary net, because its exponential is fast.

    python benchmarks/layer.py            about two minutes; writes results/layer.json; exit code 1 if missed
    python benchmarks/layer.py --quick    a few steps of each, to see that it runs; asserts no speed

One training step (forward, cross-entropy, backward, SGD with momentum) on CIFAR-10-shaped data:

    mlayer       MLayer(3072, 10), n = 30, d = 35: the paper's CIFAR-10 model, 148,965 parameters
    torch        the same weights and products with torch.linalg.matrix_exp
    relu         the paper's net of equal size, 3072-43-100-100-10, 147,649 parameters

Targets, as ratios of medians within one run:

    batch 256    torch / mlayer >= 8
    batch 32     mlayer / relu  <= 2.1 (what the paper reports, on a V100)

All sides are warmed up and take turns, so that a change of the machine's speed meets all alike. Before
anything is timed, the first two are checked to compute the same loss and gradients.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import mlayer

BATCHES = (32, 256)
TORCH_OVER_MLAYER = 8.0  # at least, at batch 256
MLAYER_OVER_RELU = 2.1  # at most, at batch 32
RESULT = Path(__file__).resolve().parents[1] / "results" / "layer.json"


class OnTorch(nn.Module):
    """The same model on torch's own exponential."""

    def __init__(self, layer: mlayer.MLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        E = torch.linalg.matrix_exp(self.layer.matrix(x))
        return nn.functional.linear(E.flatten(-2), self.layer.readout.flatten(1), self.layer.output_bias)


def m_layer() -> mlayer.MLayer:
    """The paper's CIFAR-10 model with the authors' initial weights."""
    return mlayer.MLayer(3072, 10, init="notebook", generator=torch.Generator().manual_seed(0))


def relu_net() -> nn.Module:
    """The paper's net of equal size."""
    sizes = (3072, 43, 100, 100, 10)
    layers: list[nn.Module] = []
    for k, (a, b) in enumerate(pairwise(sizes)):
        layers += [nn.Linear(a, b)] + [nn.ReLU()] * (k < len(sizes) - 2)
    return nn.Sequential(*layers)


def parameters(model: nn.Module) -> int:
    """How many numbers are trained?"""
    return sum(p.numel() for p in model.parameters())


def training_step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    """One step as a function of nothing."""
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        optimiser.zero_grad()
        loss: Tensor = cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()

    return step


@dataclass(frozen=True)
class Timing:
    """Milliseconds a step: median and quartiles over the rounds."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        lower, median, upper = (1e3 * q for q in statistics.quantiles(seconds, n=4))
        return cls(median, lower, upper)


def compare(steps: dict[str, Callable[[], None]], rounds: int, seconds: float) -> dict[str, Timing]:
    """Time the steps in turn; each round of each takes about ``seconds``."""
    repeats = {}
    for name, step in steps.items():
        for _ in range(3):
            step()
        start = time.perf_counter()
        step()
        repeats[name] = max(1, round(seconds / (time.perf_counter() - start)))
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                step()
            samples[name].append((time.perf_counter() - start) / repeats[name])
    return {name: Timing.of(times) for name, times in samples.items()}


def data(batch: int) -> tuple[Tensor, Tensor]:
    """Random images and labels."""
    generator = torch.Generator().manual_seed(batch)
    return torch.rand(batch, 3072, generator=generator), torch.randint(0, 10, (batch,), generator=generator)


def check_same_model() -> None:
    """Loss and gradients of the two M-layers agree, and the parameter counts are the paper's."""
    layer = m_layer()
    x, y = data(32)
    weights = list(layer.parameters())
    ours, theirs = (cross_entropy(model(x), y) for model in (layer, OnTorch(layer)))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(
        torch.autograd.grad(ours, weights), torch.autograd.grad(theirs, weights), rtol=1e-4, atol=1e-6
    )
    assert parameters(layer) == 148_965
    assert parameters(relu_net()) == 147_649


def measure(rounds: int, seconds: float) -> dict[str, dict[str, Timing]]:
    """All timings by batch size and model."""
    results = {}
    for batch in BATCHES:
        x, y = data(batch)
        models = {"mlayer": m_layer(), "torch": OnTorch(m_layer()), "relu": relu_net()}
        steps = {name: training_step(model, x, y) for name, model in models.items()}
        results[str(batch)] = compare(steps, rounds, seconds)
    return results


def main() -> int:
    """Measure, print, write, judge."""
    parser = argparse.ArgumentParser(
        description="Training step of the CIFAR-10 M-layer against torch and a ReLU net."
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: no file, no targets")
    parser.add_argument("--threads", type=int, help="threads for torch (default: as torch chooses)")
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    setting = {
        "command": " ".join(["python", "benchmarks/layer.py", *sys.argv[1:]]),
        "mlayer": mlayer.__version__,
        "expm": mlayer.expm_path().reason,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    for name, value in setting.items():
        print(f"{name:8} {value}")
    check_same_model()
    results = measure(rounds=2, seconds=0.01) if arguments.quick else measure(rounds=21, seconds=0.5)
    print("\nmilliseconds a training step: median (quartiles)")
    for batch, timings in results.items():
        for name, t in timings.items():
            print(f"batch {batch:>3}  {name:7} {t.median:8.3f}  ({t.lower:.3f} .. {t.upper:.3f})")
    over_torch = results["256"]["torch"].median / results["256"]["mlayer"].median
    over_relu = results["32"]["mlayer"].median / results["32"]["relu"].median
    print(f"\nbatch 256: torch / mlayer = {over_torch:.2f}   target >= {TORCH_OVER_MLAYER}")
    print(f"batch  32: mlayer / relu  = {over_relu:.2f}   target <= {MLAYER_OVER_RELU}")
    if arguments.quick:
        print("quick: a smoke run, nothing is judged")
        return 0
    met = over_torch >= TORCH_OVER_MLAYER and over_relu <= MLAYER_OVER_RELU
    record = {
        "setting": setting,
        "milliseconds": {b: {name: asdict(t) for name, t in r.items()} for b, r in results.items()},
        "ratios": {"256 torch/mlayer": over_torch, "32 mlayer/relu": over_relu},
        "targets": {"256 torch/mlayer": TORCH_OVER_MLAYER, "32 mlayer/relu": MLAYER_OVER_RELU},
        "met": met,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(record, indent=2) + "\n")
    print("targets met" if met else "TARGETS MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

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

import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import torch
from measure import RESULTS, Target, Timing, argument_parser, circumstances, finish, interleaved
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import mlayer

BATCHES = (32, 256)


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
    """The number of trained parameters."""
    return sum(p.numel() for p in model.parameters())


def training_step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    """One step as a function of nothing.

    With a learning rate of 0 the arithmetic is that of a step but the weights stay: thousands of steps on
    one batch would let the norm of M run away, and with it the cost of every exponential.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        loss: Tensor = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return step


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


def measure(repetitions: int, seconds: float) -> dict[int, dict[str, Timing]]:
    """All timings by batch size and model."""
    results = {}
    for batch in BATCHES:
        x, y = data(batch)
        models = {"mlayer": m_layer(), "torch": OnTorch(m_layer()), "relu": relu_net()}
        steps = {name: training_step(model, x, y) for name, model in models.items()}
        results[batch] = interleaved(steps, repetitions, seconds)
    return results


PASSES = 6  # M, exp(M) and both gradients between the layer's products: three written, three read again


def shares(repetitions: int, seconds: float) -> tuple[float, float]:
    """The shares of the exponential with its derivative, and of memory passes, in a step at batch 256."""
    x, y = data(256)
    layer = m_layer()
    M = layer.matrix(x).detach().requires_grad_()
    G = torch.randn(M.shape, generator=torch.Generator().manual_seed(0))
    copy = torch.empty_like(G)
    times = interleaved(
        {
            "step": training_step(layer, x, y),
            "exponential": lambda: torch.autograd.grad(mlayer.expm(M), M, G),
            "copy": lambda: copy.copy_(G),  # a pass that reads and one that writes
        },
        repetitions,
        seconds,
    )
    step = times["step"].median
    return times["exponential"].median / step, PASSES / 2 * times["copy"].median / step


def main() -> int:
    """Measure, print, write, judge."""
    parser = argument_parser(__doc__, "a smoke run: no file, no targets")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where layer.json goes")
    options = parser.parse_args()
    facts = circumstances()
    print(facts)
    check_same_model()
    repetitions, seconds = (2, 0.01) if options.quick else (15, 0.5)
    results = measure(repetitions, seconds)
    exponential, passes = shares(repetitions, seconds)
    print("\nmilliseconds per training step: median (quartiles)")
    for batch, timings in results.items():
        for name, t in timings.items():
            print(
                f"batch {batch:>3}  {name:7} {1e3 * t.median:8.3f}  ({1e3 * t.low:.3f} .. {1e3 * t.high:.3f})"
            )
    print(f"of a step at batch 256: exponential and derivative {exponential:.0%}, passes over M {passes:.0%}")
    found = [
        Target(
            "batch 256: torch / mlayer", 8.0, results[256]["torch"].median / results[256]["mlayer"].median
        ),
        Target(
            "batch 32: mlayer / relu",
            2.1,
            results[32]["mlayer"].median / results[32]["relu"].median,
            at_most=True,
        ),
    ]
    if options.quick:
        print("quick: a smoke run, nothing is judged")
        return 0
    content = {
        "circumstances": facts,
        "seconds": {b: {name: asdict(t) for name, t in r.items()} for b, r in results.items()},
        "share_of_exponential": exponential,
        "share_of_passes": passes,
    }
    return finish("layer", content, found, options.results)


if __name__ == "__main__":
    sys.exit(main())

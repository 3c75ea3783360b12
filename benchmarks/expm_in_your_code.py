"""Claim: mlayer.expm in the place of torch's matrix_exp makes other people's code faster.

    python benchmarks/expm_in_your_code.py            a minute; writes results/expm_in_your_code.json
    python benchmarks/expm_in_your_code.py --quick    small cells, in seconds; asserts no speed

Four places, forward and backward, original and replacement in turn: torch's `orthogonal` parametrization,
geotorch's (where installed), a path-development layer, and a function of one matrix under torch.func.vmap.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import asdict
from statistics import geometric_mean

import torch
from measure import Target, argument_parser, circumstances, finish, interleaved
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import mlayer

Expm = Callable[[Tensor], Tensor]
Calls = dict[str, Callable[[], object]]
CONTENDERS: dict[str, Expm] = {"torch": torch.linalg.matrix_exp, "mlayer": mlayer.expm}


class Orthogonal(nn.Module):
    """The result of torch's parametrization by matrix_exp for a square weight, with any exponential."""

    def __init__(self, expm: Expm) -> None:
        super().__init__()
        self.expm = expm

    def forward(self, free: Tensor) -> Tensor:
        lower = free.tril(-1)
        return self.expm(lower - lower.mT)


def step(module: nn.Module, x: Tensor) -> Callable[[], object]:
    """Forward and backward, with the same weights for every contender, as after some training."""
    parameters = list(module.parameters())
    generator = torch.Generator().manual_seed(1)
    for parameter in parameters:
        torch.nn.init.normal_(parameter, std=0.5 / parameter.shape[-1] ** 0.5, generator=generator)
    return lambda: torch.autograd.grad(module(x).square().sum(), parameters, allow_unused=True)


def torch_orthogonal(n: int, batch: int) -> Calls:
    x = torch.randn(batch, n, generator=torch.Generator().manual_seed(0))
    original = parametrizations.orthogonal(nn.Linear(n, n), orthogonal_map="matrix_exp")
    ours = nn.Linear(n, n)
    parametrize.register_parametrization(ours, "weight", Orthogonal(mlayer.expm))
    return {"torch": step(original, x), "mlayer": step(ours, x)}


def geotorch_orthogonal(n: int, batch: int) -> Calls:
    import geotorch

    x = torch.randn(batch, n, generator=torch.Generator().manual_seed(0))
    calls: Calls = {}
    for name, triv in {"torch": "expm", "mlayer": mlayer.expm}.items():
        layer = nn.Linear(n, n)
        geotorch.orthogonal(layer, "weight", triv=triv)
        calls[name] = step(layer, x)
    return calls


class Development(nn.Module):
    """Path development: the product of exp(sum_a dx_a A_a) along a path, A_a skew."""

    def __init__(self, channels: int, n: int, expm: Expm) -> None:
        super().__init__()
        self.expm = expm
        free = torch.randn(channels, n, n, generator=torch.Generator().manual_seed(0)) / n
        self.free = nn.Parameter(free)

    def forward(self, path: Tensor) -> Tensor:
        steps = path.diff(dim=1)  # (batch, length, channels)
        moves = self.expm(torch.einsum("blc,cij->blij", steps, self.free - self.free.mT))
        state = moves[:, 0]
        for k in range(1, moves.shape[1]):
            state = state @ moves[:, k]
        return state


def development(n: int, batch: int) -> Calls:
    path = torch.randn(batch, 33, 4, generator=torch.Generator().manual_seed(0)).cumsum(1)
    return {name: step(Development(4, n, expm), path) for name, expm in CONTENDERS.items()}


def vmapped(n: int, batch: int) -> Calls:
    matrices = torch.randn(batch, n, n, generator=torch.Generator().manual_seed(0)) / n**0.5

    def call(expm: Expm) -> Callable[[], object]:
        gradient = torch.func.vmap(torch.func.grad(lambda a: expm(a).square().sum()))
        return lambda: gradient(matrices)

    return {name: call(expm) for name, expm in CONTENDERS.items()}


PLACES: dict[str, tuple[Callable[[int, int], Calls], list[tuple[int, int]]]] = {
    "orthogonal of torch": (torch_orthogonal, [(32, 64), (128, 64), (256, 64)]),
    "orthogonal of geotorch": (geotorch_orthogonal, [(32, 64), (128, 64), (256, 64)]),
    "path development": (development, [(6, 64), (16, 64), (32, 32)]),
    "vmap of a gradient": (vmapped, [(6, 256), (16, 256), (32, 256)]),
}


def main() -> int:
    """Measure, print, write, judge."""
    quick = argument_parser(__doc__, "a smoke run: no file").parse_args().quick
    facts = circumstances()
    print(facts)
    rows = []
    for place, (build, cells) in PLACES.items():
        if place.endswith("geotorch") and importlib.util.find_spec("geotorch") is None:
            print("geotorch is not installed")
            continue
        for n, batch in cells[:1] if quick else cells:
            times = interleaved(build(n, batch), 2 if quick else 7, 0.0 if quick else 0.03)
            ratio = times["torch"].median / times["mlayer"].median
            spread = (times["mlayer"].high - times["mlayer"].low) / times["mlayer"].median
            print(
                f"{place:24s} n = {n:3d}, batch {batch:3d}: mlayer {times['mlayer'].median * 1e3:7.2f} ms "
                f"(spread {spread:.0%}), original / mlayer {ratio:5.2f}",
                flush=True,
            )
            seconds = {k: asdict(x) for k, x in times.items()}
            rows.append({"place": place, "n": n, "batch": batch, "ratio": ratio, "seconds": seconds})
    if quick:
        return 0
    ratios: dict[str, list[float]] = {}
    for row in rows:
        ratios.setdefault(str(row["place"]), []).append(float(row["ratio"]))  # type: ignore[arg-type]
    means = {place: geometric_mean(values) for place, values in ratios.items()}
    targets = [
        Target(f"{place}: original / mlayer, geometric mean", 1.0, mean) for place, mean in means.items()
    ]
    return finish("expm_in_your_code", {"circumstances": facts, "rows": rows}, targets)


if __name__ == "__main__":
    sys.exit(main())

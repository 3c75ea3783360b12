"""Claim: `train`'s RMSprop, the paper's optimizer, takes half the time of torch's own, or less.

    python benchmarks/rmsprop.py            a minute; writes results/rmsprop.json; exit code 1 if missed
    python benchmarks/rmsprop.py --quick    a few steps, to see that it runs; asserts no speed

Two models of the paper's section 4.3: the M-layer for 5 x 5 determinants (3 tensors, 14,977 parameters) and
the dense net compared with it (12 tensors, 43,101 parameters). Three contenders take turns on the same
gradients: torch's RMSprop with its defaults, torch's with foreach=True, and ours. The net is measured again
as training leaves it: with a part of its weights behind dead units, whose gradients are 0 and whose running
squares torch's update leaves at subnormal numbers. How far the weights are apart after the same steps is the
accuracy next to it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from measure import Target, argument_parser, circumstances, finish, interleaved
from torch import Tensor, nn

from mlayer.experiments.shared.polynomials import dnn, m_layer
from mlayer.training.rmsprop import RMSprop

OPTIONS: dict[str, Any] = {"lr": 1e-3, "alpha": 0.9, "eps": 1e-7}
DEAD = 0.5
# Steps with dead units before the clock starts: 0.9^1000 is subnormal.
BEFORE = 1000


def gradients(model: nn.Module, dead: float) -> list[Tensor]:
    """Gradients of the size that a batch gives, with whole rows of zeros for the dead units."""
    g = torch.Generator().manual_seed(0)
    drawn = [torch.randn(p.shape, generator=g) for p in model.parameters()]
    for gradient in drawn:
        if dead and len(gradient) > 1:
            gradient[: int(dead * len(gradient))] = 0
    return drawn


def prepared(
    kind: type[torch.optim.RMSprop], model: nn.Module, drawn: list[Tensor], before: int, **options: bool
) -> tuple[list[Tensor], Callable[[], object]]:
    """The weights and a step of this optimizer, after ``before`` steps from a first one with live units."""
    weights = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
    optimizer = kind(weights, **OPTIONS, **options)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    for weight, gradient in zip(weights, drawn, strict=True):
        weight.grad = gradient.clone()
    for _ in range(before):
        optimizer.step()
    return [w.detach() for w in weights], optimizer.step


def main() -> int:
    """Measure, print, write, judge."""
    quick = argument_parser(__doc__, "a smoke run: no file").parse_args().quick
    cases = {
        "M-layer": (m_layer(5, 24, 0), 0.0),
        "dense net": (dnn(5, 5, 100, 0), 0.0),
        "dense net, half of its units dead": (dnn(5, 5, 100, 0), DEAD),
    }
    rows, targets = {}, []
    for name, (model, dead) in cases.items():
        drawn, before = gradients(model, dead), 10 if quick else BEFORE
        made = {
            "torch": prepared(torch.optim.RMSprop, model, drawn, before),
            "foreach": prepared(torch.optim.RMSprop, model, drawn, before, foreach=True),
            "ours": prepared(RMSprop, model, drawn, before),
        }
        ends = {k: copy.deepcopy(weights) for k, (weights, _) in made.items()}
        apart = max(
            float((a - b).abs().max() / b.abs().max())
            for a, b in zip(ends["ours"], ends["torch"], strict=True)
        )
        times = interleaved(
            {k: step for k, (_, step) in made.items()}, 3 if quick else 15, 0.0 if quick else 0.1
        )
        ratios = {k: times[k].median / times["ours"].median for k in ("torch", "foreach")}
        rows[name] = {
            "seconds": {k: asdict(t) for k, t in times.items()},
            "ratios": ratios,
            "weights_apart": apart,
        }
        print(
            f"{name:34s} torch / ours {ratios['torch']:5.2f}, foreach / ours {ratios['foreach']:5.2f}, "
            f"weights {apart:.1e} apart after {before + 1} steps"
        )
        targets.append(Target(f"{name}: torch / ours", 2.0, ratios["torch"]))
    if quick:
        return 0
    return finish("rmsprop", {"circumstances": circumstances(), "rows": rows}, targets)


if __name__ == "__main__":
    sys.exit(main())

"""Claim: of small networks that end in an M-layer, trained for it, most of the attack's radius is certified.

    python benchmarks/networks.py               scikit-learn's digits, and MNIST from $MLAYER_DATA
    python benchmarks/networks.py --only digits    prints and writes nothing

Two networks each: "plain" is trained by cross-entropy, "for bounds" by the certified loss at the end of
interval bounds through its front, its eps rising from 0 over the first half of the epochs. Test images that
are classified correctly are certified (`mlayer.certify`) and attacked (`mlayer.attack`) within [0, 1]; the
share is certified radius over attacked radius. Writes results/networks.json.

Targets: the median share of the networks trained for bounds >= 0.8; no radius above the attack's.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch
from measure import Target, argument_parser, circumstances, finish, verdict
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import mlayer
from mlayer.certificates import CertifiedLoss

BATCH = 100
SEED = 0


@dataclass(frozen=True)
class Task:
    """The network that is trained and certified.

    Attributes:
        eps: of the certified loss, and of the accuracies under it.
        epochs: of both trainings.
        rows: how many images are trained on.
        images: how many test images are certified.
    """

    name: str
    eps: float
    epochs: int
    rows: int
    images: int


TASKS = (Task("digits", 0.1, 30, 1297, 60), Task("MNIST", 0.1, 5, 12_000, 60))


def data(name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images and labels, test images and labels; pixels in [0, 1], (rows, 1, side, side)."""
    if name == "digits":
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        x, y = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(SEED))
        train, test = order[:-500], order[-500:]
        return x[train], y[train], x[test], y[test]
    from mlayer.datasets import mnist

    found = mnist()
    parts = [(split.pixels[:, None].float() / 255, split.labels) for split in (found.train, found.test)]
    return *parts[0], *parts[1]


def network(name: str) -> nn.Sequential:
    """Convolution, ReLU, Linear, ReLU, M-layer."""
    torch.manual_seed(SEED)
    side, channels, features = (8, 8, 32) if name == "digits" else (28, 8, 48)
    return nn.Sequential(
        nn.Conv2d(1, channels, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(channels * side**2 // 4, features),
        nn.ReLU(),
        mlayer.MLayer(features, 10, matrix_size=8, embedding_size=16, init="balanced"),
    )


def through(front: nn.Module, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Center and half-widths of the features: interval bounds, for training."""
    center, reach = (low + high) / 2, (high - low) / 2
    for module in front.children():
        if isinstance(module, nn.Conv2d):
            reach = nn.functional.conv2d(reach, module.weight.abs(), None, module.stride, module.padding)
            center = module(center)
        elif isinstance(module, nn.Linear):
            center, reach = module(center), nn.functional.linear(reach, module.weight.abs())
        elif isinstance(module, nn.ReLU):
            low, high = (center - reach).relu(), (center + reach).relu()
            center, reach = (low + high) / 2, (high - low) / 2
        else:
            center, reach = module(center), module(reach)
    return center, reach


def train(task: Task, x: Tensor, y: Tensor, bounded: bool) -> nn.Sequential:
    """A trained network."""
    model = network(task.name)
    layer = model[-1]
    assert isinstance(layer, mlayer.MLayer)
    loss = CertifiedLoss(layer.in_features, box=None)
    parameters = [*model.parameters(), *loss.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=2e-3)
    steps = task.epochs * (len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    generator, step = torch.Generator().manual_seed(SEED), 0
    for _ in range(task.epochs):
        for rows in torch.randperm(len(x), generator=generator).split(BATCH)[: len(x) // BATCH]:
            progress = min(1.0, 2 * step / steps)
            image, label, eps = x[rows], y[rows], task.eps * 1.1 * progress
            value = cross_entropy(model(image), label)
            if bounded:
                ends = (image - eps).clamp_min(0), (image + eps).clamp_max(1)
                center, reach = through(model[:-1], *ends)
                margins = loss.margins_over(layer, center, reach, label)
                worst = torch.logsumexp(-margins.clamp_min(-50), 1).mean()
                value = (1 - 0.7 * progress) * value + 0.7 * progress * worst
            optimizer.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(parameters, 5.0)
            optimizer.step()
            schedule.step()
            step += 1
    return model.eval()


def judged(task: Task, model: nn.Sequential, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Accuracy on all test images; radii of the first ones."""
    with torch.no_grad():
        accuracy = float((model(x).argmax(1) == y).double().mean())
    x, y = x[: task.images], y[: task.images]
    proved = mlayer.certify(model, x, y, box=(0, 1))
    broken = mlayer.attack(model, x, y, eps=task.eps, box=(0, 1), starts=2)
    right = proved.correct & broken.radius.isfinite()
    share = (proved.radius / broken.radius)[right]
    return {
        "accuracy": accuracy,
        "images": len(x),
        "certified_accuracy": float((proved.radius >= task.eps).double().mean()),
        "attacked_accuracy": float((proved.correct & ~broken.success).double().mean()),
        "median_radius": float(proved.radius[right].median()),
        "median_attacked_radius": float(broken.radius[right].median()),
        "share": {f"{q:g}": float(share.quantile(q)) for q in (0.05, 0.5, 0.95)},
        "above_the_attack": int((proved.radius > broken.radius).sum()),
    }


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--only", choices=[task.name for task in TASKS])
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for task in TASKS:
        if options.only in (None, task.name):
            x, y, test_x, test_y = data(task.name)
            found[task.name] = {"task": asdict(task)}
            for kind, bounded in (("plain", False), ("for bounds", True)):
                found[task.name][kind] = judged(
                    task, train(task, x[: task.rows], y[: task.rows], bounded), test_x, test_y
                )
                print(task.name, kind, found[task.name][kind], flush=True)
    targets = [
        Target(f"{name}: median share of the attack's radius", 0.8, entry["for bounds"]["share"]["0.5"])
        for name, entry in found.items()
    ]
    above = sum(
        entry[kind]["above_the_attack"] for entry in found.values() for kind in ("plain", "for bounds")
    )
    targets.append(Target("radii above the attack's", 0, above, at_most=True))
    if options.only is None:
        return finish("networks", {"circumstances": circumstances(), "tasks": found}, targets)
    return verdict(targets)


if __name__ == "__main__":
    sys.exit(main())

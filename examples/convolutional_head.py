"""An M-layer on top of convolutions: digits, compared with a ReLU head of its size and a linear one.

The convolutions are the same for all three and start from the same weights; one plain torch loop trains
them. `mlayer reproduce convolutional` does the same with a residual net on CIFAR-10 and SVHN.

    python examples/convolutional_head.py    some seconds; writes out/convolutional_head.png
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import mlayer
from mlayer.datasets import digits

OUT = Path("out")
FEATURES = 32


def convolutions() -> list[nn.Module]:
    """Convolutions from 8 x 8 pixels to 32 features."""
    torch.manual_seed(0)
    return [
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, FEATURES, 3, stride=2, padding=1),
        nn.BatchNorm2d(FEATURES),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ]


def train(model: nn.Module, x: Tensor, y: Tensor, test: tuple[Tensor, Tensor]) -> list[float]:
    """Test error, in percent, after each epoch."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    errors = []
    for _ in range(12):
        model.train()
        for batch in torch.randperm(len(x), generator=generator).split(64):
            with mlayer.nn.watch_activity(model) as activities:
                loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            loss = loss + 1e-4 * sum(activities)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            wrong = model(test[0]).argmax(1) != test[1]
        errors.append(100 * wrong.double().mean().item())
    return errors


def main() -> None:
    data = digits()  # 8 x 8 pixels, comes with scikit-learn
    x, y = data.train.images(flat=False)[:, None], data.train.labels
    test = data.test.images(flat=False)[:, None], data.test.labels
    heads: dict[str, Callable[[], list[nn.Module]]] = {
        "M-layer": lambda: [mlayer.MLayer(FEATURES, 10, matrix_size=8, embedding_size=10, init="balanced")],
        "ReLU": lambda: [nn.Linear(FEATURES, 39), nn.ReLU(), nn.Linear(39, 10)],
        "linear": lambda: [nn.Linear(FEATURES, 10)],
    }
    curves = {}
    for name, head in heads.items():
        model = nn.Sequential(*convolutions(), *head())
        count = sum(p.numel() for part in list(model)[7:] for p in part.parameters())
        errors = curves[f"{name} head, {count:,} parameters"] = train(model, x, y, test)
        print(f"{name:8} head, {count:5,} parameters, wrong on unseen digits: {errors[-1]:.1f}%")
    print(f"Picture: {picture(curves)}")


def picture(curves: dict[str, list[float]]) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    styles = (("#0072B2", "o-"), ("#D55E00", "s-"), ("#009E73", "^-"))
    for (name, errors), (color, mark) in zip(curves.items(), styles, strict=True):
        axes.plot(range(1, len(errors) + 1), errors, mark, color=color, label=name, markersize=4)
    axes.set(xlabel="epoch", ylabel="wrong, % of unseen digits", yscale="log")
    axes.legend(loc="best", frameon=False)
    axes.set_title("the same convolutions, three heads", loc="left")
    OUT.mkdir(exist_ok=True)
    file = OUT / "convolutional_head.png"
    figure.savefig(file, dpi=110)
    return file


if __name__ == "__main__":
    main()

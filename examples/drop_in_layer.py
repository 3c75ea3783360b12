"""The layer in your own model: digits, compared with Linear, ReLU, Linear.

Both models have about as many parameters and go through the same plain torch loop. The M-layer's penalty
keeps exp(M) small; nothing else is special.

    python examples/drop_in_layer.py         some seconds; writes out/drop_in_layer.png
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import mlayer
from mlayer.datasets import digits

OUT = Path("out")


def train(model: nn.Module, x: Tensor, y: Tensor, test: tuple[Tensor, Tensor]) -> list[float]:
    """Test error, in percent, after each epoch."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    errors = []
    for _ in range(25):
        for batch in torch.randperm(len(x), generator=generator).split(64):
            # Collects the penalty of every M-layer inside the model; a model without one has none.
            with mlayer.nn.watch_activity(model) as activities:
                loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            loss = loss + 1e-4 * sum(activities)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            wrong = model(test[0]).argmax(1) != test[1]
        errors.append(100 * wrong.double().mean().item())
    return errors


def main() -> None:
    data = digits()  # 8 x 8 pixels, comes with scikit-learn
    x, y = data.train.images(flat=False), data.train.labels
    test = data.test.images(flat=False), data.test.labels
    torch.manual_seed(0)
    models = {
        "ReLU net": nn.Sequential(nn.Flatten(), nn.Linear(64, 28), nn.ReLU(), nn.Linear(28, 10)),
        "M-layer": nn.Sequential(
            nn.Flatten(), mlayer.MLayer(64, 10, matrix_size=8, embedding_size=10, init="balanced")
        ),
    }
    curves = {}
    for name, model in models.items():
        count = sum(p.numel() for p in model.parameters())
        errors = curves[f"{name}, {count:,} parameters"] = train(model, x, y, test)
        print(f"{name:9} {count:5,} parameters, wrong on unseen digits: {errors[-1]:.1f}%")
    print(f"Picture: {picture(curves, models['M-layer'], test)}")


def picture(curves: dict[str, list[float]], model: nn.Module, test: tuple[Tensor, Tensor]) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", width_ratios=(3, 2))
    for (name, errors), color, mark in zip(curves.items(), ("#D55E00", "#0072B2"), ("s-", "o-"), strict=True):
        left.plot(range(1, len(errors) + 1), errors, mark, color=color, label=name, markersize=4)
    left.set(xlabel="epoch", ylabel="test error, %", ylim=(0, None))
    left.legend(loc="best", frameon=False)
    left.set_title("the same loop for both", loc="left")

    outputs = model(test[0]).argmax(1)
    wrong = torch.nonzero(outputs != test[1])[:12, 0]
    tiles = torch.ones(3, 11, 4, 9)
    for place, k in enumerate(wrong.tolist()):
        row, column = divmod(place, 4)
        tiles[row, :8, column, :8] = 1 - test[0][k]
        said = f"{test[1][k]} read as {outputs[k]}"
        right.text(column * 9 + 3.5, row * 11 + 8, said, ha="center", va="top", fontsize=7)
    right.imshow(tiles.reshape(33, 36).numpy(), cmap="gray", vmin=0, vmax=1)
    right.axis("off")
    right.set_title("what the M-layer got wrong", loc="left")
    OUT.mkdir(exist_ok=True)
    file = OUT / "drop_in_layer.png"
    figure.savefig(file, dpi=110)
    return file


if __name__ == "__main__":
    main()

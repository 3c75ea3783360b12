"""Proof and attack: how far the pixels of a digit may move before its class changes.

A small M-layer learns 8 x 8 digits. For each of some unseen digits a radius is proved within which no
change of the pixels changes the class, and an attack looks for a change that does. The truth lies between.

    python examples/certify_digits.py        some seconds; writes out/certify_digits.png
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import mlayer
from mlayer.datasets import digits
from mlayer.training import Settings, train

OUT = Path("out")
ROWS = 12


def main() -> None:
    data = digits()
    generator = torch.Generator().manual_seed(0)
    layer = mlayer.MLayer(64, 10, matrix_size=6, embedding_size=8, init="balanced", generator=generator)
    settings = Settings(
        epochs=15, batch_size=64, loss="cross_entropy", learning_rate=5e-3, activity_penalty=1e-3
    )
    train(layer, (data.train.images(), data.train.labels), settings)
    test, labels = data.test.images(), data.test.labels
    with torch.no_grad():
        right = layer(test).argmax(1) == labels
    print(f"right on unseen digits: {100 * right.double().mean():.1f}%")

    # 3 steps apart: the file's digits come in runs of one writer.
    rows = torch.nonzero(right)[::3, 0][:ROWS]
    x, y = test[rows].double(), labels[rows]
    certifier = mlayer.Certifier(layer, box=(0, 1), references=test[:16], fit_steps=60)
    proved = certifier(x, y)
    broken = mlayer.attack(layer, x, y, box=(0, 1))
    assert (proved.radius <= broken.radius).all()
    print(f"median radius: proved {proved.radius.median():.3f}, broken {broken.radius.median():.3f}")
    closest = int((proved.radius / broken.radius).argmax())
    print(f"closest: at least {proved.radius[closest]:.4f}, less than {broken.radius[closest]:.4f}")
    print(f"Picture: {picture(x, y, proved.radius, broken)}")


def picture(x: Tensor, labels: Tensor, proved: Tensor, broken: mlayer.Attack) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(9, 3.8), layout="constrained")
    grid = figure.add_gridspec(2, 4)
    left = figure.add_subplot(grid[:, :2])
    order = broken.radius.argsort()
    place = range(len(order))
    left.vlines(list(place), proved[order], broken.radius[order], color="0.6", linewidth=2, zorder=1)
    left.plot(place, broken.radius[order], "v", color="#D55E00", label="broken by the attack")
    left.plot(place, proved[order], "^", color="#0072B2", label="proved safe")
    left.set_xticks(list(place), [str(int(labels[k])) for k in order])
    left.set(xlabel="digit", ylabel="change of every pixel (0 white, 1 black)", ylim=(0, None))
    left.legend(frameon=False, loc="upper left")
    left.set_title("the truth is on the gray lines", loc="left")
    for column, k in enumerate((order[0], order[-1])):
        for row, (image, said) in enumerate(
            ((x[k], f"a {labels[k]}"), (broken.adversarial[k], f"read as {broken.target[k]}"))
        ):
            axes = figure.add_subplot(grid[row, 2 + column])
            axes.imshow(1 - image.reshape(8, 8).numpy(), cmap="gray", vmin=0, vmax=1)
            axes.axis("off")
            axes.set_title(said if row == 0 else f"{said}, moved by {broken.radius[k]:.3f}", fontsize=9)
    OUT.mkdir(exist_ok=True)
    file = OUT / "certify_digits.png"
    figure.savefig(file, dpi=110)
    return file


if __name__ == "__main__":
    main()

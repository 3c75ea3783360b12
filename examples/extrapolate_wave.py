"""Beyond the data: two waves and a trend, learned on ten years and asked about the next ten.

A rotation in M is a wave in the output, so an M-layer continues where the data end. Support vectors and
gradient boosting follow the data and then do not. The formula that was learned is read back at the end.

    python examples/extrapolate_wave.py      some seconds; writes out/extrapolate_wave.png
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import sympy
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.svm import SVR

import mlayer

OUT = Path("out")


def truth(t: np.ndarray) -> np.ndarray:
    return 12 + 0.2 * t + 3 * np.sin(2 * np.pi * t) + 1.5 * np.cos(2 * np.pi * t / 3.7)


def main() -> None:
    generator = np.random.default_rng(0)
    t = np.arange(0, 10, 1 / 24)
    y = truth(t) + 0.3 * generator.standard_normal(len(t))
    later = np.arange(10, 20, 1 / 24)

    models = {
        "M-layer": mlayer.MLayerRegressor(alpha=0.01, max_iter=40, random_state=0),
        "support vectors": SVR(C=30, gamma=10),
        "gradient boosting": HistGradientBoostingRegressor(min_samples_leaf=5, random_state=0),
    }
    curves = {}
    for name, model in models.items():
        model.fit(t[:, None], y)
        curves[name] = model.predict(np.concatenate([t, later])[:, None])
        error = np.sqrt(((curves[name][len(t) :] - truth(later)) ** 2).mean())
        print(f"{name:18} error in the ten years after: {error:.2f}")
    formula = mlayer.to_sympy(models["M-layer"].to_mlayer(), "t", tolerance=1e-3)
    print("learned:", sympy.N(formula, 3))
    print(f"Picture: {picture(t, y, later, curves)}")


def picture(t: np.ndarray, y: np.ndarray, later: np.ndarray, curves: dict[str, np.ndarray]) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 1, figsize=(9, 5), layout="constrained", sharex=True, sharey=True)
    whole = np.concatenate([t, later])
    for axis, (name, curve), color in zip(
        axes, curves.items(), ("#0072B2", "#D55E00", "#009E73"), strict=True
    ):
        axis.axvspan(10, 20, color="0.94")
        axis.plot(later, truth(later), color="0.55", linewidth=3, label="truth")
        axis.plot(t, y, ".", color="0.2", markersize=2, label="data")
        axis.plot(whole, curve, color=color, linewidth=1.3, label=name)
        axis.set_title(name, loc="left")
    axes[0].legend(loc="upper left", ncols=3, frameon=False, fontsize=8)
    axes[0].set(xlim=(0, 20), ylim=(4, 24))
    axes[1].set_ylabel("what is measured")
    axes[-1].set_xlabel("years; gray: not in the data")
    OUT.mkdir(exist_ok=True)
    file = OUT / "extrapolate_wave.png"
    figure.savefig(file, dpi=90)
    return file


if __name__ == "__main__":
    main()

"""The picture of benchmarks/expm.py: how many times faster, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette: color-blind readers can distinguish it.
COLORS = {"torch": "#0072B2", "jax": "#E69F00", "tensorflow": "#009E73", "scipy": "#CC79A7"}


def draw(content: Mapping[str, Any]) -> Figure:
    """Ratios to mlayer of every library in every float32 cell of the grid, with the median's quartiles."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    first = next(iter(content["sets"].values()))  # the widest instruction set
    ours = [c for c in first["cells"] if c["dtype"] == "float32" and c["path"] == "auto"]
    beside = {(c["n"], c["batch"]): c for c in first["cells"] if c["path"] == "others"}
    empty: dict[str, Any] = {"forward": {}, "both": {}}
    cells = [
        c | {f"{kind}_others": beside.get((c["n"], c["batch"]), empty)[kind] for kind in ("forward", "both")}
        for c in ours
    ]
    labels = [f"{c['n']}\n{c['batch']}" for c in cells]
    figure, axes = plt.subplots(2, 1, figsize=(9, 6.2), sharex=True, layout="constrained")
    for axis, kind, title in zip(axes, ("forward", "both"), ("forward", "forward + backward"), strict=True):
        names = [n for n in COLORS if any(n in c[kind] or n in c[f"{kind}_others"] for c in cells)]
        width = 0.8 / len(names)
        for k, name in enumerate(names):
            measured = [c[kind] | c[f"{kind}_others"] for c in cells]
            place = [i - 0.4 + (k + 0.5) * width for i, times in enumerate(measured) if name in times]
            times = [(all_[name], all_["mlayer"]) for all_ in measured if name in all_]
            ratio = [other["median"] / ours["median"] for other, ours in times]
            low = [r - other["low"] / ours["high"] for r, (other, ours) in zip(ratio, times, strict=True)]
            high = [other["high"] / ours["low"] - r for r, (other, ours) in zip(ratio, times, strict=True)]
            axis.bar(place, ratio, width, color=COLORS[name], label=name)
            axis.errorbar(place, ratio, [low, high], fmt="none", ecolor="0.25", elinewidth=0.8)
        axis.set_yscale("log")
        axis.set_yticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
        axis.axhline(1, color="0.3", linewidth=0.8)
        axis.set_ylabel("times slower than mlayer")
        axis.set_title(title, loc="left")
        axis.grid(axis="y", alpha=0.3)
        axis.legend(ncols=len(names), loc="upper right", frameon=False)
    axes[1].set_xticks(range(len(cells)), labels)
    axes[1].set_xlabel("matrix size n (above), batch (below)")
    facts = first["circumstances"]
    figure.suptitle(
        f"mlayer.expm, float32, {facts['threads']} threads, torch {facts['torch']}", x=0.01, ha="left"
    )
    return figure

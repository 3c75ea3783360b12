"""Clean, attacked and certified accuracy of several models: groups, figures, the picture."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

from mlayer.experiments.running.protocol import Results
from mlayer.experiments.shared.over_seeds import grouped
from mlayer.experiments.shared.pictures import SET_TITLES, Figure, colors, is_narrow, panels

KINDS = ("clean", "attacked", "certified")


def accuracy_figures(start: str, results: Results) -> dict[str, float]:
    """Every task's accuracies in percent, means over the seeds; the M-layer's without its name."""
    figures: dict[str, float] = {}
    for (task, model), rows in grouped(results["rows"], "task", "model").items():
        name = f"{start}.{task}" + ("" if model == "M-layer" else f".{model}")
        for kind in KINDS:
            figures[f"{name}.{kind}"] = round(sum(row[kind] for row in rows) / len(rows), 3)
        if model == "M-layer":
            figures[f"{name}.test_images"] = float(rows[0]["test_images"])
            figures[f"{name}.seeds"] = float(len(rows))
    return figures


def accuracy_bars(
    results: Results, published: Mapping[str, Mapping[str, Mapping[str, float]]], title: str
) -> Figure:
    """For every task the three accuracies of our models and of the published ones."""
    groups = grouped(results["rows"], "task", "model")
    tasks = list(dict.fromkeys(task for task, _ in groups))
    figure, all_axes = panels(len(tasks), max(6.4, 3.2 * len(tasks)), 4.2)
    for axes, task in zip(all_axes, tasks, strict=True):
        bars: dict[str, Mapping[str, float]] = {
            model: {kind: sum(row[kind] for row in rows) / len(rows) for kind in KINDS}
            for (of, model), rows in groups.items()
            if of == task
        }
        for source, values in published.get(task, {}).items():
            bars[f"{source}*"] = values
        for k, kind in enumerate(KINDS):
            known = [(place, values[kind]) for place, values in enumerate(bars.values()) if kind in values]
            places, heights = [place + 0.27 * (k - 1) for place, _ in known], [height for _, height in known]
            drawn = axes.bar(
                places, heights, 0.25, color=(colors().soft, colors().net, colors().m_layer)[k], label=kind
            )
            axes.bar_label(drawn, fmt="%.2f", fontsize=8, rotation=90, padding=2)  # as in the tables
        axes.set_xticks(range(len(bars)), list(bars), fontsize=8)
        name, _, radius = task.partition("_")
        axes.set_title(f"{SET_TITLES.get(name, name)}, eps {radius.replace('_', '/')}")
        axes.set(yticks=range(0, 101, 20), ylim=(0, 122))  # room for the figures above the bars
    figure.axes[0].set_ylabel("test accuracy, %")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(KINDS), fontsize=8)
    # A line of a narrow page has room for some 45 letters of this size.
    figure.suptitle(fill(title, 45) if is_narrow() else title, fontsize=10)
    return figure

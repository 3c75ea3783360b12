"""The strongest results as cards for the top of the page, each with a small picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mlayer.experiments.shared.pictures import Figure
from mlayer.report.demo import boundary_picture, wave_picture
from mlayer.report.numbers import formatted
from mlayer.report.reproduction import Card
from mlayer.report.theme import Theme

Record = dict[str, Any]


def cards(records: dict[str, Record]) -> Iterator[Card]:
    """The cards of experiments that were run to the end."""
    for name, make in (
        ("spiral", _spiral),
        ("periodic", _periodic),
        ("determinant", _determinant),
        ("robustness", _robustness),
    ):
        if name in records and records[name].get("complete", True):
            yield make(records[name])


def _spiral(record: Record) -> Card:
    results, figures = record["results"], record["headline"]
    seeds = len(results["models"]["ours"]["runs"])
    points = results["points"]
    labels = [k % 2 for k in range(len(points))]  # as `spirals` orders them
    return Card(
        "spiral",
        formatted(figures["spiral.extra_turn_accuracy"], ".1%"),
        f"of the points on the next turn of two spirals, never seen, classified correctly (mean of {seeds} "
        f"seeds; {formatted(figures['spiral.second_turn_accuracy'], '.1%')} on the turn after it). "
        f"A ReLU net: {formatted(figures['spiral.relu_extra_turn_accuracy'], '.1%')}. Picture: one seed.",
        boundary_picture(results["boundaries"]["ours"], points, labels, xticks=[], yticks=[]),
        "Decision boundary of one M-layer around two spirals of points; it continues beyond them.",
    )


def _periodic(record: Record) -> Card:
    results, figures = record["results"], record["headline"]
    entry = results["figure"][0]
    draw = wave_picture(entry["curve"], entry["ours"][0]["curve"])
    if "periodic.real_success_rate" in figures:
        count = round(figures["periodic.real_functions"])
        number = formatted(figures["periodic.real_success_rate"], ".1%")
        says = (
            f"of {count} sums of two cosines with real frequencies, known on [0, 2], are continued to 6 with "
            "a root mean squared error below 0.05. The waves are found by a periodogram and least squares, "
            "not by gradient descent."
        )
    else:
        number = formatted(figures["periodic.figure_rmse_max"], ".1e")
        says = "root mean squared error on [2, 6], worst of the figure's functions, known on [0, 2]."
    words = "A sum of cosines and the M-layer's output, one on the other."
    return Card("periodic", number, says, draw, words)


def _determinant(record: Record) -> Card:
    results, figures = record["results"], record["headline"]

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        steps, errors = np.array(results["ours"]["history"]).T
        axes.plot(steps, errors, color=theme.first, label="ours")
        axes.axhline(record["paper"]["m_layer_mse"], color=theme.second, linestyle="--", label="paper")
        axes.set(yscale="log", xlabel="step", ylabel="mean squared error")
        axes.legend(loc="best")

    return Card(
        "determinant",
        formatted(figures["determinant3.best_mse"], ".1e"),
        "mean squared error on 3 x 3 determinants, with the paper's 811 parameters and number of examples; "
        f"the paper's M-layer has {formatted(record['paper']['m_layer_mse'], '.0e')}, its best dense net "
        f"{record['paper']['dnn_mse']:g}.",
        draw,
        "The error falls over the steps of training, far below the paper's.",
    )


def _robustness(record: Record) -> Card:
    from mlayer.experiments.robustness import radius_histograms

    ours, figures = record["results"]["ours"], record["headline"]

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        kinds = {"paper": theme.second, "certified here": theme.first, "attacked": theme.text}
        radius_histograms(axes, ours, kinds, edges=60, alpha=0.7)
        axes.set(xlabel="radius", ylabel="images")
        axes.legend(loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.18), columnspacing=0.8)

    return Card(
        "robustness",
        f"{figures['robustness.median_ratio']:,.0f} x",
        "the paper's certified L-infinity radius, on the authors' own CIFAR-10 model, and "
        f"{formatted(figures['robustness.median_part_of_attack'], '.1%')} of the radius at which an attack "
        f"succeeds: medians of {figures['robustness.images']:,.0f} images.",
        draw,
        "Histograms of radii: the paper's, ours far to the right, the attack's just beyond.",
    )

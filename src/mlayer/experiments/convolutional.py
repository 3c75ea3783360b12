"""An M-layer as the head of a convolutional net, compared with a ReLU head and a linear one.

    mlayer reproduce convolutional --smoke      seconds, on the small digits that come with scikit-learn
    mlayer reproduce convolutional              CIFAR-10, three seeds, 10 epochs: three quarters of an
                                                hour on one core
    mlayer reproduce convolutional --full       CIFAR-10 and SVHN, three seeds, 20 epochs: five hours

Expected: nothing. The paper announces M-layers inside deeper nets as future work. `residual_net` has the nets
and their numbers of parameters. Every net has the same recipe, the same images in the same order and the same
search: the rates of `Config.rates`, each tried once on nine tenths of the training set and judged on the
rest. The penalty on exp(M) is the one ingredient that only the M-layer has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter

from mlayer.datasets import ImageSet
from mlayer.datasets import images as load_images
from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import PaperRow
from mlayer.experiments.shared.image_recipes import ImageRecipe, our_recipe
from mlayer.experiments.shared.image_training import Build, search_rates, train_images
from mlayer.experiments.shared.over_seeds import (
    accuracies,
    ahead_figures,
    best_rate,
    draw_nets,
    mean_figures,
    paired,
)
from mlayer.experiments.shared.pictures import SET_TITLES, Figure, panels
from mlayer.experiments.shared.residual_net import HEADS, residual_builder

TITLE = "Heads of a convolutional net"
IN_PAPER = "; beyond the paper: the M-layer inside a deeper net, which it announces"
CAPTION = (
    "Test accuracy of every training of one small residual net with an M-layer, a ReLU or a linear head; "
    "the wider net has the M-layer's number of parameters in its convolutions."
)
EXPECTED = {"none": "the paper has no net with convolutions and an M-layer"}
ROWS = tuple(
    PaperRow(
        f"{SET_TITLES[of]}, residual net, head: {head}, augmented, %",
        "",
        f"convolutional.{of}.{head}",
        ".2f",
        epochs=f"convolutional.{of}.epochs",
    )
    for of in ("cifar10", "svhn")
    for head in HEADS
)


@dataclass(frozen=True)
class Config:
    """The nets that are trained."""

    seed: int = 0  # the first seed; others follow it
    seeds: int = 3  # trainings of each net
    sets: tuple[str, ...] = ("cifar10",)  # of images
    heads: tuple[str, ...] = HEADS  # of `residual_net`
    rates: tuple[float, ...] = (0.03, 0.1, 0.3)  # tried for every head
    search_epochs: int = 2  # of a trial of a rate
    epochs: int = 10  # of a training


SCALES = {
    "smoke": Config(seeds=2, sets=("digits",), rates=(0.1, 0.3), search_epochs=1, epochs=2),
    "default": Config(),
    "full": Config(sets=("cifar10", "svhn"), search_epochs=4, epochs=20),
}
needs = attrgetter("sets")


def run(config: Config, context: RunContext) -> Results:
    """The search for every head first, then every head with every seed."""
    results: Results = {"search": [], "trainings": []}
    for name in config.sets:
        images = load_images(name, context.data)
        for head in config.heads:
            recipes = {rate: _recipe(name, head, rate, config.search_epochs) for rate in config.rates}
            part = f"{name}-{head}".replace(", ", "-").replace(" ", "-")
            found = search_rates(images, recipes, config.seed, context, part, build=_build(images, head))
            results["search"] += ({"head": head} | row for row in found)
    for turn in range(config.seeds):
        for name in config.sets:
            images = load_images(name, context.data)
            for head in config.heads:
                seed, rate = config.seed + turn, best_rate(results["search"], set=name, head=head)
                part = f"{name}-{head}-{seed}".replace(", ", "-").replace(" ", "-")
                recipe = _recipe(name, head, rate, config.epochs)
                row = train_images(images, recipe, seed, context, part, build=_build(images, head))
                results["trainings"].append({"head": head, "learning_rate": rate} | row)
                context.keep(results)
    return results


def _build(images: ImageSet, head: str) -> Build:
    return residual_builder(head, images.color_shape)


def _recipe(name: str, head: str, rate: float, epochs: int) -> ImageRecipe:
    # The first convolution is followed by a batch normalization, which makes standard colors superfluous.
    return replace(our_recipe(name, head, rate=rate, epochs=epochs), standardize=False)


def headline(results: Results) -> dict[str, float]:
    """Mean and sample deviation of the test accuracies in percent, differences and their p values."""
    figures: dict[str, float] = {}
    for row in results["trainings"]:
        figures[f"convolutional.{row['set']}.epochs"] = float(row["epochs"])
        figures[f"convolutional.{row['set']}.{row['head']}.parameters"] = float(row["parameters"])
    for name, heads in accuracies(results["trainings"], "head").items():
        for head, by_seed in heads.items():
            start = f"convolutional.{name}.{head}"
            figures |= mean_figures(start, list(by_seed.values()))
            if head != "M-layer":
                figures |= ahead_figures(start, paired(heads.get("M-layer", {}), by_seed))
    return figures


def plot(results: Results) -> Figure:
    """Every training's test accuracy, by head; a panel for each set."""
    sets = accuracies(results["trainings"], "head")
    figure, axes_of = panels(len(sets), 5.4 * len(sets), 4)
    for axes, (name, heads) in zip(axes_of, sets.items(), strict=True):
        draw_nets(axes, heads)
        epochs = max(row["epochs"] for row in results["trainings"] if row["set"] == name)
        axes.set_title(f"{SET_TITLES.get(name, name)}, {epochs} epochs", fontsize="medium")
    axes_of[0].set_ylabel("test accuracy, %")
    return figure

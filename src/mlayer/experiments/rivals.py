"""Equal rivals on images: M-layer, ReLU, maxout and linear nets of the same size, trained by one recipe.

    mlayer reproduce rivals --smoke     seconds, on the small digits that come with scikit-learn
    mlayer reproduce rivals             three seeds of MNIST and CIFAR-10, augmented: an hour on one core
    mlayer reproduce rivals --full      five seeds of all three sets, with and without augmentation, on all
                                        training images and on nine tenths; on CIFAR-10 also the paper's ReLU
                                        net of 8,049,010 parameters: two days on one core

Expected: nothing. The paper's table compares the M-layer with nets that others trained, with other recipes
and other sizes. Here every net has the M-layer's number of parameters (the linear one has fewer: it has no
hidden layer), our recipe (`image_recipes`: schedule, batches, clipping, weight decay, epochs, augmentation),
the same examples in the same order, and the same budget for its learning rate: the rates of `Config.rates`,
each tried once on nine tenths of the training set and judged on the rest. The search is part of the results.
The penalty on exp(M) is the one ingredient that only the M-layer has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from mlayer.datasets import ImageSet
from mlayer.datasets import images as load_images
from mlayer.experiments.running.protocol import Results, Where, from_files
from mlayer.experiments.running.rows import PaperRow
from mlayer.experiments.shared.equal_nets import LARGE, NETS, build_net
from mlayer.experiments.shared.image_augmentation import Augmentation
from mlayer.experiments.shared.image_recipes import RECIPES, ImageRecipe
from mlayer.experiments.shared.image_training import train_images
from mlayer.experiments.shared.over_seeds import (
    SEARCH_FACTS,
    ahead_figures,
    best_rate,
    draw_seeds,
    mean_figures,
    paired,
)
from mlayer.experiments.shared.pictures import SET_TITLES, Figure, colors, panels

TITLE = "Equal rivals on images"
IN_PAPER = "; beyond Table 1: equal size, recipe and search"
CAPTION = (
    "Test accuracy of every training (dots) and their means (bars): the same recipe and the same search for "
    "the learning rate. ReLU and maxout nets have the M-layer's number of parameters, the linear one far "
    "fewer."
)
EXPECTED = {"none": "the paper has no rivals of equal size and recipe"}


def _titled(net: str) -> str:
    return f"{net}, same recipe" if net == "linear" else f"{net}, equal size and recipe"


ROWS = (
    *(
        PaperRow(f"{title}, {_titled(net)}, augmented, %", "", f"rivals.{of}.{net}", ".2f")
        for of, title in SET_TITLES.items()
        for net in NETS
    ),
    PaperRow(
        "CIFAR-10, M-layer less a ReLU net of equal size, same recipe, augmented, percentage points",
        "",
        "rivals.cifar10.ReLU.m_layer_ahead_by",
        ".2f",
        seeds="rivals.cifar10.ReLU.seeds",
    ),
    PaperRow(
        "CIFAR-10, ReLU net of 8,049,010 parameters, our recipe, augmented, %",
        "56.29",
        f"rivals.cifar10.{LARGE}",
        ".2f",
    ),
)


@dataclass(frozen=True)
class Config:
    """The nets that are trained.

    Attributes:
        seed: the first seed; others follow it.
        seeds: trainings of each net.
        sets: of images.
        nets: of `equal_nets`.
        large: sets on which its large net is trained too.
        augmented: with augmentation, without it, or both.
        aside: parts of the training set that are left out of the final trainings.
        rates: tried for every net.
        search: the part of the recipe's epochs that a trial of a rate takes.
        epochs: instead of the recipe's, if not None.
    """

    seed: int = 0
    seeds: int = 3
    sets: tuple[str, ...] = ("mnist", "cifar10")
    nets: tuple[str, ...] = NETS
    large: tuple[str, ...] = ()
    augmented: tuple[bool, ...] = (True,)
    aside: tuple[float, ...] = (0.0,)
    rates: tuple[float, ...] = (0.01, 0.03, 0.1)
    search: float = 0.125
    epochs: int | None = None


SCALES = {
    "smoke": Config(seeds=2, sets=("digits",), large=("digits",), rates=(0.03, 0.1), search=0.5, epochs=2),
    "default": Config(),
    "full": Config(
        seeds=5,
        sets=("mnist", "cifar10", "svhn"),
        large=("cifar10",),
        augmented=(True, False),
        aside=(0.0, 0.1),
        search=0.25,
    ),
}


def needs(config: Config) -> tuple[str, ...]:
    """The image sets that are files."""
    return from_files(config.sets)


def run(config: Config, where: Where) -> Results:
    """The search for every net first, then every net with every seed."""
    results: Results = {"search": [], "trainings": []}
    for name in config.sets:
        images = load_images(name, where.data)
        for net, augmented in _pairs(config, name):
            results["search"] += _search(images, net, augmented, config, where)
    for turn in range(config.seeds):
        for name in config.sets:
            images = load_images(name, where.data)
            for net, augmented in _pairs(config, name):
                for aside in config.aside:
                    seed = config.seed + turn
                    rate = best_rate(results["search"], set=name, net=net, augmented=augmented)
                    recipe = replace(_recipe(name, net, augmented, rate, config), validation=aside)
                    part = f"{name}-{net}-{augmented:d}-{aside:g}-{seed}".replace(" ", "-")
                    row = train_images(images, recipe, seed, where, part, build=build_net(net, name))
                    facts = {"net": net, "augmented": augmented, "learning_rate": rate, "aside": aside}
                    results["trainings"].append(facts | row)
                    where.keep(results)
    return results


def _pairs(config: Config, name: str) -> Iterator[tuple[str, bool]]:
    nets = (*config.nets, LARGE) if name in config.large else config.nets
    return ((net, augmented) for net in nets for augmented in config.augmented)


def _recipe(name: str, net: str, augmented: bool, rate: float, config: Config) -> ImageRecipe:
    recipe = RECIPES.get(name, RECIPES["mnist"])["our_recipe"]
    settings = replace(recipe.settings, learning_rate=rate, on_divergence="stop")
    if net != "M-layer":
        settings = replace(settings, activity_penalty=0.0)  # there is no exp(M)
    if config.epochs is not None:
        settings = replace(settings, epochs=config.epochs)
    augmentation = recipe.augmentation if augmented else Augmentation()
    return replace(recipe, settings=settings, augmentation=augmentation)


def _search(
    images: ImageSet, net: str, augmented: bool, config: Config, where: Where
) -> Iterator[dict[str, Any]]:
    """One short training for each rate, judged on a tenth of the training set."""
    for rate in config.rates:
        recipe = _recipe(images.name, net, augmented, rate, config)
        epochs = max(1, round(config.search * recipe.settings.epochs))
        settings = replace(recipe.settings, epochs=epochs, metrics=("accuracy",), monitor="accuracy")
        recipe = replace(recipe, settings=settings, validation=0.1)
        part = f"search-{images.name}-{net}-{augmented:d}-{rate:g}".replace(" ", "-")
        row = train_images(images, recipe, config.seed, where, part, build=build_net(net, images.name))
        facts = {"net": net, "augmented": augmented, "learning_rate": rate}
        yield facts | {key: row[key] for key in SEARCH_FACTS}


def _groups(results: Results) -> dict[tuple[str, bool, float], dict[str, dict[int, float]]]:
    """Test accuracies by (set, augmented, aside), net and seed."""
    groups: dict[tuple[str, bool, float], dict[str, dict[int, float]]] = {}
    for row in results["trainings"]:
        here = groups.setdefault((row["set"], row["augmented"], row["aside"]), {})
        here.setdefault(row["net"], {})[row["seed"]] = row["test_accuracy"]
    return groups


def differences(results: Results) -> list[dict[str, Any]]:
    """M-layer less each rival over the seeds that both have: mean difference and paired t-test."""
    rows = []
    for (name, augmented, aside), nets in _groups(results).items():
        for net, theirs in nets.items():
            found = None if net == "M-layer" else paired(nets.get("M-layer", {}), theirs)
            if found is not None:
                rows.append({"set": name, "augmented": augmented, "aside": aside, "net": net, **found})
    return rows


def headline(results: Results) -> dict[str, float]:
    """Mean and sample deviation of the test accuracies in percent, differences and their p values."""
    figures: dict[str, float] = {}
    for key, nets in _groups(results).items():
        for net, by_seed in nets.items():
            figures |= mean_figures(_name(*key, net), list(by_seed.values()))
    for row in differences(results):
        figures |= ahead_figures(_name(row["set"], row["augmented"], row["aside"], row["net"]), row)
    return figures


def _name(name: str, augmented: bool, aside: float, net: str) -> str:
    return f"rivals.{name}{'' if augmented else '.plain'}{f'.{1 - aside:g}' if aside else ''}.{net}"


def plot(results: Results) -> Figure:
    """Every training's test accuracy, by net; a panel for each set and way of training."""
    groups = _groups(results)
    figure, axes_of = panels(len(groups), 3.8 * len(groups), 4)
    for axes, ((name, augmented, aside), nets) in zip(axes_of, groups.items(), strict=True):
        for place, (net, by_seed) in enumerate(nets.items()):
            draw_seeds(
                axes, place, list(by_seed.values()), colors().m_layer if net == "M-layer" else colors().net
            )
        axes.set_xticks(range(len(nets)), list(nets))
        axes.set_xlim(-0.5, len(nets) - 0.5)
        share = f", {1 - aside:.0%} of the training set" if aside else ""
        way = "augmented" if augmented else "not augmented"
        axes.set_title(f"{SET_TITLES.get(name, name)}, {way}{share}", fontsize="medium")
    figure.axes[0].set_ylabel("test accuracy, %")
    return figure

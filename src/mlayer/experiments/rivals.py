"""Equal rivals on images: M-layer, ReLU, maxout and linear nets of the same size, trained by one recipe.

    mlayer reproduce rivals --smoke     seconds, on the small digits that come with scikit-learn
    mlayer reproduce rivals             all three sets, three seeds, with and without augmentation: four hours
                                        on one core
    mlayer reproduce rivals --full      five seeds of all three sets, with and without augmentation, on all
                                        training images and on nine tenths; on CIFAR-10 also the paper's ReLU
                                        net of 8,049,010 parameters, one seed: a day on one core

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
from functools import cache, partial
from itertools import product
from typing import Any

from mlayer.datasets import images as load_images
from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import PaperRow
from mlayer.experiments.shared.equal_nets import LARGE, NETS, build_net
from mlayer.experiments.shared.image_augmentation import Augmentation
from mlayer.experiments.shared.image_recipes import ImageRecipe, our_recipe
from mlayer.experiments.shared.image_training import search_rates, train_images
from mlayer.experiments.shared.over_seeds import (
    accuracies,
    ahead_figures,
    best_rate,
    draw_nets,
    grouped,
    mean_figures,
    paired,
)
from mlayer.experiments.shared.pictures import SET_TITLES, Figure, panels

TITLE = "Equal rivals on images"
IN_PAPER = "; beyond Table 1: equal size, recipe and search"
CAPTION = (
    "Test accuracy of every training (dots) and their means (bars): the same recipe and the same search for "
    "the learning rate. ReLU and maxout nets have the M-layer's number of parameters, the linear one far "
    "fewer."
)
EXPECTED = {"none": "the paper has no rivals of equal size and recipe"}
_SETS = ("mnist", "cifar10", "svhn")


def _titled(net: str) -> str:
    return f"{net}, same recipe" if net == "linear" else f"{net}, equal size and recipe"


ROWS = (
    *(
        PaperRow(f"{SET_TITLES[of]}, {_titled(net)}, {way}, %", "", f"rivals.{of}.{key}{net}", ".2f")
        for way, key in (("augmented", ""), ("no augmentation", "plain."))
        for of in _SETS
        for net in NETS
    ),
    *(
        PaperRow(
            f"CIFAR-10, M-layer less a {net} net of equal size, same recipe, {way}, percentage points",
            "",
            f"rivals.cifar10.{key}{net}.m_layer_ahead_by",
            ".2f",
            seeds=f"rivals.cifar10.{key}{net}.seeds",
        )
        for way, key in (("augmented", ""), ("no augmentation", "plain."))
        for net in ("ReLU", "maxout")
    ),
    PaperRow(
        "CIFAR-10, ReLU net of 8,049,010 parameters, our recipe, augmented, %",
        "56.29",
        f"rivals.cifar10.{LARGE}",
        ".2f",
    ),
)


@dataclass(frozen=True)
class Way:
    """A way of training, and what is trained so."""

    augmented: bool = True
    aside: float = 0.0  # the part of the training set that is left out of the final trainings
    seeds: int = 3  # trainings of each net
    nets: tuple[str, ...] = NETS  # of `equal_nets`
    sets: tuple[str, ...] = _SETS  # of images


@dataclass(frozen=True)
class Config:
    """The nets that are trained."""

    seed: int = 0  # the first seed; others follow it
    ways: tuple[Way, ...] = (Way(), Way(augmented=False))
    rates: tuple[float, ...] = (0.01, 0.03, 0.1)  # tried for every net
    search: float = 0.125  # the part of the recipe's epochs that a trial of a rate takes
    epochs: int | None = None  # instead of the recipe's, if not None


_DIGITS = Way(seeds=2, nets=(*NETS, LARGE), sets=("digits",))
_EVERY = tuple(Way(augmented, aside, seeds=5) for augmented in (True, False) for aside in (0.0, 0.1))
SCALES = {
    "smoke": Config(
        ways=(_DIGITS, replace(_DIGITS, augmented=False, seeds=1)), rates=(0.03, 0.1), search=0.5, epochs=2
    ),
    "default": Config(),
    "full": Config(ways=(*_EVERY, Way(seeds=1, nets=(LARGE,), sets=("cifar10",)))),
}


def needs(config: Config) -> tuple[str, ...]:
    """The image sets of all ways."""
    return tuple(dict.fromkeys(name for way in config.ways for name in way.sets))


def run(config: Config, context: RunContext) -> Results:
    """The search for every net first, then every net with every seed."""
    results: Results = {"search": [], "trainings": []}
    images = cache(partial(load_images, data=context.data))
    for name, net, augmented in dict.fromkeys(_searches(config)):
        short = partial(_recipe, name, net, augmented, config=config, share=config.search)
        recipes = {rate: short(rate) for rate in config.rates}
        part, build = f"{name}-{net}-{augmented:d}".replace(" ", "-"), build_net(net, name)
        found = search_rates(images(name), recipes, config.seed, context, part, build=build)
        results["search"] += ({"net": net, "augmented": augmented} | row for row in found)
    for turn in range(max(way.seeds for way in config.ways)):
        for way in (way for way in config.ways if turn < way.seeds):
            for name, net in product(way.sets, way.nets):
                seed = config.seed + turn
                rate = best_rate(results["search"], set=name, net=net, augmented=way.augmented)
                recipe = replace(_recipe(name, net, way.augmented, rate, config), validation=way.aside)
                part = f"{name}-{net}-{way.augmented:d}-{way.aside:g}-{seed}".replace(" ", "-")
                row = train_images(images(name), recipe, seed, context, part, build=build_net(net, name))
                facts = {"net": net, "augmented": way.augmented, "learning_rate": rate, "aside": way.aside}
                results["trainings"].append(facts | row)
                context.keep(results)
    return results


def _searches(config: Config) -> Iterator[tuple[str, str, bool]]:
    for way in config.ways:
        yield from product(way.sets, way.nets, (way.augmented,))


def _recipe(
    name: str, net: str, augmented: bool, rate: float, config: Config, *, share: float = 1.0
) -> ImageRecipe:
    """The recipe of a net with a share of its epochs."""
    epochs = config.epochs or our_recipe(name).settings.epochs
    recipe = our_recipe(name, net, rate=rate, epochs=max(1, round(share * epochs)))
    return recipe if augmented else replace(recipe, augmentation=Augmentation())


def _groups(results: Results) -> dict[tuple[Any, ...], dict[str, dict[int, float]]]:
    """Test accuracies by (set, augmented, aside), net and seed."""
    groups = grouped(results["trainings"], "set", "augmented", "aside")
    return {key: accuracies(rows, "net")[key[0]] for key, rows in groups.items()}


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
    for (name, augmented, aside), nets in _groups(results).items():
        for net, by_seed in nets.items():
            figures |= mean_figures(_name(name, augmented, aside, net), list(by_seed.values()))
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
        draw_nets(axes, nets)
        share = f", {1 - aside:.0%} of the training set" if aside else ""
        way = "augmented" if augmented else "not augmented"
        axes.set_title(f"{SET_TITLES.get(name, name)}, {way}{share}", fontsize="medium")
    figure.axes[0].set_ylabel("test accuracy, %")
    return figure

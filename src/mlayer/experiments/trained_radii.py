"""Certified radii of CIFAR-10 models trained here, as in the paper's histogram for the authors' models.

    mlayer reproduce trained_radii            n = 20 and 30, one seed; our radii of the first 200 test images:
                                              half an hour on one core
    mlayer reproduce trained_radii --full     three seeds, our radii of the first 1,000
    mlayer reproduce trained_radii --smoke    seconds, on the small digits that come with scikit-learn

Expected (paper, of its own n = 20 models): delta_in about 200, ||S||_2 about 3, ||M||_2 between 3 and 4,
radii of about 1e-5. The models are trained by the authors' notebook's recipe and by ours; the radii are
those of `robustness`.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from torch import nn

from mlayer.datasets import ImageSet
from mlayer.datasets import images as load_images
from mlayer.experiments.robustness import EXPECTED as OF_THE_RELEASED_MODEL
from mlayer.experiments.robustness import histograms, radii, radius_figures
from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import paper_rows
from mlayer.experiments.shared.image_recipes import RECIPES
from mlayer.experiments.shared.image_training import layer_builder, train_images
from mlayer.experiments.shared.over_seeds import grouped
from mlayer.experiments.shared.pictures import Figure, panels
from mlayer.nn import MLayer

TITLE = "Certified radii of CIFAR-10 models trained here"
IN_PAPER = "Figure 6; section 4.4"
CAPTION = (
    "Certified L-infinity radii of models trained here (first seed), by the paper's bound and by ours, and "
    "the radius at which an attack succeeds, on those of the first test images that each model classifies "
    "correctly."
)
EXPECTED = OF_THE_RELEASED_MODEL
_REFERENCES = 64
_LABELS = {"notebook_recipe": "notebook's recipe", "our_recipe": "our recipe, augmented"}
ROWS = tuple(
    row
    for recipe, label in _LABELS.items()
    for n in (20, 30)
    for row in paper_rows(
        f"CIFAR-10, n = {n}, {label}: ",
        f"trained_radii.{recipe}.{n}",
        (
            ("the paper's radius, median", "about 1e-5" if n == 20 else "", "paper_median_radius", ".2e", {}),
            ("our radius / the paper's, median of the first images", "", "median_ratio", ".0f", {}),
            ("our radius / the attack's, median of the first images", "", "median_part_of_attack", ".3f", {}),
        ),
    )
)


@dataclass(frozen=True)
class Config:
    """The models that are trained and certified."""

    seed: int = 0  # the first seed; others follow it
    seeds: int = 1  # trainings of each size by each recipe
    name: str = "cifar10"  # of the image set
    sizes: tuple[int, ...] = (20, 30)  # n
    recipes: tuple[str, ...] = tuple(_LABELS)  # of `image_recipes`
    images: int = 10_000  # how many of the first test images get the paper's bound
    ours: int = 200  # how many of the first of these get our bound and the attack
    fit_steps: int = 500  # of the constants of our bound
    epochs: int | None = None  # instead of the recipes', if not None


SCALES = {
    "smoke": Config(name="digits", sizes=(6,), images=200, ours=30, fit_steps=20, epochs=15),
    "default": Config(),
    "full": Config(seeds=3, ours=1000),
}


def needs(config: Config) -> tuple[str, ...]:
    """The images."""
    return (config.name,)


def run(config: Config, context: RunContext) -> Results:
    """Train every model and certify it before the next is trained."""
    results: Results = {"models": []}
    images = load_images(config.name, context.data)
    sets = RECIPES.get(config.name, RECIPES["mnist"])
    for turn in range(config.seeds):
        for size in config.sizes:
            for name in config.recipes:
                recipe = sets[name]
                if config.epochs is not None:
                    recipe = replace(recipe, settings=replace(recipe.settings, epochs=config.epochs))
                seed = config.seed + turn
                part = f"{name}-{size}-{seed}"
                below = replace(context, checkpoints=context.checkpoint(part))
                certify = partial(_certify, images=images, config=config, context=below)
                build = layer_builder(size, 8 if config.name == "digits" else 35)
                row = train_images(images, recipe, seed, context, part, build=build, then=certify)
                results["models"].append({"recipe": name, "matrix_size": size} | row)
                context.keep(results)
    return results


def _certify(net: nn.Module, images: ImageSet, config: Config, context: RunContext) -> Results:
    """The radii of one model, on test images."""
    test = images.test.take(slice(0, config.images))
    typical = images.train.images(slice(0, _REFERENCES)).double()
    layer = cast(MLayer, net).double()
    measured = radii(
        layer,
        test.images().double(),
        test.labels,
        typical,
        ours=config.ours,
        fit_steps=config.fit_steps,
        context=context,
    )
    return {"robustness": measured}


def headline(results: Results) -> dict[str, float]:
    """Medians over images, means over seeds."""
    figures: dict[str, float] = {}
    for (recipe, size), rows in grouped(results["models"], "recipe", "matrix_size").items():
        models = [radius_figures(row["robustness"]) for row in rows]
        for name in models[0]:
            mean = statistics.mean(model[name] for model in models)
            figures[f"trained_radii.{recipe}.{size}.{name}"] = mean
    return figures


def plot(results: Results) -> Figure:
    """A panel for each model of the first seed: the paper's radii, ours and the attack's."""
    seed = results["models"][0]["seed"]
    models = [row for row in results["models"] if row["seed"] == seed]
    figure, axes_of = panels(len(models), 3.6 * len(models), 3.6)
    for axes, model in zip(axes_of, models, strict=True):
        ours = model["robustness"]["ours"]
        histograms(axes, ours)
        title = f"n = {model['matrix_size']}, {_LABELS[model['recipe']]}: {model['test_accuracy']:.2f}%"
        axes.set_title(f"{title}\n{ours['correct']} of the first {ours['images']} images", fontsize=9)
    axes_of[0].set_ylabel("correctly classified images")
    return figure

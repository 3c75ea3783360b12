"""An ablation of our image recipe, one ingredient at a time, and dropout.

    mlayer reproduce ingredients --smoke    seconds, on the small digits that come with scikit-learn
    mlayer reproduce ingredients            MNIST with three seeds, CIFAR-10 with one: an hour and a half on
                                            one core
    mlayer reproduce ingredients --full     three seeds of both

Expected: nothing. The paper names dropout as future work. Every row is our recipe (`image_recipes`) with one
thing left out or added, everything else and the seeds the same, trained on all training images and tested
once. Nothing is chosen here: the rates of dropout are fixed beforehand.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from mlayer.datasets import images as load_images
from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import PaperRow
from mlayer.experiments.shared.dropout import PLACES, dropout_builder
from mlayer.experiments.shared.image_augmentation import Augmentation
from mlayer.experiments.shared.image_recipes import ImageRecipe, our_recipe
from mlayer.experiments.shared.image_training import Build, layer_builder, train_images
from mlayer.experiments.shared.over_seeds import accuracies, mean_figures
from mlayer.experiments.shared.pictures import SET_TITLES, Figure, colors, panels

TITLE = "Ingredients of the image recipe, and dropout"
IN_PAPER = "; beyond Table 1: an ablation of our recipe, and the dropout that the paper announces"
CAPTION = (
    "Test accuracy of our recipe with one ingredient left out or dropout added, less that of the recipe as "
    "it is, seed by seed."
)
EXPECTED = {"none": "the paper has neither this recipe nor dropout"}


def _settings(**changes: object) -> Callable[[ImageRecipe], ImageRecipe]:
    return lambda recipe: replace(recipe, settings=replace(recipe.settings, **changes))  # type: ignore[arg-type]


CHANGES: dict[str, Callable[[ImageRecipe], ImageRecipe]] = {
    "as it is": lambda recipe: recipe,
    "no augmentation": lambda recipe: replace(recipe, augmentation=Augmentation()),
    "constant rate": _settings(schedule=None),
    "no momentum": _settings(optimizer_options={}),
    "no weight decay": _settings(weight_decay=0.0),
    "no penalty on exp(M)": _settings(activity_penalty=0.0),
    "no clipping": _settings(gradient_clip=None),
    "colors not standardized": lambda recipe: replace(recipe, standardize=False),
    "text's initial weights": lambda recipe: replace(recipe, init="normal"),
}
DROPOUT_RATE = 0.1
DROPOUT = {f"dropout {DROPOUT_RATE:g} on {place}": place for place in PLACES}
ROWS = tuple(
    PaperRow(
        f"{SET_TITLES[of]}, our recipe, {'' if change == 'no augmentation' else 'augmented, '}{change}, %",
        "",
        f"ingredients.{of}.{change}",
        ".2f",
    )
    for of in ("mnist", "cifar10")
    for change in (*CHANGES, *DROPOUT)
)


@dataclass(frozen=True)
class Config:
    """The models that are trained."""

    seed: int = 0  # the first seed; others follow it
    # trainings of every row, by set
    seeds: Mapping[str, int] = field(default_factory=lambda: {"mnist": 3, "cifar10": 1})
    changes: tuple[str, ...] = (*CHANGES, *DROPOUT)  # of `CHANGES` and `DROPOUT`
    epochs: int | None = None  # instead of the recipe's, if not None


SCALES = {
    "smoke": Config(seeds={"digits": 2}, epochs=2),
    "default": Config(),
    "full": Config(seeds={"mnist": 3, "cifar10": 3}),
}
needs = attrgetter("seeds")  # by set


def run(config: Config, context: RunContext) -> Results:
    """Every change with the first seed, then with the second, and so on."""
    results: Results = {"trainings": []}
    for turn in range(max(config.seeds.values())):
        for name in (of for of, seeds in config.seeds.items() if turn < seeds):
            images = load_images(name, context.data)
            for change in config.changes:
                recipe, build = _changed(name, change, config)
                seed = config.seed + turn
                part = f"{name}-{change}-{seed}".translate(str.maketrans(" ()'", "----"))
                row = train_images(images, recipe, seed, context, part, build=build)
                results["trainings"].append({"change": change} | row)
                context.keep(results)
    return results


def _changed(name: str, change: str, config: Config) -> tuple[ImageRecipe, Build]:
    """The recipe of a set with one change, and what makes the net."""
    recipe = our_recipe(name, epochs=config.epochs)
    sizes = (6, 8) if name == "digits" else (30, 35)
    if change in DROPOUT:
        return recipe, dropout_builder(DROPOUT[change], DROPOUT_RATE, *sizes)
    return CHANGES[change](recipe), layer_builder(*sizes)


def headline(results: Results) -> dict[str, float]:
    """Mean and sample deviation of the test accuracies in percent."""
    figures: dict[str, float] = {}
    for name, changes in accuracies(results["trainings"], "change").items():
        for change, by_seed in changes.items():
            figures |= mean_figures(f"ingredients.{name}.{change}", list(by_seed.values()))
    return figures


def plot(results: Results) -> Figure:
    """Differences to the recipe as it is, seed by seed; a panel for each set."""
    sets = accuracies(results["trainings"], "change")
    figure, axes_of = panels(len(sets), 6.0 * len(sets), 4.2)
    for axes, (name, changes) in zip(axes_of, sets.items(), strict=True):
        whole = changes["as it is"]
        others = [change for change in changes if change != "as it is"]
        for place, change in enumerate(others):
            gains = [value - whole[seed] for seed, value in changes[change].items()]
            color = colors().m_layer if change in DROPOUT else colors().net
            axes.plot(gains, [place] * len(gains), "o", color=color, alpha=0.6)
            axes.plot([statistics.mean(gains)] * 2, [place - 0.25, place + 0.25], color=color, lw=2)
        axes.axvline(0, color=colors().ink, lw=0.8)
        axes.set_yticks(range(len(others)), others)
        axes.invert_yaxis()
        axes.set_xlabel("difference, percentage points")
        axes.set_title(
            f"{SET_TITLES.get(name, name)}: {statistics.mean(whole.values()):.2f}% as it is", fontsize=10
        )
    return figure

"""The other rows of the table of accuracies in section 4.4, trained here: dense nets, NODE and ANODE.

    mlayer reproduce baselines --smoke      seconds, on the small digits that come with scikit-learn
    mlayer reproduce baselines              the four dense nets, one seed: 6 hours on one core
    mlayer reproduce baselines --full       three seeds of them, then ANODE and NODE on all sets: days

Expected (quoted by the paper from Lin et al. 2015 and Dupont et al. 2019): ReLU 56.29% on CIFAR-10, ANODE
98.20, 60.60 and 83.50% on MNIST, CIFAR-10 and SVHN; all rows are in `EXPECTED`. A public replication of
ANODE on CIFAR-10 has 52.4 ± 1.2 (openreview O1IJIoWN6p).

Every row is trained on nine tenths of the training set; the epoch with the best accuracy on the other tenth
is tested. Dense nets take 100 epochs of SGD with momentum, their rate chosen by short trainings judged on
that tenth. NODE and ANODE take 20 epochs of Adam at 1e-3, as Dupont et al. have it, with two steps of rk4;
their weights are tested with these steps and with dopri5 to 1e-3. Figures come from whole sets only.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from mlayer.datasets import ImageSet, Split
from mlayer.datasets import images as load_images
from mlayer.experiments.images import EXPECTED as TABLE
from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import PaperRow
from mlayer.experiments.shared.image_recipes import ImageRecipe
from mlayer.experiments.shared.image_rivals import RIVALS, ODEBlock, Solver, check_solver, rival
from mlayer.experiments.shared.image_training import Build, search_rates, train_images
from mlayer.experiments.shared.over_seeds import best_rate, grouped, mean_figures
from mlayer.experiments.shared.pictures import SET_TITLES, Figure, canvas, colors
from mlayer.training import Settings, evaluate

TITLE = "Image baselines: dense nets, NODE, ANODE"
IN_PAPER = "; the other rows of Table 1, trained here"
CAPTION = "Test accuracy of the paper's other architectures; the mark is the figure that the paper quotes."
EXPECTED = {of: {name: row for name, row in rows.items() if name != "M-layer"} for of, rows in TABLE.items()}
_ODE = ("NODE", "ANODE")
_DENSE_ROWS = tuple(("cifar10", name) for name in EXPECTED["cifar10"] if name not in _ODE)
ROWS = tuple(
    PaperRow(
        f"{SET_TITLES[of]}, {net}, trained here, %",
        f"{mean:.2f}" + ("" if spread is None else f" ± {spread:.2f}"),
        f"baselines.{of}.{net}",
        ".2f",
        epochs=f"baselines.{of}.{net}.epochs",
    )
    for of, nets in EXPECTED.items()
    for net, (mean, spread, _) in nets.items()
)


@dataclass(frozen=True)
class Config:
    """The nets that are trained."""

    seed: int = 0  # of the parts of the data, the weights and the order; others follow it
    seeds: int = 1  # trainings of each dense net; NODE and ANODE have one
    rows: tuple[tuple[str, str], ...] = _DENSE_ROWS  # (image set, name of the net)
    part: float = 1.0  # of the training and the test set; figures come from whole sets only
    rates: tuple[float, ...] = (0.003, 0.01, 0.03)  # tried for every dense net
    search_epochs: int = 8  # of a trial of a rate
    dense_epochs: int = 100  # of the dense nets
    ode_epochs: int = 20  # of NODE and ANODE
    solver: Solver = field(default_factory=lambda: Solver("rk4", 2))  # of NODE and ANODE in training


SCALES = {
    "smoke": Config(
        rows=tuple(("digits", name) for name in RIVALS),
        part=0.3,
        rates=(0.01, 0.03),
        search_epochs=1,
        dense_epochs=2,
        ode_epochs=1,
    ),
    "default": Config(),
    # The ODE nets that take the most time come last.
    "full": Config(
        seeds=3,
        rows=(
            *_DENSE_ROWS,
            *((of, "ANODE") for of in EXPECTED),
            ("mnist", "NODE"),
            ("cifar10", "NODE"),
            ("svhn", "NODE"),
        ),
    ),
}


def needs(config: Config) -> tuple[str, ...]:
    """The image sets."""
    return tuple(of for of, _ in config.rows)


def run(config: Config, context: RunContext) -> Results:
    """The search for every dense net, then every row with every seed."""
    if any(name in _ODE for _, name in config.rows):
        check_solver()  # now, and not when the dense nets are done
    results: Results = {"search": [], "rows": []}
    sets: dict[str, ImageSet] = {}
    for of, name in config.rows:
        if of not in sets:
            whole = load_images(of, context.data)
            train, test = (_first(half, config.part) for half in (whole.train, whole.test))
            sets[of] = replace(whole, train=train, test=test)
        if name not in _ODE:
            recipes = {rate: _recipe(name, rate, config.search_epochs) for rate in config.rates}
            build, part = _builder(sets[of], name, config), f"{of}-{name}"
            found = search_rates(sets[of], recipes, config.seed, context, part, build=build)
            results["search"] += ({"net": name} | row for row in found)
    for of, name in config.rows:
        for seed in range(config.seed, config.seed + (1 if name in _ODE else config.seeds)):
            rate = 1e-3 if name in _ODE else best_rate(results["search"], set=of, net=name)
            results["rows"].append(_row(sets[of], name, config, context, seed=seed, rate=rate))
            context.keep(results)
    return results


def _row(of: ImageSet, name: str, config: Config, context: RunContext, *, seed: int, rate: float) -> Results:
    """One training of one net, tested once; NODE and ANODE also with dopri5."""
    epochs = config.ode_epochs if name in _ODE else config.dense_epochs

    def then(net: nn.Module) -> Results:
        facts: Results = {"test_examples": len(of.test), "whole": config.part == 1.0}
        if isinstance(net, ODEBlock):
            facts |= {"solver": net.solver.method, "steps": net.solver.steps}
            net.solver = Solver("dopri5")
            settings = Settings(batch_size=256, loss="cross_entropy", metrics=("accuracy",))
            tested = evaluate(net, (of.test.images(), of.test.labels), settings)
            facts["test_accuracy_dopri5"] = round(100 * tested["accuracy"], 3)
        return facts

    recipe, build, part = _recipe(name, rate, epochs), _builder(of, name, config), f"{of.name}-{name}-{seed}"
    row = train_images(of, recipe, seed, context, part, build=build, then=then)
    return {"net": name, "learning_rate": rate} | row


def _builder(of: ImageSet, name: str, config: Config) -> Build:
    def build(inputs: int, classes: int, init: str, generator: torch.Generator) -> nn.Module:
        shape = of.color_shape
        return rival(name, of.name, shape, classes, generator, solver=config.solver)

    return build


def _first(images: Split, part: float) -> Split:
    return images.take(slice(0, max(20, round(part * len(images)))))


def _recipe(name: str, rate: float, epochs: int) -> ImageRecipe:
    ode = name in _ODE
    settings = Settings(
        epochs=epochs,
        batch_size=256 if ode else 100,
        loss="cross_entropy",
        # Dupont et al.: Adam at 1e-3 and batches of 256. Lin et al. do not say all; these are common.
        optimizer="adam" if ode else "sgd",
        optimizer_options={} if ode else {"momentum": 0.9},
        learning_rate=rate,
        gradient_clip=None if ode else 1.0,  # without it maxout diverges
        metrics=("accuracy",),
        monitor="accuracy",
        on_divergence="stop",
    )
    return ImageRecipe(settings)


def headline(results: Results) -> dict[str, float]:
    """Mean and sample deviation of the test accuracies in percent, from whole sets only."""
    figures: dict[str, float] = {}
    for (of, net), rows in grouped(results["rows"], "set", "net").items():
        if not all(row["whole"] for row in rows):
            continue
        start = f"baselines.{of}.{net}"
        figures |= mean_figures(start, [row["test_accuracy"] for row in rows])
        figures[f"{start}.epochs"] = float(max(row["epochs"] for row in rows))
        if "test_accuracy_dopri5" in rows[0]:
            figures[f"{start}.dopri5"] = rows[0]["test_accuracy_dopri5"]
    return figures


def plot(results: Results) -> Figure:
    """One bar per row of the table, the mean over its seeds, with what it was trained on."""
    groups = grouped(results["rows"], "set", "net")
    figure = canvas(8, 0.42 * len(groups) + 1.2)
    axes = figure.subplots()
    means = {key: statistics.mean(row["test_accuracy"] for row in rows) for key, rows in groups.items()}
    axes.barh(
        [f"{SET_TITLES.get(of, of)}, {net}" for of, net in groups], list(means.values()), color=colors().soft
    )
    for place, (key, rows) in enumerate(groups.items()):
        seeds = f", {len(rows)} seeds" if len(rows) > 1 else ""
        examples, epochs = rows[0]["training_examples"], rows[0]["epochs"]
        note = f"{means[key]:.1f}  ({examples:,} examples x {epochs} epochs{seeds})"
        axes.text(1, place, note, va="center", fontsize=8)
        quoted = EXPECTED.get(key[0], {}).get(key[1])
        if quoted is not None:
            axes.plot(quoted[0], place, "|", color=colors().paper, ms=14)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("test accuracy, %; the mark: the figure the paper quotes")
    return figure

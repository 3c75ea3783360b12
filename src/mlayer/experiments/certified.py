"""Certified training: one M-layer that provably keeps its class within an L-infinity ball around each image.

    mlayer reproduce certified --smoke      seconds, on the small digits that come with scikit-learn
    mlayer reproduce certified              digits; CIFAR-10 at 2/255 and 8/255, MNIST at 0.1 and 0.3:
                                            two hours on one core
    mlayer reproduce certified --full       the same, certified on whole test sets, three seeds

Sets whose files are not there are left out and named; the digits need none. Each task trains an M-layer and
a linear layer by the same recipe (`robust_training`), attacks every test image, and certifies those that
withstand.

Expected (not in the paper): our goals are 50% certified at 62% clean for CIFAR-10 at 2/255, and 95%
at 98% for MNIST at 0.1. The published figures are of convolutional nets with many times as many
parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import PaperRow
from mlayer.experiments.shared.accuracy_bars import accuracy_bars, accuracy_figures
from mlayer.experiments.shared.image_augmentation import Augmentation
from mlayer.experiments.shared.radius_task import RadiusTask, sets_of_tasks
from mlayer.experiments.shared.robust_training import RobustRecipe, train_robustly

TITLE = "Certified training"
IN_PAPER = "; beyond section 3.7: certified training"
CAPTION = (
    "Accuracy on test images: clean, under attack and certified, for one M-layer and a linear layer trained "
    "for a radius eps. Starred: published, of convolutional nets with more parameters (IBP: Gowal et al., "
    "at 2/255 CTBench; CROWN-IBP: Zhang et al.)."
)
QUOTED_FROM = "Gowal et al. (IBP), Zhang et al. (CROWN-IBP); IBP at 2/255: CTBench"
# Clean, under attack and verified, in percent, of convolutional nets by Gowal et al. (arXiv:1810.12715, IBP)
# and Zhang et al. (arXiv:1906.06316, CROWN-IBP), from the tables of
# github.com/deepmind/interval-bound-propagation. Attacked by 20 steps of PGD; verified by IBP, but CROWN-IBP
# at 2/255 by its own bound. IBP at 2/255: CTBench (arXiv:2406.04848), as quoted in ADA-research/CTRAIN;
# the 44.1% of the repository above came from a looser verifier.
EXPECTED: dict[str, dict[str, dict[str, float]]] = {
    "cifar10_2_255": {
        "IBP": {"clean": 67.5, "certified": 56.0},
        "CROWN-IBP": {"clean": 71.52, "attacked": 59.72, "certified": 53.97},
    },
    "cifar10_8_255": {
        "IBP": {"clean": 49.49, "attacked": 39.53, "certified": 31.56},
        "CROWN-IBP": {"clean": 47.14, "attacked": 36.81, "certified": 33.30},
    },
    "mnist_0.1": {
        "IBP": {"clean": 98.94, "attacked": 97.99, "certified": 97.08},
        "CROWN-IBP": {"clean": 99.03, "attacked": 98.34, "certified": 97.75},
    },
    "mnist_0.3": {
        "IBP": {"clean": 98.34, "attacked": 96.03, "certified": 91.79},
        "CROWN-IBP": {"clean": 98.38, "attacked": 96.38, "certified": 93.32},
    },
}
# Our goals, clean and certified, in percent.
_GOALS = {
    "cifar10_2_255": ("CIFAR-10", "2/255", 62, 50),
    "mnist_0.1": ("MNIST", "0.1", 98, 95),
}
ROWS = tuple(
    PaperRow(
        f"{of}, certified training at {eps}: {kind}, %", "", f"certified.{name}.{kind}", ".2f", at_least=least
    )
    for name, (of, eps, clean, certified) in _GOALS.items()
    for kind, least in (("clean", clean), ("certified", certified))
)


CertifiedTask = RadiusTask[RobustRecipe]
DIGITS = RobustRecipe(
    (4, 8, 4), 32, epochs=60, gradient_clip=2.0, attack_steps=3, ramp=0.3, batch_size=32, weight_decay=1e-4
)
_SHIFTED_AND_FLIPPED = Augmentation(shift=3, flip=True)
# At 2/255 the expansion of a full layer ends soon enough; at 8/255 only that of a layer of degree two does.
CIFAR10_SMALL = RobustRecipe(
    48,
    96,
    epochs=48,
    optimizer="muon",
    learning_rate=1.5e-4,
    weight_decay=1.0,
    gradient_clip=None,
    activity_penalty=3e-4,
    augmentation=Augmentation(shift=3, distortion=0.15, recoloring=0.2),
    batch_size=256,
    flip_invariant=True,
    frequencies=16,
)
CIFAR10_LARGE = RobustRecipe((8, 16, 8), 96, epochs=60, learning_rate=0.03, augmentation=_SHIFTED_AND_FLIPPED)
MNIST = RobustRecipe(
    (8, 16, 8),
    96,
    epochs=25,
    learning_rate=0.05,
    weight_decay=2e-3,
    gradient_clip=2.0,
    attack_steps=2,
    ramp=0.3,
    stretch=1.25,
)
MNIST_LARGE = replace(MNIST, attack_steps=4, ramp=0.5, stretch=1.0, worst_of_way=True)
TASKS = (
    CertifiedTask("digits", "0.1", DIGITS),
    CertifiedTask("mnist", "0.1", MNIST),
    CertifiedTask("cifar10", "2/255", CIFAR10_SMALL),
    CertifiedTask("cifar10", "8/255", CIFAR10_LARGE),
    CertifiedTask("mnist", "0.3", MNIST_LARGE),
)


@dataclass(frozen=True)
class Config:
    """The models that are trained and tested."""

    seed: int = 0  # the first; others follow it
    seeds: int = 1  # how many
    tasks: tuple[CertifiedTask, ...] = TASKS  # in this order
    # number of images attacked and certified, spread evenly over each test set; None: all
    test_images: int | None = 2000
    fit_steps: int = 200  # of the constants of the certificates of full layers


SCALES = {
    "smoke": Config(
        tasks=(
            CertifiedTask(
                "digits", "0.05", replace(DIGITS, matrix_size=(2, 3, 2), embedding_size=8, epochs=4)
            ),
        ),
        test_images=40,
    ),
    "default": Config(),
    "full": Config(seeds=3, test_images=None),
}
needs = sets_of_tasks


def run(config: Config, context: RunContext) -> Results:
    """Train and test every task, an M-layer and a linear layer each, with every seed."""
    rows: list[dict[str, Any]] = []
    results: Results = {"rows": rows, "left_out": {}}
    for task in config.tasks:
        images = task.images(context, results)
        if images is None:
            continue
        for seed in range(config.seed, config.seed + config.seeds):
            for model in ("M-layer", "linear"):
                part = f"{task.name}-{model}-{seed}"
                if not context.wanted(task.name, part):
                    continue
                train = partial(
                    train_robustly,
                    images=images,
                    recipe=task.recipe,
                    eps=task.eps,
                    seed=seed,
                    context=context,
                    linear=model == "linear",
                    test_images=config.test_images,
                    fit_steps=config.fit_steps,
                )
                row = context.part(part, train)
                rows.append({"task": task.name, "radius": task.radius} | row)
                context.keep(results)
    return results


headline = partial(accuracy_figures, "certified")
plot = partial(
    accuracy_bars,
    published=EXPECTED,
    title="One M-layer and a linear layer, trained alike; *: published, convolutional nets",
)

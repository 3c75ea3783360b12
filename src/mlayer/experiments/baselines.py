"""The other rows of the table of accuracies in section 4.4, trained here: dense nets, NODE and ANODE.

    mlayer reproduce baselines --smoke      seconds
    mlayer reproduce baselines              dense nets on all of it, NODE and ANODE on 1 %; five epochs:
                                            3 to 4 hours on one core
    mlayer reproduce baselines --full       whole sets; needs a GPU or days

Expected (quoted by the paper from Lin et al. 2015 and Dupont et al. 2019): ReLU 56.29 % on CIFAR-10, ANODE
98.20, 60.60 and 83.50 % on MNIST, CIFAR-10 and SVHN; all rows are in `EXPECTED`. Each result says on how many
examples and for how many epochs it was trained; only full runs may be compared with the quoted figures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from mlayer.datasets import ImageSet
from mlayer.datasets import images as load_images
from mlayer.experiments.images import EXPECTED as TABLE
from mlayer.experiments.running.protocol import Results, Where, from_files
from mlayer.experiments.running.rows import PaperRow
from mlayer.experiments.shared.dense import parameter_count
from mlayer.experiments.shared.image_augmentation import Augment, Augmentation
from mlayer.experiments.shared.image_rivals import RIVALS, check_solver, rival
from mlayer.experiments.shared.image_training import split
from mlayer.experiments.shared.pictures import canvas, soft
from mlayer.training import Settings, evaluate, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Image baselines: dense nets, NODE, ANODE"
IN_PAPER = "; the other rows of Table 1, trained here"
CAPTION = "Test accuracy of the paper's other architectures; the mark is the figure that the paper quotes."
EXPECTED = {of: {name: row for name, row in rows.items() if name != "M-layer"} for of, rows in TABLE.items()}
_ODE = ("NODE", "ANODE")
# The dense nets, which take the least time, come first.
_ROWS = tuple(
    sorted(((of, name) for of in EXPECTED for name in EXPECTED[of]), key=lambda row: row[1] in _ODE)
)
ROWS = (
    *(
        PaperRow(
            f"{title}, {net}, %",
            quoted,
            f"baselines.{of}.{net}",
            ".1f",
            epochs=f"baselines.{of}.{net}.epochs",
            examples=f"baselines.{of}.{net}.examples",
        )
        for title, of, net, quoted in (
            ("MNIST", "mnist", "NODE", "96.40 ± 0.50"),
            ("MNIST", "mnist", "ANODE", "98.20 ± 0.10"),
            ("CIFAR-10", "cifar10", "sigmoid", "46.63"),
            ("CIFAR-10", "cifar10", "ReLU", "56.29"),
            ("CIFAR-10", "cifar10", "PReLU", "51.94"),
            ("CIFAR-10", "cifar10", "maxout", "52.80"),
            ("CIFAR-10", "cifar10", "NODE", "53.70 ± 0.20"),
            ("CIFAR-10", "cifar10", "ANODE", "60.60 ± 0.40"),
            ("SVHN", "svhn", "NODE", "81.00 ± 0.60"),
            ("SVHN", "svhn", "ANODE", "83.50 ± 0.50"),
        )
    ),
)


@dataclass(frozen=True)
class Config:
    """What is trained.

    Attributes:
        seed: of the parts of the data, the weights and the order.
        rows: (image set, name of the net).
        dense_part: of the training set that the dense nets see.
        ode_part: of the training set that NODE and ANODE see.
        ode_batch: of NODE and ANODE; Dupont et al. take 256.
        test_part: of the test set for NODE and ANODE.
        epochs: at most.
    """

    seed: int = 0
    rows: tuple[tuple[str, str], ...] = _ROWS
    dense_part: float = 1.0
    ode_part: float = 1.0
    ode_batch: int = 256
    test_part: float = 1.0
    epochs: int = 100


SCALES = {
    "smoke": Config(rows=tuple(("digits", name) for name in RIVALS), ode_part=0.1, test_part=0.1, epochs=1),
    # A part so small needs smaller batches to take more than a few steps.
    "default": Config(ode_part=0.01, ode_batch=32, test_part=0.05, epochs=5),
    "full": Config(),
}


def needs(config: Config) -> tuple[str, ...]:
    """The image sets that are files."""
    return from_files(of for of, _ in config.rows)


def run(config: Config, where: Where) -> Results:
    """Train every row."""
    if any(name in _ODE for _, name in config.rows):
        check_solver()  # now, and not when the dense nets are done
    sets: dict[str, ImageSet] = {}
    rows = []
    for of, name in config.rows:
        if of not in sets:
            sets[of] = load_images(of, where.data)
        rows.append(_row(sets[of], name, config, where))
        where.keep({"rows": rows})
    return {"rows": rows}


def _row(images: ImageSet, name: str, config: Config, where: Where) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(config.seed)
    ode = name in _ODE
    part = config.ode_part if ode else config.dense_part
    chosen = images.train.take(slice(0, max(10, round(part * len(images.train)))))
    training, validation = split(chosen, 0.1, generator)
    assert validation is not None
    test = images.test.take(slice(0, round((config.test_part if ode else 1.0) * len(images.test))))
    shape = (*images.image_shape, 1)[:3]
    net = rival(name, images.name, shape, len(images.classes), generator)
    settings = Settings(
        epochs=config.epochs,
        batch_size=config.ode_batch if ode else 100,
        loss="cross_entropy",
        # Dupont et al.: Adam at 1e-3. Lin et al. do not say all; these are common.
        optimizer="adam" if ode else "sgd",
        optimizer_options={} if ode else {"momentum": 0.9},
        learning_rate=1e-3 if ode else 1e-2,
        gradient_clip=None if ode else 1.0,  # without it maxout diverges
        metrics=("accuracy",),
        monitor="accuracy",
        early_stopping=15,
        seed=config.seed,
        on_divergence="stop",
    )
    label = f"{images.name}-{name}"
    plain = Augment(Augmentation(), shape, torch.zeros(shape[2]), torch.ones(shape[2]), training.white)
    result = train(
        net,
        (training.pixels.flatten(1), training.labels),
        settings,
        validation=(validation.images(), validation.labels),
        checkpoint=where.checkpoint(label),
        progress=where.follow(label),
        augment=plain,
    )
    tested = evaluate(net, (test.images(), test.labels), replace(settings, batch_size=256))
    return {
        "set": images.name,
        "net": name,
        "parameters": parameter_count(net),
        "test_accuracy": round(100 * tested["accuracy"], 3),
        "test_examples": len(test),
        "training_examples": len(training),
        "epochs": len(result.history),
        "best_epoch": result.best_epoch,
        "stopped": result.stopped,
        "seconds": round(result.seconds, 1),
    }


def headline(results: Results) -> dict[str, float]:
    """Test accuracies in percent, and on how many examples for how many epochs they were learned."""
    figures = {}
    for row in results["rows"]:
        name = f"baselines.{row['set']}.{row['net']}"
        figures[name] = row["test_accuracy"]
        figures[f"{name}.examples"] = float(row["training_examples"])
        figures[f"{name}.epochs"] = float(row["epochs"])
    return figures


def plot(results: Results) -> Figure:
    """One bar per row, with what each was trained on."""
    rows = results["rows"]
    figure = canvas(8, 0.42 * len(rows) + 1.2)
    axes = figure.subplots()
    labels = [f"{row['set']}, {row['net']}" for row in rows]
    axes.barh(labels, [row["test_accuracy"] for row in rows], color=soft())
    for place, row in enumerate(rows):
        note = f"{row['test_accuracy']:.1f}  ({row['training_examples']:,} examples x {row['epochs']} epochs)"
        axes.text(1, place, note, va="center", fontsize=8)
        quoted = EXPECTED.get(row["set"], {}).get(row["net"])
        if quoted is not None:
            axes.plot(quoted[0], place, "|", color="C3", ms=14)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("test accuracy, %; red: the figure the paper quotes")
    return figure

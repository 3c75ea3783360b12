"""Double spirals: section 4.1 and its figure of three boundaries.

    mlayer reproduce spiral             a few minutes on one core
    mlayer reproduce spiral --full      ten seeds of everything: an hour
    mlayer reproduce spiral --smoke     seconds

Expected (paper): a picture: all fit the training points, the M-layer alone extrapolates the spiral. Here the
share of points of a further turn (radius 9.4 to 12.6) that a model classifies correctly says how well it
extrapolates. It does so for one turn; the second and third are measured too.

The text's "n = 1" cannot represent a spiral; n = 10 is the authors' notebook's. The recipes:
    text        RMSprop 1e-3, 100 epochs, penalty 1e-4 (batch size not given; 16 is the notebook's)
    notebook    RMSprop 1e-2, x 0.2 after 5 epochs down to 1e-5, stop after 30, penalty 1e-3, batch 16; points
                with noise of +-0.25 instead of the text's +-0.5
    ours        RMSprop 1e-2 falling along a cosine, 150 epochs, penalty 1e-3, batch 64, "balanced" start
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from mlayer.datasets import Table, spirals
from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import paper_rows
from mlayer.experiments.shared.dense import dense_net, parameter_count
from mlayer.experiments.shared.pictures import Figure, colors, panels
from mlayer.nn.layer import MLayer
from mlayer.report.demo import boundary_picture
from mlayer.report.numbers import formatted
from mlayer.report.reproduction import Card
from mlayer.training import Plateau, Settings

TITLE = "Double spirals"
IN_PAPER = "Figure 2; section 4.1"
CAPTION = (
    "Regions that a ReLU net, a tanh net and an M-layer by our recipe assign to the two spirals, one "
    "training of each (seed 0). Points: the training set; dotted: the end of the further turn that is "
    "tested. Only the M-layer continues the spirals; turns further out, not drawn, have more errors."
)
EXPECTED = {"figure": "the M-layer's boundary extrapolates the spiral; those of the DNNs do not"}
EDGE = 14.0
NOTEBOOK_NOISE = 0.25
TURNS = 3  # after the training range
TITLES = {"relu": "ReLU DNN", "tanh": "tanh DNN", "ours": "M-layer"}

_RMSPROP = Settings(
    loss="cross_entropy",
    optimizer="rmsprop",
    optimizer_options={"alpha": 0.9, "eps": 1e-7},  # Keras'
    batch_size=16,
    on_divergence="stop",
)
_FURTHER, _SEEN = "accuracy on a further turn", "a picture"
_GOAL, _EPOCHS = {"at_least": 0.9}, {"epochs": "spiral.dnn_epochs"}
ROWS = paper_rows(
    "Spirals: ",
    "spiral",
    (
        (_FURTHER, _SEEN, "extra_turn_accuracy", ".1%", _GOAL),
        (f"{_FURTHER}, lowest of these seeds", "", "least_extra_turn_accuracy", ".1%", {}),
        ("accuracy on the second further turn", "", "second_turn_accuracy", ".1%", {}),
        ("accuracy on the third further turn", "", "third_turn_accuracy", ".1%", {}),
        (f"{_FURTHER}, text's recipe with n = 10", _SEEN, "text_extra_turn_accuracy", ".1%", _GOAL),
        (f"{_FURTHER}, notebook's recipe", _SEEN, "notebook_extra_turn_accuracy", ".1%", _GOAL),
        (f"{_FURTHER}, ReLU net", _SEEN, "relu_extra_turn_accuracy", ".1%", _EPOCHS),
        (f"{_FURTHER}, tanh net", _SEEN, "tanh_extra_turn_accuracy", ".1%", _EPOCHS),
    ),
)


@dataclass(frozen=True)
class Config:
    """The models that are trained."""

    seed: int = 0  # of the first run; the others follow it
    seeds: int = 5  # runs of our recipe
    other_seeds: int = 1  # runs of each of the others
    points: int = 2000  # on the two spirals
    dnn_epochs: int = 1000  # of the dense nets
    text_epochs: int = 100  # of the text's recipe for the M-layer
    notebook_epochs: int = 1000  # of the notebook's, at most
    epochs: int = 150  # of ours
    grid: int = 141  # points along each side of the picture


SCALES = {
    "smoke": Config(seeds=1, points=200, dnn_epochs=2, text_epochs=1, notebook_epochs=1, epochs=20, grid=21),
    "default": Config(),
    "full": Config(seeds=10, other_seeds=10),
}


def models(config: Config, seed: int) -> dict[str, tuple[nn.Module, Settings]]:
    """Each model with its recipe."""

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    def layer(init: str) -> MLayer:
        return MLayer(2, 2, matrix_size=10, embedding_size=10, init=init, generator=generator())

    def net(activation: str) -> nn.Module:
        return dense_net((2, 20, 20, 2), activation, generator())

    recipe = partial(replace, _RMSPROP, seed=seed)
    text = recipe(epochs=config.text_epochs, learning_rate=1e-3, activity_penalty=1e-4)
    notebook = recipe(epochs=config.notebook_epochs, learning_rate=1e-2, activity_penalty=1e-3)
    ours = recipe(epochs=config.epochs, learning_rate=1e-2, activity_penalty=1e-3)
    return {
        "relu": (net("relu"), recipe(epochs=config.dnn_epochs, learning_rate=1e-3)),
        "tanh": (net("tanh"), recipe(epochs=config.dnn_epochs, learning_rate=1e-2)),
        "text": (layer("normal"), text),
        "notebook": (layer("normal"), replace(notebook, plateau=Plateau(0.2, 5, 1e-5), early_stopping=30)),
        "ours": (layer("balanced"), replace(ours, batch_size=64, schedule="cosine")),
    }


def run(config: Config, context: RunContext) -> Results:
    """Every recipe with every seed; the boundaries of the first."""
    results: Results = {"models": {}, "boundaries": {}, "points": []}
    for k in range(config.seeds):
        seed = config.seed + k
        points = spirals(config.points, seed=seed)
        further = [spirals(config.points, extra_turn=k, seed=1_000_003 + seed) for k in range(1, TURNS + 1)]
        quieter = spirals(config.points, seed=seed, noise=NOTEBOOK_NOISE)
        for name, (model, settings) in models(config, seed).items():
            if name != "ours" and k >= config.other_seeds:
                continue
            training = quieter if name == "notebook" else points
            data, what = (training.x, training.y), f"{name}, seed {seed}"
            outcome = context.train(model, data, settings, f"{name}-{seed}", what)
            results["models"].setdefault(name, {"parameters": parameter_count(model), "runs": []})
            results["models"][name]["runs"].append(
                {
                    "seed": seed,
                    "epochs": len(outcome.history),
                    "stopped": outcome.stopped,
                    "training_accuracy": accuracy(model, training),
                    "extra_turn_accuracy": accuracy(model, further[0]),
                    "turns": [accuracy(model, turn) for turn in further],
                    "seconds": round(outcome.seconds, 1),
                }
            )
            if k == 0 and name in TITLES:
                results["boundaries"][name] = boundary(model, config.grid)
        if k == 0:
            results["points"] = [[round(v, 2) for v in row] for row in points.x.tolist()]
    for entry in results["models"].values():
        for key in ("training_accuracy", "extra_turn_accuracy"):
            values = [run[key] for run in entry["runs"]]
            entry[key] = sum(values) / len(values)
            entry[f"least_{key}"] = min(values)
        every = [run["turns"] for run in entry["runs"]]
        entry["turns"] = [sum(turn) / len(turn) for turn in zip(*every, strict=True)]
    return results


@torch.no_grad()
def accuracy(model: nn.Module, table: Table) -> float:
    """Share of the rows in the right class."""
    return float((model(table.x).argmax(1) == table.y).double().mean())


@torch.no_grad()
def boundary(model: nn.Module, grid: int) -> list[str]:
    """Probability of the second class in tenths, a string of digits for each row of the picture."""
    ticks = torch.linspace(-EDGE, EDGE, grid)
    y, x = torch.meshgrid(ticks, ticks, indexing="ij")
    tenths = model(torch.stack([x, y], -1).reshape(-1, 2)).double().softmax(1)[:, 1].nan_to_num(0.5) * 9
    digits = tenths.round().int().reshape(grid, grid).tolist()
    return ["".join(map(str, row)) for row in digits]


def headline(results: Results) -> dict[str, float]:
    """The figures for the summary: means over the seeds."""
    models = results["models"]
    ours, notebook = models["ours"], models["notebook"]
    seeds = {name: float(len(entry["runs"])) for name, entry in models.items()}
    figures = {f"{turn}_turn_accuracy.seeds": seeds["ours"] for turn in ("extra", "second", "third")}
    figures |= {f"{name}_extra_turn_accuracy.seeds": seeds[name] for name in ("text", "notebook")}
    figures |= {
        "extra_turn_accuracy": ours["extra_turn_accuracy"],
        "least_extra_turn_accuracy": ours["least_extra_turn_accuracy"],
        "second_turn_accuracy": ours["turns"][1],
        "third_turn_accuracy": ours["turns"][2],
        "notebook_second_turn_accuracy": notebook["turns"][1],
        "notebook_third_turn_accuracy": notebook["turns"][2],
    }
    for name in ("text", "notebook", "relu", "tanh"):
        figures[f"{name}_extra_turn_accuracy"] = models[name]["extra_turn_accuracy"]
    figures["dnn_epochs"] = float(models["relu"]["runs"][0]["epochs"])
    return {f"spiral.{name}": value for name, value in figures.items()}


def plot(results: Results) -> Figure:
    """The three boundaries side by side, the training points on top."""
    from matplotlib.patches import Circle

    figure, axes = panels(3, 13.5, 5)
    labels: list[Any] = [k % 2 for k in range(len(results["points"]))]  # as `spirals` orders them
    for axis, (name, title) in zip(axes, TITLES.items(), strict=True):
        rows = [[int(digit) / 9 for digit in row] for row in results["boundaries"][name]]
        ticks = [-EDGE + 2 * EDGE * k / (len(rows) - 1) for k in range(len(rows))]
        axis.contourf(
            ticks, ticks, rows, levels=[-0.1, 0.5, 1.1], colors=[colors().m_layer, colors().net], alpha=0.3
        )
        for label, color in ((0, colors().m_layer), (1, colors().net)):
            chosen = [p for p, own in zip(results["points"], labels, strict=True) if own == label]
            axis.scatter([x for x, _ in chosen], [y for _, y in chosen], s=1.5, color=color)
        axis.add_patch(Circle((0, 0), 4 * torch.pi, fill=False, color=colors().ink, linestyle=":"))
        accuracy = results["models"][name]["runs"][0]["extra_turn_accuracy"]
        heading = f"{title}, one run:\n{formatted(accuracy, '.1%')} right on the further turn"
        axis.set_title(heading, fontsize="medium")
        axis.set(aspect=1, xlim=(-EDGE, EDGE), ylim=(-EDGE, EDGE))
    return figure


def card(record: dict[str, Any]) -> Card:
    """The further turn, with the boundary of one seed."""
    results, figures = record["results"], record["headline"]
    seeds = len(results["models"]["ours"]["runs"])
    points = results["points"]
    labels = [k % 2 for k in range(len(points))]  # as `spirals` orders them
    return Card(
        formatted(figures["spiral.extra_turn_accuracy"], ".1%"),
        f"of the points on the next turn of two spirals, never seen, classified correctly (mean of {seeds} "
        f"seeds; {formatted(figures['spiral.second_turn_accuracy'], '.1%')} on the turn after it). "
        f"A ReLU net: {formatted(figures['spiral.relu_extra_turn_accuracy'], '.1%')}. Picture: one seed.",
        boundary_picture(results["boundaries"]["ours"], points, labels, xticks=[], yticks=[]),
        "Decision boundary of one M-layer around two spirals of points; it continues beyond them.",
    )

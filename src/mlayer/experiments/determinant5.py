"""Determinants of 5 x 5 matrices: section 4.3 and its scatter plot.

    mlayer reproduce determinant5           our recipe: 25 to 40 minutes on one core
    mlayer reproduce determinant5 --full    three seeds of it, for the M-layer and for the DNN, and the text's
                                            recipe for both: half a day
    mlayer reproduce determinant5 --smoke   seconds

Expected (paper): mean squared error 0.0012 with 14,977 parameters; a DNN with 43,101 has 0.279. (The text
swaps the two.) Guessing 0 gives 40/81 = 0.494, and there gradient descent from the text's start stays at
first: no product of fewer than five entries says anything about the determinant. Our recipe goes around that
plateau: it begins with matrices near the identity, where the determinant has terms of every degree, moves
them to the uniform ones in stages, and ends with Adam at a rate that decays slowly to 0: a slower decay ends
at a lower error. Model, number of parameters, start and, from there on, training matrices are the text's. The
DNN gets the same recipe, so that its gain is not credited to the M-layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import paper_rows
from mlayer.experiments.shared.dense import parameter_count
from mlayer.experiments.shared.pictures import Figure, colors, panels
from mlayer.experiments.shared.polynomials import PolynomialProblem, by_the_text, dnn, m_layer
from mlayer.report.numbers import formatted
from mlayer.training import Settings

TITLE = "Determinants of 5 x 5 matrices"
IN_PAPER = "Figure 5; section 4.3"
CAPTION = (
    "Learned against true determinants of 5,000 new 5 x 5 matrices, one point for each: the DNN and the "
    "M-layer by the text's recipe, the M-layer by ours. Last: the training error of our recipe by epoch."
)
EXPECTED = {
    "m_layer_mse": 0.0012,
    "m_layer_parameters": 14977,
    "dnn_mse": 0.279,
    "dnn_parameters": 43101,
    "zero_guess_mse": 40 / 81,
    "examples": 2**20,
}
SCATTER = 5000
ROWS = paper_rows(
    "5 x 5 determinant, mean squared error: ",
    "determinant5",
    (
        ("14,977 parameters, text's recipe", "0.0012", "paper_recipe_mse", ".1e", {"at_most": 1.2e-3}),
        ("14,977 parameters, our recipe", "0.0012", "best_mse", ".1e", {"at_most": 1e-4}),
        ("DNN of 43,101 parameters", "0.279", "dnn_mse", ".3f", {}),
        ("DNN, our recipe", "", "ours_dnn_mse", ".3f", {}),
    ),
)


@dataclass(frozen=True)
class Config:
    """The models that are trained, and their data."""

    seed: int = 0  # of data and weights; others follow it
    polynomial: str = "determinant"  # "determinant" or "permanent"
    seeds: int = 1  # of our recipe
    dnn_ours: bool = False  # whether the DNN is trained by our recipe too
    matrix_size: int = 24  # n
    examples: int = 2**20  # in the training set
    test: int = 10**6  # matrices in the test set
    # shares of the identity in the matrices of our recipe's warm-up, one epoch each
    stages: tuple[float, ...] = (0.6, 0.45, 0.3, 0.15)
    settle_epochs: int = 80  # of Adam on the uniform matrices, the rate falling to 0
    batch_size: int = 256  # of both
    learning_rate: float = 3e-3  # of both
    text_epochs: int = 0  # of the text's recipe for the M-layer; 0 leaves it out
    dnn_epochs: int = 0  # of the text's recipe for the DNN; 0 leaves it out
    dnn: tuple[int, int] = (5, 100)  # hidden layers and their width


SCALES = {
    "smoke": Config(
        seeds=2,
        dnn_ours=True,
        matrix_size=8,
        examples=2**10,
        test=2000,
        stages=(0.5,),
        settle_epochs=1,
        text_epochs=1,
        dnn_epochs=1,
        dnn=(2, 10),
    ),
    "default": Config(),
    "full": Config(seeds=3, dnn_ours=True, text_epochs=256, dnn_epochs=256),
}


def run(config: Config, context: RunContext) -> Results:
    """Ours, and the text's recipe where asked for."""
    problem = PolynomialProblem(config.polynomial, 5, config.seed)
    layers, width = config.dnn
    results: Results = {"ours": None, "ours_dnn": None, "more": [], "m_layer": None, "dnn": None}
    for turn in range(config.seeds):
        seed = config.seed + turn
        nets: dict[str, nn.Module] = {"ours": m_layer(5, config.matrix_size, seed)}
        if config.dnn_ours:
            nets["ours_dnn"] = dnn(5, layers, width, seed)
        for name, net in nets.items():
            row = partial(_ours, model=net, config=config, seed=seed, context=context)
            made = context.part(name if turn == 0 else f"{name}-{seed}", row)
            if turn == 0:
                results[name] = made
            else:
                made.pop("scatter")  # one seed's is drawn
                results["more"].append({"model": name, **made})
            context.keep(results)
    others: list[tuple[str, nn.Module, int, float]] = [
        ("m_layer", m_layer(5, config.matrix_size, config.seed), config.text_epochs, 1e-4),
        ("dnn", dnn(5, layers, width, config.seed), config.dnn_epochs, 0.0),
    ]
    for name, other, epochs, penalty in others:
        if epochs:
            results[name] = by_the_text(
                problem,
                other,
                config.examples,
                epochs=epochs,
                test=config.test,
                penalty=penalty,
                part=f"text-{name}",
                context=context,
                then=lambda model: {"scatter": _scatter(problem, model)},
            )
            context.keep(results)
    return results


def _ours(part: str, *, model: nn.Module, config: Config, seed: int, context: RunContext) -> dict[str, Any]:
    problem = PolynomialProblem(config.polynomial, 5, seed)
    x = problem.training(config.examples).x
    y = problem.exact(x).float()
    stages: list[dict[str, Any]] = []
    seconds = 0.0
    for share in (*config.stages, 0.0):
        last = share == 0.0
        near = (1 - share) * x + share * torch.eye(5).flatten()
        result = context.train(
            model,
            (near, problem.exact(near).float()) if share else (x, y),
            Settings(
                epochs=config.settle_epochs if last else 1,
                batch_size=config.batch_size,
                optimizer_options={"betas": (0.9, 0.99)},
                learning_rate=config.learning_rate,
                schedule="cosine" if last else None,
                gradient_clip=1.0,
                seed=seed,
            ),
            f"{part}-{share:g}",
            f"{part}, identity's share {share:g}",
        )
        seconds += result.seconds
        losses = [float(f"{record['loss']:.3g}") for record in result.history]
        stages.append({"share": share, "losses": losses, "seconds": round(result.seconds, 1)})
    return {
        "seed": seed,
        "parameters": parameter_count(model),
        "examples": config.examples,
        "seconds": round(seconds, 1),
        "test_mse": problem.test_error(model, config.test),
        "stages": stages,
        "scatter": _scatter(problem, model),
    }


def _scatter(problem: PolynomialProblem, model: nn.Module) -> list[list[float]]:
    """Pairs of true and learned determinant for the picture."""
    x = problem.test(SCATTER).x
    with torch.no_grad():
        learned = model(x)[:, 0].tolist()
    return [[round(a, 4), round(b, 4)] for a, b in zip(problem.exact(x)[:, 0].tolist(), learned, strict=True)]


def figures(results: Results, prefix: str) -> dict[str, float]:
    """The first seed of our recipe, and the range of all if there are more; the text's where it was run."""
    found = {f"{prefix}.best_mse": results["ours"]["test_mse"]}
    names = {"m_layer": "paper_recipe_mse", "dnn": "dnn_mse", "ours_dnn": "ours_dnn_mse"}
    found |= {
        f"{prefix}.{key}": results[name]["test_mse"] for name, key in names.items() if results.get(name)
    }
    for name, key in (("ours", "best_mse"), ("ours_dnn", "ours_dnn_mse")):
        more = [row["test_mse"] for row in results.get("more", ()) if row["model"] == name]
        if more:
            every = [results[name]["test_mse"], *more]
            found |= {f"{prefix}.{key}_lowest": min(every), f"{prefix}.{key}_highest": max(every)}
            found[f"{prefix}.{key}_seeds"] = float(len(every))
    return found


headline = partial(figures, prefix="determinant5")


def plot(results: Results) -> Figure:
    """Scatter plots as in the paper, and the error of our recipe during training."""
    titles = {
        "dnn": "DNN, text",
        "ours_dnn": "DNN, ours",
        "m_layer": "M-layer, text",
        "ours": "M-layer, ours",
    }
    shown = [(title, results[name]) for name, title in titles.items() if results.get(name)]
    figure, axes = panels(len(shown) + 1, 4.4 * (len(shown) + 1), 4.4)
    for axis, (title, part) in zip(axes, shown, strict=False):
        true, learned = zip(*part["scatter"], strict=True)
        axis.scatter(true, learned, s=1, color=colors().ink, alpha=0.6)
        axis.set(xlim=(-1, 1), ylim=(-1, 1), xlabel="true", ylabel="learned")
        axis.set_aspect(1)
        axis.set(xticks=[-1, -0.5, 0, 0.5, 1], yticks=[-1, -0.5, 0, 0.5, 1])
        error = formatted(part["test_mse"], ".2e" if title.startswith("DNN") else ".1e")  # as in the table
        axis.set_title(f"{title}: mean squared error {error}", fontsize="medium")
    last = axes[-1]
    for name, label, color in (("ours", "ours", colors().ink), ("ours_dnn", "DNN, ours", colors().net)):
        if results.get(name):
            losses = [loss for stage in results[name]["stages"] for loss in stage["losses"]]
            last.plot(range(1, len(losses) + 1), losses, ".-", color=color, markersize=3, label=label)
    shares = sum(stage["share"] > 0 for stage in results["ours"]["stages"])
    last.axvspan(0.5, shares + 0.5, color=colors().shade, label="near the identity")
    last.axhline(
        EXPECTED["m_layer_mse"], color=colors().m_layer, linestyle="--", linewidth=1, label="paper, M-layer"
    )
    last.axhline(EXPECTED["dnn_mse"], color=colors().net, linestyle=":", linewidth=1.5, label="paper, DNN")
    last.set(yscale="log", xlabel="epoch", ylabel="mean squared error in training")
    last.set_title("ours, epoch by epoch", fontsize="medium")
    last.legend(loc="best", fontsize="small")
    return figure

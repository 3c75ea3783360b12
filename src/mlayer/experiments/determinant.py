"""Determinants of 3 x 3 matrices: section 4.3 and its figure of error against parameters and examples.

    mlayer reproduce determinant            half an hour to an hour on one core
    mlayer reproduce determinant --full     the whole grid, to 2^17 examples, five seeds up to 2^12: 15 hours
    mlayer reproduce determinant --smoke    seconds

Expected (paper): 2e-4 with 811 parameters on 2^17 examples; the best DNN 0.003 with 3,121.
The authors' notebook has other settings, and no figure: n = 8, 8,192 examples, S Glorot uniform, at most 150
epochs, the rate x 0.2 after 5 epochs (text: 10) and never below 1e-5. It is run along with the text's recipe.
Ours: the same 811 parameters by Levenberg-Marquardt in float64, see `levenberg`; --full gives that to the
DNN of 3,121 too.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import paper_rows
from mlayer.experiments.shared.dense import parameter_count
from mlayer.experiments.shared.levenberg import Levenberg
from mlayer.experiments.shared.pictures import Figure, colors, is_narrow, panels
from mlayer.experiments.shared.polynomials import (
    PolynomialProblem,
    by_the_text,
    dnn,
    m_layer,
    notebook_layer,
    notebook_settings,
    powers_of_two,
)
from mlayer.report.numbers import formatted
from mlayer.report.reproduction import Card
from mlayer.report.theme import Theme

TITLE = "Determinants of 3 x 3 matrices"
IN_PAPER = "Figure 4; section 4.3"
CAPTION = (
    "Left: mean squared error on 10^6 new 3 x 3 matrices against the number of parameters, by size of the "
    "training set. Right: the error of our recipe on the examples of each step."
)
EXPECTED = {
    "m_layer_mse": 2e-4,
    "m_layer_parameters": 811,
    "dnn_mse": 0.003,
    "dnn_parameters": 3121,
    "zero_guess_mse": 2 / 9,
    "examples": 2**17,
}
ROWS = paper_rows(
    "3 x 3 determinant, mean squared error: ",
    "determinant3",
    (
        ("811 parameters, text's recipe", "2e-4", "paper_recipe_mse", ".1e", {"at_most": 2e-4}),
        ("DNN of 3,121 parameters", "0.003", "dnn_mse", ".1e", {}),
        ("text's recipe, 8,192 examples", "", "paper_recipe_mse_8192_examples", ".1e", {}),
        ("DNN, our recipe", "", "ours_dnn_mse", ".1e", {}),
        ("811 parameters, our recipe", "2e-4", "best_mse", ".1e", {"at_most": 1e-6}),
    ),
)


@dataclass(frozen=True)
class Config:
    """The models that are trained, and their data."""

    seed: int = 0  # of data and weights
    polynomial: str = "determinant"  # "determinant" or "permanent"
    matrix_sizes: tuple[int, ...] = (6, 7, 8, 9, 10, 11, 12)  # n of the M-layers in the grid
    # (hidden layers, width) of the dense nets in the grid
    dnns: tuple[tuple[int, int], ...] = ((2, 10), (3, 20), (4, 30))
    examples: tuple[int, ...] = (2**10, 2**11, 2**12, 2**13)  # sizes of the training set in the grid
    seeds: int = 1  # of every point of the grid with few examples, where single ones differ much
    seeds_up_to: int = 2**12  # examples; points with more have one seed
    headline_examples: int = 2**17  # for the 811-parameter M-layer
    dnn_examples: int = 2**17  # for the 3,121-parameter DNN
    notebook_examples: int = 2**13  # for the authors' notebook's recipe
    epochs: int = 256  # at most
    penalty: float = 1e-4  # the paper's lambda, the text's value
    other_penalties: tuple[float, ...] = ()  # also tried for the headline model
    ours_examples: int = 2**17  # for our recipe
    ours_rows: int = 2**13  # of them in one step
    ours_steps: int = 300  # of Levenberg-Marquardt
    # hidden layers and width of the DNN that gets the same; the text's has 3,121 parameters
    ours_dnn: tuple[int, int] = (4, 30)
    dnn_steps: int = 0  # of it; 0 leaves that out
    test: int = 10**6  # matrices in the test set


SCALES = {
    "smoke": Config(
        matrix_sizes=(6,),
        dnns=((2, 5),),
        examples=(2**7, 2**8),
        seeds=2,
        seeds_up_to=2**7,
        headline_examples=2**7,
        dnn_examples=2**7,
        notebook_examples=2**7,
        epochs=2,
        ours_examples=2**11,
        ours_rows=2**11,
        ours_steps=25,
        ours_dnn=(2, 5),
        dnn_steps=2,
        test=2000,
    ),
    "default": Config(),
    "full": Config(
        dnns=tuple((layers, width) for layers in (2, 3, 4) for width in (5, 10, 15, 20, 25, 30)),
        examples=tuple(2**k for k in range(10, 18)),
        seeds=5,
        dnn_steps=300,
        other_penalties=(0.0,),
    ),
}


def run(config: Config, context: RunContext) -> Results:
    """Ours, the headline models by the text's recipe, the notebook's, and the grid by the text's."""
    problem = PolynomialProblem(config.polynomial, 3, config.seed)
    results: Results = {"ours": ours(problem, config, context), "headline": {}, "notebook": None, "grid": []}
    if config.dnn_steps:
        net = dnn(3, *config.ours_dnn, config.seed).double()
        results["ours_dnn"] = by_least_squares(
            problem, net, config, context, steps=config.dnn_steps, part="ours-dnn"
        )
    trained = partial(by_the_text, problem, epochs=config.epochs, test=config.test, context=context)
    penalties = {"m_layer": config.penalty, "dnn": 0.0}
    penalties |= {f"m_layer_penalty_{penalty:g}": penalty for penalty in config.other_penalties}
    for name, penalty in penalties.items():
        dense = name == "dnn"
        model: nn.Module = dnn(3, 4, 30, config.seed) if dense else m_layer(3, 9, config.seed)
        examples = config.dnn_examples if dense else config.headline_examples
        results["headline"][name] = trained(model, examples, penalty=penalty, part=f"headline-{name}")
        context.keep(results)
    layer, examples = notebook_layer(3, 8, config.seed), config.notebook_examples
    results["notebook"] = trained(layer, examples, penalty=1e-4, part="notebook", recipe=notebook_settings)
    for examples in config.examples:
        for turn in range(config.seeds if examples <= config.seeds_up_to else 1):
            results["grid"] += _grid_points(replace(config, seed=config.seed + turn), examples, context)
            context.keep(results)
    return results


def _grid_points(config: Config, examples: int, context: RunContext) -> Iterator[dict[str, Any]]:
    """All models of the grid with one seed, of data and weights, and one number of examples."""
    problem = PolynomialProblem(config.polynomial, 3, config.seed)
    trained = partial(by_the_text, problem, epochs=config.epochs, test=config.test, context=context)
    for kind, label, model in _grid_models(config):
        penalty = config.penalty if kind == "M-layer" else 0.0
        part = f"{kind} {label}, {examples} examples, seed {config.seed}".replace(",", "").replace(" ", "-")
        point = trained(model, examples, penalty=penalty, part=part)
        yield {"model": kind, "label": label, "seed": config.seed, **point}


def _grid_models(config: Config) -> list[tuple[str, str, nn.Module]]:
    layers: list[tuple[str, str, nn.Module]] = [
        ("M-layer", f"n = {n}", m_layer(3, n, config.seed)) for n in config.matrix_sizes
    ]
    return layers + [("DNN", f"{k} x {w}", dnn(3, k, w, config.seed)) for k, w in config.dnns]


def ours(problem: PolynomialProblem, config: Config, context: RunContext) -> dict[str, Any]:
    """The text's model and start, trained by Levenberg-Marquardt in float64."""
    model = m_layer(3, 9, config.seed, torch.float64)
    return by_least_squares(problem, model, config, context, steps=config.ours_steps, part="ours")


def by_least_squares(
    problem: PolynomialProblem,
    model: nn.Module,
    config: Config,
    context: RunContext,
    *,
    steps: int,
    part: str,
) -> dict[str, Any]:
    """A model in float64, trained by Levenberg-Marquardt, unless that was done before."""

    def make(name: str) -> dict[str, Any]:
        x = problem.training(config.ours_examples).x.double()
        history = Levenberg(steps=steps, rows=config.ours_rows, seed=config.seed, target=1e-14)(
            model, x, problem.exact(x), checkpoint=context.checkpoint(name), context=context, what=name
        )
        double = problem.test_error(model, config.test)
        return {
            "parameters": parameter_count(model),
            "examples": config.ours_examples,
            "steps": len(history),
            "seconds": round(history[-1]["seconds"], 1) if history else 0.0,
            "test_mse": double,
            "test_mse_float32": problem.test_error(model.float(), config.test),
            "history": [[record["step"], float(f"{record['after']:.3g}")] for record in history],
        }

    return context.part(part, make)


def figures(results: Results, prefix: str) -> dict[str, float]:
    """The figures; the text's recipe has another name with fewer examples than the paper's 2^17."""
    figures = {f"{prefix}.best_mse": results["ours"]["test_mse"]}
    for name, key in (("m_layer", "paper_recipe_mse"), ("dnn", "dnn_mse")):
        if name in results["headline"]:  # an unfinished run may lack them
            part = results["headline"][name]
            suffix = "" if part["examples"] == EXPECTED["examples"] else f"_{part['examples']}_examples"
            figures[f"{prefix}.{key}{suffix}"] = part["test_mse"]
    if results.get("ours_dnn"):
        figures[f"{prefix}.ours_dnn_mse"] = results["ours_dnn"]["test_mse"]
    if results.get("notebook"):  # the permanent has none
        figures[f"{prefix}.notebook_mse"] = results["notebook"]["test_mse"]
    return figures


headline = partial(figures, prefix="determinant3")


def plot(results: Results) -> Figure:
    """Error against parameters, one color per number of examples; and our recipe's error during training.

    Where there are several seeds, the line goes through their medians.
    """
    figure, (left, right) = panels(2, 13, 4.8 if is_narrow() else 5.8, ratios=(1.5, 1))
    points = [*results["grid"]]
    for name, kind in (("m_layer", "M-layer"), ("dnn", "DNN")):
        if name in results["headline"]:
            points.append({"model": kind, **results["headline"][name]})
    counts = sorted({point["examples"] for point in points})
    shades = {c: 0.25 + 0.75 * k / max(1, len(counts) - 1) for k, c in enumerate(counts)}
    names = dict(zip(counts, powers_of_two(counts), strict=True))
    for kind, marker, color in (("M-layer", "o", colors().m_layer), ("DNN", "s", colors().net)):
        for count in counts:
            chosen = [p for p in points if p["model"] == kind and p["examples"] == count]
            if not chosen:
                continue
            sizes = sorted({p["parameters"] for p in chosen})
            errors = {size: [p["test_mse"] for p in chosen if p["parameters"] == size] for size in sizes}
            for size, each in errors.items():
                if len(each) > 1:  # every seed as a point, the line through the medians
                    left.scatter([size] * len(each), each, s=9, color=color, alpha=0.6 * shades[count])
            middle = [statistics.median(errors[size]) for size in sizes]
            style: dict[str, Any] = {"marker": marker, "color": color, "alpha": shades[count], "linewidth": 1}
            left.plot(sizes, middle, label=f"{kind}, {names[count]} examples", **style)
    if notebook := results.get("notebook"):  # the permanent has none
        label = f"notebook, {notebook['examples']:,} examples"
        left.scatter(
            [notebook["parameters"]], [notebook["test_mse"]], marker="x", color=colors().ink, label=label
        )
    best = results["ours"]
    left.scatter(
        [best["parameters"]], [best["test_mse"]], marker="*", s=160, color=colors().ink, label="M-layer, ours"
    )
    left.axhline(
        EXPECTED["zero_guess_mse"],
        color=colors().soft,
        linestyle=":",
        linewidth=1,
        label="always predicting 0",
    )
    left.set(xscale="log", yscale="log", xlabel="parameters", ylabel="mean squared error, test set")
    ticks = [200, 500, 1000, 3000] if is_narrow() else [200, 500, 1000, 2000, 3000]
    left.set_xticks(ticks, labels=[str(tick) for tick in ticks])
    left.set_xticks([], minor=True)
    left.set_title("the text's recipe, and ours")
    if is_narrow():
        left.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)  # below
    else:
        left.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))  # next to the points
    steps = [step for step, _ in best["history"]]
    right.plot(steps, [value for _, value in best["history"]], color=colors().ink)
    for key, of, color, line in (
        ("m_layer", "M-layer", colors().m_layer, "--"),
        ("dnn", "DNN", colors().net, "-."),
    ):
        error, label = EXPECTED[f"{key}_mse"], f"paper, determinant, {of}"
        right.axhline(error, color=color, linestyle=line, linewidth=1, label=label)
    if results.get("ours_dnn"):
        label = f"DNN, {results['ours_dnn']['parameters']} parameters"
        right.plot(*zip(*results["ours_dnn"]["history"], strict=True), color=colors().net, label=label)
    right.set(yscale="log", xlabel="step", ylabel="mean squared error, examples of the step")
    right.set_title(f"ours, {best['parameters']} parameters")
    right.legend(loc="best", fontsize="small")
    return figure


def card(record: dict[str, Any]) -> Card:
    """The error of our recipe, as it falls during the training."""
    results, figures = record["results"], record["headline"]

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        steps, errors = zip(*results["ours"]["history"], strict=True)
        axes.plot(steps, errors, color=theme.first, label="ours")
        axes.axhline(record["paper"]["m_layer_mse"], color=theme.second, linestyle="--", label="paper")
        axes.set(yscale="log", xlabel="step", ylabel="mean squared error")
        axes.legend(loc="best")

    return Card(
        formatted(figures["determinant3.best_mse"], ".1e"),
        "mean squared error on 3 x 3 determinants, with the paper's 811 parameters and number of examples; "
        f"the paper's M-layer has {formatted(record['paper']['m_layer_mse'], '.0e')}, its best dense net "
        f"{record['paper']['dnn_mse']:g}.",
        draw,
        "The error falls over the steps of training, far below the paper's.",
    )

"""Determinants of 3 x 3 matrices: section 4.3 and its figure of error against parameters and examples.

    mlayer reproduce determinant            some minutes on one core; the text's recipe on 2^13 examples
    mlayer reproduce determinant --full     the whole grid, to 2^17 examples: hours
    mlayer reproduce determinant --smoke    seconds

Expected (paper): 2e-4 with 811 parameters on 2^17 examples; the best DNN 0.003 with 3,121.
Ours: the same 811 parameters by Levenberg-Marquardt in float64, see `levenberg`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from mlayer.experiments.dense import parameter_count
from mlayer.experiments.levenberg import Levenberg
from mlayer.experiments.polynomials import Problem, by_the_text, dnn, m_layer, powers_of_two
from mlayer.experiments.protocol import Results, Where

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Determinants of 3 x 3 matrices"
EXPECTED = {
    "m_layer_mse": 2e-4,
    "m_layer_parameters": 811,
    "dnn_mse": 0.003,
    "dnn_parameters": 3121,
    "zero_guess_mse": 2 / 9,
    "examples": 2**17,
}


@dataclass(frozen=True)
class Config:
    """What is trained.

    Attributes:
        seed: of data and weights.
        polynomial: "determinant" or "permanent".
        matrix_sizes: n of the M-layers in the grid.
        dnns: (hidden layers, width) of the dense nets in the grid.
        examples: sizes of the training set in the grid.
        headline_examples: for the 811-parameter M-layer and the 3,121-parameter DNN.
        epochs: at most.
        penalty: the paper's lambda, the text's value.
        other_penalties: tried beside it for the headline model.
        ours_examples: for our recipe.
        ours_rows: of them in one step.
        ours_steps: of Levenberg-Marquardt.
        test: matrices in the test set.
    """

    seed: int = 0
    polynomial: str = "determinant"
    matrix_sizes: tuple[int, ...] = (6, 9, 12)
    dnns: tuple[tuple[int, int], ...] = ((2, 10), (3, 20), (4, 30))
    examples: tuple[int, ...] = (2**10,)
    headline_examples: int = 2**13
    epochs: int = 256
    penalty: float = 1e-4
    other_penalties: tuple[float, ...] = ()
    ours_examples: int = 2**17
    ours_rows: int = 2**13
    ours_steps: int = 300
    test: int = 10**6


SCALES = {
    "smoke": Config(
        matrix_sizes=(6,),
        dnns=((2, 5),),
        examples=(2**7,),
        headline_examples=2**7,
        epochs=2,
        ours_examples=2**11,
        ours_rows=2**11,
        ours_steps=25,
        test=2000,
    ),
    "default": Config(),
    "full": Config(
        matrix_sizes=(6, 7, 8, 9, 10, 11, 12),
        dnns=tuple((layers, width) for layers in (2, 3, 4) for width in (5, 10, 15, 20, 25, 30)),
        examples=tuple(2**k for k in range(10, 18)),
        headline_examples=2**17,
        other_penalties=(0.0,),
    ),
}


def run(config: Config, where: Where) -> Results:
    """The grid by the text's recipe, the headline models, and ours."""
    problem = Problem(config.polynomial, 3, config.seed)
    return {
        "ours": ours(problem, config, where),
        "headline": _headline_models(problem, config, where),
        "grid": _grid(problem, config, where),
    }


def _grid(problem: Problem, config: Config, where: Where) -> list[dict[str, Any]]:
    points = []
    for examples in config.examples:
        models = [("M-layer", f"n = {n}", m_layer(3, n, config.seed)) for n in config.matrix_sizes]
        models += [("DNN", f"{k} x {w}", dnn(3, k, w, config.seed)) for k, w in config.dnns]  # type: ignore[misc]
        for kind, label, model in models:
            point = by_the_text(
                problem,
                model,
                examples,
                epochs=config.epochs,
                test=config.test,
                penalty=config.penalty if kind == "M-layer" else 0.0,
                part=f"{kind} {label}, {examples} examples".replace(" ", "-"),
                where=where,
            )
            points.append({"model": kind, "label": label, **point})
    return points


def _headline_models(problem: Problem, config: Config, where: Where) -> dict[str, Any]:
    results = {}
    rows = [("m_layer", m_layer(3, 9, config.seed), config.penalty)]
    rows += [
        (f"m_layer_penalty_{penalty:g}", m_layer(3, 9, config.seed), penalty)
        for penalty in config.other_penalties
    ]
    rows.append(("dnn", dnn(3, 4, 30, config.seed), 0.0))  # type: ignore[arg-type]
    for name, model, penalty in rows:
        results[name] = by_the_text(
            problem,
            model,
            config.headline_examples,
            epochs=config.epochs,
            test=config.test,
            penalty=penalty,
            part=f"headline-{name}",
            where=where,
        )
    return results


def ours(problem: Problem, config: Config, where: Where) -> dict[str, Any]:
    """The text's model and start, trained by Levenberg-Marquardt in float64."""
    model = m_layer(3, 9, config.seed, torch.float64)
    x = problem.training(config.ours_examples).x.double()
    history = Levenberg(steps=config.ours_steps, rows=config.ours_rows, seed=config.seed, target=1e-14)(
        model, x, problem.exact(x), checkpoint=where.checkpoint("ours"), where=where, what="ours"
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


def headline(results: Results) -> dict[str, float]:
    """The figures for the summary."""
    return figures(results, "determinant3")


def figures(results: Results, prefix: str) -> dict[str, float]:
    """With fewer examples than the paper's 2^17 the text's recipe is another one, and named so."""
    layer, net = results["headline"]["m_layer"], results["headline"]["dnn"]
    suffix = "" if layer["examples"] == EXPECTED["examples"] else f"_{layer['examples']}_examples"
    return {
        f"{prefix}.paper_recipe_mse{suffix}": layer["test_mse"],
        f"{prefix}.dnn_mse{suffix}": net["test_mse"],
        f"{prefix}.best_mse": results["ours"]["test_mse"],
    }


def plot(results: Results) -> Figure:
    """Error against parameters, a colour for each number of examples; and our recipe's way down."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    points = [
        *results["grid"],
        {"model": "M-layer", **results["headline"]["m_layer"]},
        {"model": "DNN", **results["headline"]["dnn"]},
    ]
    counts = sorted({point["examples"] for point in points})
    shades = {c: 0.25 + 0.75 * k / max(1, len(counts) - 1) for k, c in enumerate(counts)}
    names = dict(zip(counts, powers_of_two(counts), strict=True))
    for kind, marker, colour in (("M-layer", "o", "tab:red"), ("DNN", "s", "tab:blue")):
        for count in counts:
            chosen = [p for p in points if p["model"] == kind and p["examples"] == count]
            left.scatter(
                [p["parameters"] for p in chosen],
                [p["test_mse"] for p in chosen],
                marker=marker,
                color=colour,
                alpha=shades[count],
                label=f"{kind}, {names[count]} examples",
            )
    best = results["ours"]
    left.scatter(
        [best["parameters"]], [best["test_mse"]], marker="*", s=160, color="black", label="M-layer, ours"
    )
    left.axhline(EXPECTED["zero_guess_mse"], color="grey", linestyle=":", linewidth=1)
    left.set(xscale="log", yscale="log", xlabel="parameters", ylabel="mean squared error, test set")
    left.set_title("the text's recipe, and ours")
    left.legend(fontsize="small")
    steps = [step for step, _ in best["history"]]
    right.plot(steps, [value for _, value in best["history"]], color="black")
    right.axhline(
        EXPECTED["m_layer_mse"], color="tab:red", linestyle="--", linewidth=1, label="paper, M-layer"
    )
    right.axhline(EXPECTED["dnn_mse"], color="tab:blue", linestyle="--", linewidth=1, label="paper, DNN")
    right.set(yscale="log", xlabel="step", ylabel="mean squared error, examples of the step")
    right.set_title(f"ours: Levenberg-Marquardt, {best['parameters']} parameters")
    right.legend(fontsize="small")
    return figure

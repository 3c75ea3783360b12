"""Sums of two cosines, learnt on [0, 2], tested on [2, 6]: section 4.2 and its figure.

    mlayer reproduce periodic           40 minutes on one core: the text's recipe with its 300 epochs, one
                                        model a function; the DNN with 30
    mlayer reproduce periodic --full    300 epochs of both and three models a function: 4 hours
    mlayer reproduce periodic --smoke   seconds

Expected (paper): a picture: the M-layer goes on with the function, the DNN does not.
Here the root of the mean squared error on [2, 6] says how well; the functions have values of up to 12.

The text's M-layer has d = 1, n = 6 and 115 parameters. That count is of two inputs (x and a constant), an
embedding of 2 x 2 with bias, and no matrix bias, which is what is used here; M is affine in x either way.
    text    RMSprop 5e-3 with decay 1e-5, batch 128, 300 epochs, "periodic" start, loss with a bound
    ours    the same model from a spectral start (`spectral`), then Levenberg-Marquardt in float64
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mlayer.datasets import FIGURE_COSINES, Cosines, cosine_samples, random_cosines
from mlayer.experiments.colours import M_LAYER, M_LAYER_OF_OTHERS, NET
from mlayer.experiments.dense import dense_net, parameter_count
from mlayer.experiments.levenberg import Levenberg
from mlayer.experiments.protocol import Results, Where
from mlayer.experiments.spectral import WithConstant, spectral_start, strongest_frequencies
from mlayer.nn.layer import MLayer
from mlayer.training import PeriodicLoss, Settings, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Periodic functions"
EXPECTED = {
    "figure": "M-layers go on with the three functions, DNNs do not",
    "m_layer_parameters": 115,
    "dnn_parameters": 3221,
}
GOAL = 0.05
SPACING = 1e-5
DRAWN = 0.01  # spacing of the curves in the picture


@dataclass(frozen=True)
class Config:
    """What is trained.

    Attributes:
        seed: of noise and weights.
        functions: of the figure.
        models: of our recipe for each function of the figure.
        random: functions drawn as in the text, one model of our recipe each.
        steps: of Levenberg-Marquardt.
        rows: examples in one of its steps.
        text_models: by the text's recipe, for each function of the figure.
        text_epochs: of it.
        dnn_models: for each function of the figure.
        dnn_epochs: of them.
        thin: every how many-th example trains by the text's recipe and the DNNs; the text's is 1.
    """

    seed: int = 0
    functions: int = 3
    models: int = 3
    random: int = 20
    steps: int = 40
    rows: int = 2000
    text_models: int = 1
    text_epochs: int = 300
    dnn_models: int = 1
    dnn_epochs: int = 30
    thin: int = 1


SCALES = {
    "smoke": Config(
        functions=1,
        models=1,
        random=1,
        steps=10,
        rows=500,
        text_epochs=1,
        dnn_models=1,
        dnn_epochs=1,
        thin=200,
    ),
    "default": Config(),
    "full": Config(text_models=3, dnn_models=3, dnn_epochs=300),
}


def run(config: Config, where: Where) -> Results:
    """Functions of the figure by all recipes, random functions by ours."""
    figure = []
    for number, function in enumerate(FIGURE_COSINES[: config.functions]):
        entry: dict[str, Any] = {"function": function.label, "curve": curve(function), "ours": []}
        for k in range(config.models):
            where.say(f"ours, function {number + 1}, model {k + 1}")
            entry["ours"].append(ours(function, config, config.seed + k))
        for kind in ("text", "dnn"):
            count = config.text_models if kind == "text" else config.dnn_models
            entry[kind] = [
                _by_the_text(
                    kind, function, config, config.seed + k, part=f"{kind}-{number}-{k}", where=where
                )
                for k in range(count)
            ]
        figure.append(entry)
    random = []
    for k in range(config.random):
        where.say("ours, random functions", k / config.random)
        function = random_cosines(1_000_003 * (config.seed + 1) + k)
        outcome = ours(function, config, config.seed + k)
        random.append({"function": function.label, "rmse": outcome["rmse"], "seconds": outcome["seconds"]})
    return {"figure": figure, "random": random}


def ours(function: Cosines, config: Config, seed: int) -> dict[str, Any]:
    """One model of our recipe."""
    samples = cosine_samples(function, seed=seed)
    # Even spacing is 1e-5 exactly; float32 has rounded it, and at x = 2 that is a hundredth of a step.
    x = SPACING * torch.arange(len(samples), dtype=torch.float64)[:, None]
    y = samples.y.double()
    frequencies = strongest_frequencies(y[:, 0], SPACING, 2)
    every = max(1, len(x) // config.rows)
    model = spectral_start(x[::every], y[::every], matrix_size=6, frequencies=frequencies, seed=seed)
    learner = Levenberg(steps=config.steps, rows=config.rows, damping=1e-3, seed=seed)
    history = learner(model, x, y)
    return {
        "parameters": parameter_count(model),
        "rmse": _rmse(model, function),
        "training_rmse": history[-1]["after"] ** 0.5 if history else None,
        "steps": len(history),
        "seconds": round(history[-1]["seconds"], 1) if history else 0.0,
        "curve": curve(model),
    }


def _by_the_text(
    kind: str, function: Cosines, config: Config, seed: int, *, part: str, where: Where
) -> dict[str, Any]:
    model, settings = recipe(kind, config, seed)
    samples = cosine_samples(function, seed=seed)
    outcome = train(
        model,
        (samples.x[:: config.thin].contiguous(), samples.y[:: config.thin].contiguous()),
        settings,
        checkpoint=where.checkpoint(part),
        progress=where.follow(part),
    )
    return {
        "parameters": parameter_count(model),
        "rmse": _rmse(model, function),
        "training_rmse": (outcome.best_value or 0.0) ** 0.5,
        "epochs": len(outcome.history),
        "stopped": outcome.stopped,
        "seconds": round(outcome.seconds, 1),
        "curve": curve(model),
    }


def recipe(kind: str, config: Config, seed: int) -> tuple[nn.Module, Settings]:
    """The text's models and settings.

    >>> [parameter_count(recipe(kind, Config(), 0)[0]) for kind in ("text", "dnn")]
    [115, 3221]
    """
    generator = torch.Generator().manual_seed(seed)
    text = kind == "text"
    inner: nn.Module = (
        MLayer(2, 1, 6, 2, matrix_bias=False, init="periodic", generator=generator)
        if text
        else dense_net((2, 50, 50, 10, 1), "relu", generator)
    )
    return WithConstant(inner), Settings(
        epochs=config.text_epochs if text else config.dnn_epochs,
        batch_size=128 if text else 64,
        loss=PeriodicLoss(),
        optimizer="rmsprop",
        optimizer_options={"alpha": 0.9, "eps": 1e-7},
        learning_rate=5e-3 if text else 1e-3,
        time_decay=1e-5 if text else 1e-6,
        seed=seed,
        on_divergence="stop",
    )


@torch.no_grad()
def _rmse(model: nn.Module, function: Cosines) -> float:
    """On [2, 6), with the text's spacing."""
    dtype = next(model.parameters()).dtype
    x = 2 + SPACING * torch.arange(round(4 / SPACING), dtype=torch.float64)[:, None]
    outputs = torch.cat([model(part.to(dtype)).double() for part in x.split(4000)])
    return float((outputs - function(x)).square().mean().sqrt().nan_to_num(1e9).clamp_max(1e9))


@torch.no_grad()
def curve(function: nn.Module | Cosines) -> list[float]:
    """Values on [0, 6] for the picture, cut at +-100."""
    x = DRAWN * torch.arange(round(6 / DRAWN) + 1, dtype=torch.float64)[:, None]
    if isinstance(function, nn.Module):
        x = x.to(next(function.parameters()).dtype)
    values: Tensor = function(x)[:, 0].nan_to_num(100.0).clamp(-100, 100)
    return [round(v, 3) for v in values.tolist()]


def headline(results: Results) -> dict[str, float]:
    """The figures for the summary: worst over functions and models; share of random ones within 0.05."""
    figures = {
        "periodic.figure_rmse_max": max(m["rmse"] for entry in results["figure"] for m in entry["ours"]),
        "periodic.random_success_rate": sum(r["rmse"] <= GOAL for r in results["random"])
        / len(results["random"]),
        "periodic.random_rmse_max": max(r["rmse"] for r in results["random"]),
    }
    for kind in ("text", "dnn"):
        values = [m["rmse"] for entry in results["figure"] for m in entry[kind]]
        if values:
            figures[f"periodic.{kind}_figure_rmse_min"] = min(values)
            figures[f"periodic.{kind}_figure_rmse_max"] = max(values)
            epochs = (m["epochs"] for entry in results["figure"] for m in entry[kind])
            figures[f"periodic.{kind}_epochs"] = float(max(epochs))
    return figures


def plot(results: Results) -> Figure:
    """Functions below each other, outputs of the models of each kind over them."""
    from matplotlib.figure import Figure

    kinds = {"dnn": "DNN", "text": "M-layer, the text's recipe", "ours": "M-layer, ours"}
    styles = {"dnn": (NET, "-"), "text": (M_LAYER_OF_OTHERS, "--"), "ours": (M_LAYER, "-")}
    rows = len(results["figure"])
    figure = Figure(figsize=(13, 1.2 + 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    for axis, entry in zip(axes, results["figure"], strict=True):
        x = [DRAWN * k for k in range(len(entry["curve"]))]
        top = 1.6 * max(map(abs, entry["curve"]))
        axis.axvspan(0, 2, color="0.93")
        axis.plot(x, entry["curve"], color="black", linewidth=3, alpha=0.25, label="function")
        for kind, label in kinds.items():
            colour, line = styles[kind]
            for k, model in enumerate(entry[kind]):
                full = f"{label}, {model['epochs']} epochs" if "epochs" in model else label
                axis.plot(
                    x, model["curve"], color=colour, linestyle=line, linewidth=1, label=None if k else full
                )
        worst = max(model["rmse"] for model in entry["ours"])
        axis.set(ylim=(-top, top), xlim=(0, 6), ylabel="f(x)")
        title = f"{entry['function']}; ours on [2, 6]: root mean squared error {worst:.1e}"
        axis.set_title(title, fontsize="medium")
    axes[0].legend(loc="upper right", ncols=4, fontsize="small")
    axes[-1].set_xlabel("x; trained on the grey part")
    return figure

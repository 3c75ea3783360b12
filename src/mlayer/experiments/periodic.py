"""Sums of two cosines, learned on [0, 2], tested on [2, 6]: section 4.2 and its figure.

    mlayer reproduce periodic           the text's M-layer and DNN with its 300 epochs, one model each for
                                        every function of the figure: two hours on one core
    mlayer reproduce periodic --full    three models each: 6 hours
    mlayer reproduce periodic --smoke   seconds

Expected (paper): a picture: the M-layer extrapolates the function, the DNN does not.
Here the root of the mean squared error on [2, 6] says how well; the functions have values of up to 12.

The text's M-layer has d = 1, n = 6 and 115 parameters. That count is of two inputs (x and a constant), an
embedding of 2 x 2 with bias, and no matrix bias, which is what is used here; M is affine in x either way.
    text    RMSprop 5e-3 with decay 1e-5, batch 128, 300 epochs, "periodic" start, loss with a bound
    ours    the same model, compiled from the waves that a spectrum and least squares find (`spectral`);
            nothing is trained by descent, and "without feature engineering" cannot be said of it

The text's frequencies are whole numbers, which fit the window exactly. Ours is also tried on functions with
real frequencies in [3, 9], next to linear least squares in given features (`wave_baselines`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mlayer.datasets import FIGURE_COSINES, Cosines, cosine_samples, random_cosines
from mlayer.errors import MLayerError
from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import paper_rows
from mlayer.experiments.shared.dense import dense_net, parameter_count
from mlayer.experiments.shared.pictures import Figure, canvas, colors
from mlayer.experiments.shared.spectral import WithConstant, spectral_layer, waves_of
from mlayer.experiments.shared.wave_baselines import features, harmonics, known_frequencies
from mlayer.nn.layer import MLayer
from mlayer.numerics.arrays import Array
from mlayer.report.demo import wave_picture
from mlayer.report.numbers import formatted
from mlayer.report.reproduction import Card
from mlayer.training import PeriodicLoss, Settings

TITLE = "Periodic functions"
IN_PAPER = "Figure 3; section 4.2"
CAPTION = (
    "The three functions of Figure 3 on [0, 6]; the shaded part is the training data. Solid: our recipe, "
    "which covers the function; dashed: the text's recipe. The DNN of the paper's figure is drawn only if "
    "it was trained for the text's 300 epochs."
)
EXPECTED = {
    "figure": "M-layers extrapolate the three functions, DNNs do not",
    "m_layer_parameters": 115,
    "dnn_parameters": 3221,
}
GOAL = 0.05
TEXT_EPOCHS = 300
SPACING = 1e-5
MATRIX_SIZE = 6
DRAWN = 0.01  # spacing of the curves in the picture
_SEEN, _ERROR, _BELOW = "a picture", "root mean squared error on [2, 6]", "error below 0.05"
_WORST = f"{_ERROR}, worst of the figure's functions"
_TEXT = {"at_most": 0.05, "epochs": "periodic.text_epochs"}
_DNN = {"epochs": "periodic.dnn_epochs", "full_epochs": TEXT_EPOCHS}
ROWS = paper_rows(
    "Periodic: ",
    "periodic",
    (
        (f"{_WORST}, our recipe (waves from a spectrum)", _SEEN, "figure_rmse_max", ".1e", {"at_most": 0.05}),
        (f"{_WORST}, text's recipe", _SEEN, "text_figure_rmse_max", ".2g", _TEXT),
        (f"{_ERROR}, best of the DNNs", _SEEN, "dnn_figure_rmse_min", ".1f", _DNN),
        (f"random functions of the text, {_BELOW}", "", "random_success_rate", ".1%", {"at_least": 0.9}),
        (f"functions with real frequencies, {_BELOW}", "", "real_success_rate", ".1%", {"at_least": 0.95}),
        ("the same, harmonics of the window", "", "harmonics_success_rate", ".1%", {}),
        ("the same, Fourier features and ridge", "", "features_success_rate", ".1%", {}),
        ("the same, least squares with known frequencies", "", "told_success_rate", ".1%", {}),
    ),
)


@dataclass(frozen=True)
class Config:
    """The models that are trained, and their functions."""

    seed: int = 0  # of noise and weights
    functions: int = 3  # of the figure
    models: int = 3  # of our recipe for each function of the figure
    random: int = 20  # functions drawn as in the text, one model of our recipe each
    real: int = 200  # functions with real frequencies, one model of our recipe each
    text_models: int = 1  # by the text's recipe, for each function of the figure
    text_epochs: int = 300  # of it
    dnn_models: int = 1  # for each function of the figure
    dnn_epochs: int = 300  # of them
    thin: int = 1  # one in this many examples trains the text's recipe and the DNNs; the text's is 1


SCALES = {
    "smoke": Config(
        functions=1, models=1, random=1, real=2, text_epochs=1, dnn_models=1, dnn_epochs=1, thin=200
    ),
    "default": Config(),
    "full": Config(text_models=3, dnn_models=3),
}


def run(config: Config, context: RunContext) -> Results:
    """Functions of the figure by all recipes, random functions by ours."""
    figure = []
    for number, function in enumerate(FIGURE_COSINES[: config.functions]):
        entry: dict[str, Any] = {"function": function.label, "curve": curve(function), "ours": []}
        for k in range(config.models):
            context.say(f"ours, function {number + 1}, model {k + 1}")
            model, outcome = ours(function, config.seed + k)
            entry["ours"].append(outcome | {"curve": curve(model)})
        for kind in ("text", "dnn"):
            count = config.text_models if kind == "text" else config.dnn_models
            entry[kind] = []
            for k in range(count):
                train_it = partial(_by_the_text, kind=kind, function=function, config=config, context=context)
                part = f"{kind}-{number}-{k}"
                entry[kind].append(context.part(part, partial(train_it, seed=config.seed + k)))
        figure.append(entry)
    random = [
        _measured(random_cosines(1_000_003 * (config.seed + 1) + k), config.seed + k)
        for k in _counted(config.random, "ours, random functions", context)
    ]
    real = []
    for k in _counted(config.real, "ours, real frequencies", context):
        function = random_cosines(1_000_003 * (config.seed + 1) + k, whole=False)
        real.append(_measured(function, config.seed + k) | _baselines(function, config.seed + k))
    return {"figure": figure, "random": random, "real": real}


def _counted(count: int, what: str, context: RunContext) -> Iterator[int]:
    for k in range(count):
        context.say(what, k / count)
        yield k


def ours(function: Cosines, seed: int) -> tuple[nn.Module, dict[str, Any]]:
    """One model of our recipe, and how it does."""
    started = time.monotonic()
    x, y = _training(function, seed)
    waves = waves_of(x, y, most=MATRIX_SIZE // 2)
    if waves is None:
        raise MLayerError("no wave was found in samples of " + function.label)
    model = spectral_layer(waves, MATRIX_SIZE)
    return model, {
        "parameters": parameter_count(model),
        "rmse": _rmse(model, function),
        "training_rmse": (waves.squares / len(x)) ** 0.5,
        "waves": len(waves),
        "seconds": round(time.monotonic() - started, 1),
    }


def _training(function: Cosines, seed: int) -> tuple[Array, Array]:
    samples = cosine_samples(function, seed=seed)
    # Even spacing is 1e-5 exactly; float32 has rounded it, and at x = 2 that is a hundredth of a step.
    return SPACING * np.arange(len(samples), dtype=np.float64), samples.y[:, 0].double().numpy()


def _measured(function: Cosines, seed: int) -> dict[str, Any]:
    return {"function": function.label} | ours(function, seed)[1]


def _baselines(function: Cosines, seed: int) -> dict[str, float]:
    """Errors on [2, 6] of models other than M-layers, from 2,000 of the same samples."""
    x, y = (part[::100] for part in _training(function, seed))
    new = 2 + np.arange(4000) / 1000
    exact = function(torch.from_numpy(new)).numpy()
    forecasts = {
        "harmonics": harmonics(x, y, new),
        "features": features(x, y, new),
        "told": known_frequencies(x, y, new, function.multiples),
    }
    return {name: float(np.sqrt(np.mean((values - exact) ** 2))) for name, values in forecasts.items()}


def _by_the_text(
    part: str, *, kind: str, function: Cosines, config: Config, seed: int, context: RunContext
) -> dict[str, Any]:
    model, settings = recipe(kind, config, seed)
    samples = cosine_samples(function, seed=seed)
    data = samples.x[:: config.thin].contiguous(), samples.y[:: config.thin].contiguous()
    outcome = context.train(model, data, settings, part)
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
        MLayer(2, 1, MATRIX_SIZE, 2, matrix_bias=False, init="periodic", generator=generator)
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
    """The error on [2, 6): 40,000 points, more than a hundred in every period."""
    dtype = next(model.parameters()).dtype
    x = 2 + torch.arange(40_000, dtype=torch.float64)[:, None] / 10_000
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
    real = results["real"]
    figures["periodic.real_functions"] = float(len(real))
    for name, key in (("real", "rmse"), *((name, name) for name in ("harmonics", "features", "told"))):
        errors = sorted(r[key] for r in real)
        figures[f"periodic.{name}_success_rate"] = sum(e <= GOAL for e in errors) / len(errors)
        figures[f"periodic.{name}_rmse_median"] = statistics.median(errors)
    figures["periodic.real_rmse_max"] = max(r["rmse"] for r in real)
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
    kinds = {"dnn": "DNN", "text": "M-layer, the text's recipe", "ours": "M-layer, ours"}
    styles = {
        "dnn": (colors().net, "-"),
        "text": (colors().m_layer_of_others, "--"),
        "ours": (colors().m_layer, "-"),
    }
    rows = len(results["figure"])
    figure = canvas(13, 1.2 + 2.6 * rows)
    axes = figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    for axis, entry in zip(axes, results["figure"], strict=True):
        x = [DRAWN * k for k in range(len(entry["curve"]))]
        top = 1.6 * max(map(abs, entry["curve"]))
        axis.axvspan(0, 2, color=colors().shade)
        axis.plot(x, entry["curve"], color=colors().ink, linewidth=3, alpha=0.25, label="function")
        for kind, label in kinds.items():
            color, line = styles[kind]
            # As in the table, no net that was not trained in full.
            drawn = [m for m in entry[kind] if kind != "dnn" or m["epochs"] >= TEXT_EPOCHS]
            for k, model in enumerate(drawn):
                full = f"{label}, {model['epochs']} epochs" if "epochs" in model else label
                axis.plot(
                    x, model["curve"], color=color, linestyle=line, linewidth=1, label=None if k else full
                )
        worst = max(model["rmse"] for model in entry["ours"])
        axis.set(ylim=(-top, top), xlim=(0, 6), ylabel="f(x)")
        title = f"{entry['function']}\nours on [2, 6]: root mean squared error {formatted(worst, '.1e')}"
        axis.set_title(title, fontsize="medium")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize="small")
    axes[-1].set_xlabel("x; trained on the gray part")
    return figure


def card(record: dict[str, Any]) -> Card:
    """The share of functions that are continued, or the worst error of the figure's."""
    results, figures = record["results"], record["headline"]
    entry = results["figure"][0]
    draw = wave_picture(entry["curve"], entry["ours"][0]["curve"])
    if "periodic.real_success_rate" in figures:
        count = round(figures["periodic.real_functions"])
        number = formatted(figures["periodic.real_success_rate"], ".1%")
        says = (
            f"of {count} sums of two cosines with real frequencies, known on [0, 2], are continued to 6 with "
            "a root mean squared error below 0.05. The waves are found by a periodogram and least squares, "
            "not by gradient descent."
        )
    else:
        number = formatted(figures["periodic.figure_rmse_max"], ".1e")
        says = "root mean squared error on [2, 6], worst of the figure's functions, known on [0, 2]."
    words = "A sum of cosines and the M-layer's output, one on the other."
    return Card(number, says, draw, words)

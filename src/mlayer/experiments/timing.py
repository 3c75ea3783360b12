"""Time of one epoch of training on CIFAR-10: section 4.4's table of run times.

    mlayer reproduce timing             seconds; needs an otherwise idle machine
    mlayer reproduce timing --full      whole epochs of 45,000 images: a minute
    mlayer reproduce timing --smoke     seconds

Expected (paper, on a V100): M-layer (d = 35, n = 30) 8.67 s, ReLU net 43-100-100-10 4.12 s: ratio 2.1.
Both nets are trained by the same loop on the same batches of 32, alternately in one run, so that other load
on the machine affects both. Pixels do not change the time, so they are drawn at random.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch
from torch import nn

from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import PaperRow
from mlayer.experiments.shared.dense import dense_net, parameter_count
from mlayer.experiments.shared.pictures import Figure, canvas, colors
from mlayer.nn import MLayer
from mlayer.report.reproduction import Grid
from mlayer.training import Settings, train

TITLE = "Time per training epoch compared with a ReLU net"
IN_PAPER = "Table 2; section 4.4"
CAPTION = "Seconds per epoch of CIFAR-10 on the CPU. The two nets took turns in one run."
EXPECTED = {
    "m_layer_seconds": [8.67, 0.56],
    "dnn_seconds": [4.12, 0.26],
    "ratio": 2.1,
    "device": "Nvidia V100",
    "m_layer_parameters": 148965,
    "dnn_parameters": 147649,
}
PIXELS, CLASSES = 3072, 10
_DNN = (PIXELS, 43, 100, 100, CLASSES)
ROWS = (PaperRow("Time per epoch, M-layer / ReLU net", "2.1 (V100)", "timing.ratio", ".2f", at_most=2.1),)


@dataclass(frozen=True)
class Config:
    """The trainings that are timed."""

    seed: int = 0  # of pixels and weights
    examples: int = 9000  # in one epoch; the times are scaled to ``epoch_examples``
    epoch_examples: int = 45_000  # of the paper's epoch, nine tenths of CIFAR-10's training set
    turns: int = 9  # epochs of each net, taken by turns
    batch_size: int = 32  # the paper's
    threads: int | None = None  # of torch; None leaves the number as it is


SCALES = {
    "smoke": Config(examples=320, turns=2),
    "default": Config(),
    "full": Config(examples=45_000, turns=11),
}


def run(config: Config, context: RunContext) -> Results:
    """Train both nets alternately and record the time of each epoch, in seconds."""
    generator = torch.Generator().manual_seed(config.seed)
    x = torch.rand(config.examples, PIXELS, generator=generator)
    y = torch.randint(0, CLASSES, (config.examples,), generator=generator)
    nets: dict[str, nn.Module] = {
        "m_layer": MLayer(PIXELS, CLASSES, 30, 35, generator=generator),
        "dnn": dense_net(_DNN, "relu", generator),
    }
    seconds: dict[str, list[float]] = {name: [] for name in nets}
    before = torch.get_num_threads()
    try:
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        for turn in range(-1, config.turns):  # the first turn warms up and is not counted
            context.say("timing", max(0, turn) / config.turns)
            # The order alternates from turn to turn.
            for name in list(nets)[:: 1 if turn % 2 else -1]:
                spent = _epoch(nets[name], x, y, config, penalty=1e-4 if name == "m_layer" else 0.0)
                if turn >= 0:
                    seconds[name].append(spent * config.epoch_examples / config.examples)
        threads = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    ratios = [a / b for a, b in zip(seconds["m_layer"], seconds["dnn"], strict=True)]
    return {
        "threads": threads,
        "parameters": {name: parameter_count(net) for name, net in nets.items()},
        "seconds": seconds,
        "median_seconds": {name: statistics.median(times) for name, times in seconds.items()},
        "ratios": ratios,
        "ratio": statistics.median(ratios),
    }


def _epoch(net: nn.Module, x: torch.Tensor, y: torch.Tensor, config: Config, penalty: float) -> float:
    """One epoch by the text's procedure, without the validation."""
    settings = Settings(
        epochs=1,
        batch_size=config.batch_size,
        loss="cross_entropy",
        optimizer="sgd",
        optimizer_options={"momentum": 0.9},
        learning_rate=1e-3,
        activity_penalty=penalty,
        seed=config.seed,
        restore_best=False,
    )
    started = time.perf_counter()
    train(net, (x, y), settings)
    return time.perf_counter() - started


def headline(results: Results) -> dict[str, float]:
    """The median over the turns of the ratio, and the medians of the times."""
    return {
        "timing.ratio": round(results["ratio"], 3),
        "timing.m_layer_seconds": round(results["median_seconds"]["m_layer"], 3),
        "timing.dnn_seconds": round(results["median_seconds"]["dnn"], 3),
    }


def grids(record: Results) -> list[Grid]:
    """Table 2 of the paper with our column."""
    results = record["results"]

    def here(name: str) -> str:
        times = results["seconds"][name]
        return f"{statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})"

    threads = f"{record['threads']} thread{'s' if record['threads'] > 1 else ''}"
    header = ["architecture", "parameters", "paper, V100", f"here, CPU, {threads}"]
    rows = [
        ["M-layer", "148,965", "8.67 ± 0.56 s", here("m_layer")],
        ["ReLU DNN", "147,649", "4.12 ± 0.26 s", here("dnn")],
    ]
    return [Grid("Table 2, seconds for an epoch of CIFAR-10", header, rows)]


def plot(results: Results) -> Figure:
    """The times of all turns."""
    figure = canvas(6, 3.6)
    axes = figure.subplots()
    kinds = {"m_layer": ("M-layer", colors().m_layer), "dnn": ("ReLU net", colors().net)}
    for name, times in results["seconds"].items():
        label, color = kinds[name]
        legend = f"{label}, {results['parameters'][name]:,} parameters"
        axes.plot(range(1, len(times) + 1), times, "o-", color=color, label=legend)
    axes.set_xticks(range(1, len(results["ratios"]) + 1))
    axes.set_xlabel("repetition")
    axes.set_ylabel("seconds per epoch of 45,000")
    axes.set_ylim(0)
    axes.set_title(f"ratio {results['ratio']:.2f} (paper, on a GPU: {EXPECTED['ratio']})")
    axes.legend(loc="best")
    return figure

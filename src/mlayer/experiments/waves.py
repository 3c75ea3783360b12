"""Waves off the grid in noise: our error on [2, 6], compared with a bound that no method can beat.

    mlayer reproduce waves              a few minutes on one core
    mlayer reproduce waves --full       100 functions at every level of noise: half an hour
    mlayer reproduce waves --smoke      seconds

Expected: nothing in the paper. A sum of two cosines with real frequencies in [3, 9] is sampled 500 times on
[0, 2], evenly or not, with noise of 1 to 20% of the function's deviation. The measure is the root mean
squared error on [2, 6], where a wrong frequency costs most, compared with
    bound       the Cramer-Rao bound of that error, for a method that knows there are two waves
    told        least squares with the frequencies given
    harmonics, features     linear least squares that has to do without them, see `wave_baselines`
Ours chooses the number of waves itself. The M-layer (n = 6, 115 parameters) is compiled from the waves.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mlayer.datasets import Cosines, random_cosines
from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import PaperRow
from mlayer.experiments.shared.over_seeds import grouped
from mlayer.experiments.shared.pictures import Figure, colors, panels
from mlayer.experiments.shared.spectral import spectral_layer, waves_of
from mlayer.experiments.shared.wave_baselines import cramer_rao, features, harmonics, known_frequencies
from mlayer.numerics.arrays import Array

TITLE = "Waves off the grid, in noise"
IN_PAPER = "; beyond section 4.2: real frequencies and noise"
CAPTION = (
    "Root mean squared error on [2, 6] against noise on [0, 2]: medians of the functions, and each function "
    "of ours as a point. Ours follows the Cramér-Rao bound, which limits the mean square of unbiased "
    "estimates, not their median. Least squares with known frequencies does better; linear fits without "
    "them fail."
)
EXPECTED = {"none": "the paper's functions have whole frequencies and noise of 1e-4"}
_KINDS = ("ours", "told", "bound", "harmonics", "features")
_NEW = 2 + np.arange(4000) / 1000


@dataclass(frozen=True)
class Config:
    """The functions and levels of noise that are measured."""

    seed: int = 0  # of functions and noise
    functions: int = 20  # at every level of noise and way of sampling
    rows: int = 500  # samples of each
    levels: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2)  # of noise, as parts of the function's deviation


SCALES = {
    "smoke": Config(functions=2, levels=(0.02, 0.1)),
    "default": Config(),
    "full": Config(functions=100),
}
ROWS = (
    PaperRow(
        "Waves in 20% noise, evenly sampled: error / Cramér-Rao bound, root mean square",
        "",
        "waves.even_0.2_ratio",
        ".2f",
    ),
    PaperRow("Waves in 20% noise, unevenly sampled: the same", "", "waves.uneven_0.2_ratio", ".2f"),
    PaperRow("Waves, all noise levels: runs that found two waves", "", "waves.right_number", ".1%"),
)


def run(config: Config, context: RunContext) -> Results:
    """Every function with every level of noise, evenly and unevenly sampled."""
    rows: list[dict[str, Any]] = []
    total = 2 * len(config.levels) * config.functions
    for even in (True, False):
        for level in config.levels:
            for k in range(config.functions):
                context.say(f"noise of {level:.0%}", len(rows) / total)
                seed = 1_000_003 * (config.seed + 1) + k
                measured = _measure(random_cosines(seed, whole=False), level, even, config.rows, seed)
                rows.append({"even": even, "noise": level, **measured})
    return {"rows": rows}


def _measure(function: Cosines, level: float, even: bool, count: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng([seed, round(1e4 * level), even])
    x = np.arange(count) * 2 / count if even else np.sort(random.uniform(0, 2, count))
    clean = _values(function, x)
    sigma = level * float(clean.std())
    y = clean + sigma * random.standard_normal(count)
    exact = _values(function, _NEW)
    frequency_bound, bound = cramer_rao(
        x,
        _NEW,
        frequencies=function.multiples,
        amplitudes=function.amplitudes,
        phases=function.phases,
        sigma=sigma,
    )

    def error(values: Array) -> float:
        return float(np.sqrt(np.mean((values - exact) ** 2)))

    waves = waves_of(x, y, most=3)
    ours = np.full_like(exact, y.mean())
    found: list[float] = []
    if waves is not None:
        with torch.no_grad():
            ours = spectral_layer(waves, 6)(torch.from_numpy(_NEW)[:, None])[:, 0].numpy()
        found = sorted((waves.frequencies[:, 0] / (2 * math.pi)).tolist())
    return {
        "function": function.label,
        "distance": abs(function.multiples[0] - function.multiples[1]),
        "waves": len(found),
        "frequency_errors": [
            min((abs(f - true) for f in found), default=math.nan) for true in function.multiples
        ],
        "frequency_bounds": frequency_bound.tolist(),
        "ours": error(ours),
        "told": error(known_frequencies(x, y, _NEW, function.multiples)),
        "bound": bound,
        "harmonics": error(harmonics(x, y, _NEW)),
        "features": error(features(x, y, _NEW)),
    }


def _values(function: Cosines, x: Array) -> Array:
    return np.asarray(function(torch.from_numpy(x)).numpy())


def headline(results: Results) -> dict[str, float]:
    """Root mean square of error / bound, and median errors, by level of noise."""
    figures = {}
    for (even, noise), rows in grouped(results["rows"], "even", "noise").items():
        start = f"waves.{'even' if even else 'uneven'}_{noise:g}"
        # The bound is of the mean square: 1 is an estimate that reaches it.
        squares = statistics.mean((row["ours"] / row["bound"]) ** 2 for row in rows)
        figures[f"{start}_ratio"] = math.sqrt(squares)
        for kind in _KINDS:
            figures[f"{start}_{kind}"] = statistics.median(row[kind] for row in rows)
    every = results["rows"]
    figures["waves.right_number"] = sum(row["waves"] == 2 for row in every) / len(every)
    figures["waves.functions"] = float(len(every))
    return figures


def plot(results: Results) -> Figure:
    """Median error against noise, a panel for each way of sampling; every run of ours as a point."""
    styles = {
        "harmonics": ("harmonics of the window", colors().green, "--"),
        "features": ("Fourier features, ridge", colors().pink, "-."),
        "ours": ("M-layer, frequencies found", colors().m_layer, "-"),
        "bound": ("Cramér-Rao bound", colors().ink, ":"),
        "told": ("least squares, frequencies given", colors().net, "--"),
    }
    figure, both = panels(2, 11, 4.4, sharey=True)
    for axes, even in zip(both, (True, False), strict=True):
        sampled = [row for row in results["rows"] if row["even"] == even]
        groups = [(noise, rows) for (noise,), rows in grouped(sampled, "noise").items()]
        levels = [100 * noise for noise, _ in groups]
        for kind, (label, color, line) in styles.items():
            medians = [statistics.median(row[kind] for row in rows) for _, rows in groups]
            axes.plot(levels, medians, line, color=color, label=label, linewidth=1.8)
        for level, (_, rows) in zip(levels, groups, strict=True):
            axes.plot(
                [level] * len(rows),
                [row["ours"] for row in rows],
                "o",
                color=colors().m_layer,
                ms=3,
                alpha=0.35,
            )
        axes.set(xscale="log", yscale="log", xlabel="noise, % of the function's deviation")
        axes.set_xticks(levels, [f"{level:g}" for level in levels])
        axes.minorticks_off()
        axes.set_title(f"{'evenly' if even else 'unevenly'} spaced samples on [0, 2]", fontsize="medium")
    both[0].set_ylabel("error on [2, 6], median of the functions")
    figure.legend(*both[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small")
    return figure

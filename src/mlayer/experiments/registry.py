"""Names of the experiments and the modules behind them."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from mlayer.checks import one_of
from mlayer.experiments.protocol import Experiment

# In the order of the paper.
EXPERIMENTS: dict[str, str] = {
    "spiral": "mlayer.experiments.spiral",
    "periodic": "mlayer.experiments.periodic",
    "temperatures": "mlayer.experiments.temperatures",
    "determinant": "mlayer.experiments.determinant",
    "determinant5": "mlayer.experiments.determinant5",
    "permanent": "mlayer.experiments.permanent",
    "images": "mlayer.experiments.images",
    "baselines": "mlayer.experiments.baselines",
    "timing": "mlayer.experiments.timing",
    "robustness": "mlayer.experiments.robustness",
    "certified": "mlayer.experiments.certified",
}


def experiment(name: str) -> Experiment:
    """The module of an experiment, loaded now."""
    one_of("name", name, EXPERIMENTS, "'mlayer reproduce all' runs every one of them.")
    return cast(Experiment, import_module(EXPERIMENTS[name]))

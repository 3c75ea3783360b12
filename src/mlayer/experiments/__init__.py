"""The experiments of the paper, one a file: `Config`, `SCALES`, `run`, `headline`, `plot`, `EXPECTED`.

A name maps to a module that is loaded when it is asked for. To add one, write the file and a line below.
"""

from mlayer.experiments.protocol import Experiment, Report, Scale
from mlayer.experiments.registry import EXPERIMENTS, experiment
from mlayer.experiments.runner import reproduce, reproduce_all

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Report",
    "Scale",
    "experiment",
    "reproduce",
    "reproduce_all",
]

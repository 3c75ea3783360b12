"""The experiments of the paper, one per file.

Each module has its configuration (`Config`, `SCALES`), the data it needs (`needs`), `run`, its figures
(`headline`), its rows of the comparison (`EXPECTED`, `ROWS`) and its picture (`plot`): see
`running.protocol.Experiment`. CONTRIBUTING.md names all files of a new one.

    running/    protocol, registry with the rows of all, runner, provenance
    shared/     what several experiments use: models, recipes, optimizers, colors
"""

from mlayer.experiments.running.protocol import Experiment, Report, Scale
from mlayer.experiments.running.registry import EXPERIMENTS, experiment
from mlayer.experiments.running.runner import reproduce, reproduce_all

__all__ = ["EXPERIMENTS", "Experiment", "Report", "Scale", "experiment", "reproduce", "reproduce_all"]

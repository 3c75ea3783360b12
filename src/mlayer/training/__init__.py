"""The training loop, losses, checkpoints; alone, many at once, or under torchrun."""

from mlayer.training.checkpoints import CheckpointError, CheckpointWarning
from mlayer.training.distributed import WorkerLostError
from mlayer.training.divergence import DivergenceError
from mlayer.training.evaluation import evaluate
from mlayer.training.loop import train
from mlayer.training.losses import LOSSES, METRICS, PeriodicLoss
from mlayer.training.many import RunsLostError, Trained, train_many
from mlayer.training.progress import Bar, Progress
from mlayer.training.result import TrainingResult
from mlayer.training.settings import Plateau, Settings

__all__ = [
    "LOSSES",
    "METRICS",
    "Bar",
    "CheckpointError",
    "CheckpointWarning",
    "DivergenceError",
    "PeriodicLoss",
    "Plateau",
    "Progress",
    "RunsLostError",
    "Settings",
    "Trained",
    "TrainingResult",
    "WorkerLostError",
    "evaluate",
    "train",
    "train_many",
]

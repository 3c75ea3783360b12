"""The layer, its structures and initializers, and the views of section 3 of the paper."""

from mlayer.nn import gauge, lie, ode, spectrum
from mlayer.nn.activity import DetachedPenaltyError, activity_of, watch_activity
from mlayer.nn.initializers import Balanced, Normal, Notebook, Periodic
from mlayer.nn.layer import MLayer
from mlayer.nn.ode import evolve, trajectory
from mlayer.nn.overflow import OverflowedOutputError, OverflowedOutputWarning
from mlayer.nn.structures import Parametrized, Structure
from mlayer.nn.structures.blocks import BlockDiagonal, BlockTriangular
from mlayer.nn.structures.entries import Full, Nilpotent, Skew

__all__ = [
    "Balanced",
    "BlockDiagonal",
    "BlockTriangular",
    "DetachedPenaltyError",
    "Full",
    "MLayer",
    "Nilpotent",
    "Normal",
    "Notebook",
    "OverflowedOutputError",
    "OverflowedOutputWarning",
    "Parametrized",
    "Periodic",
    "Skew",
    "Structure",
    "activity_of",
    "evolve",
    "gauge",
    "lie",
    "ode",
    "spectrum",
    "trajectory",
    "watch_activity",
]

"""The layer, its structures and initialisers, and the views of section 3 of the paper."""

from mlayer.nn import gauge, lie, ode, spectrum
from mlayer.nn.activity import activity_of, watch_activity
from mlayer.nn.initialisers import Balanced, Normal, Notebook, Periodic
from mlayer.nn.layer import MLayer
from mlayer.nn.ode import evolve, trajectory
from mlayer.nn.structures import BlockDiagonal, Full, Nilpotent, Parametrized, Skew, Structure

__all__ = [
    "Balanced",
    "BlockDiagonal",
    "Full",
    "MLayer",
    "Nilpotent",
    "Normal",
    "Notebook",
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

"""Training on all rows in each step: scipy's L-BFGS-B on the weights as one vector.

Source: Zhu, Byrd, Lu and Nocedal, "Algorithm 778: L-BFGS-B", ACM Trans. Math. Softw. 23 (1997). Against
torch's L-BFGS it reaches the same losses in the same number of iterations, can be interrupted between two
evaluations, which holds a time limit, and does not load torch's compiler (1.3 s of processor time).
"""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from mlayer.estimators.penalty import Ridge
from mlayer.estimators.watch import OutOfTimeError
from mlayer.nn import MLayer
from mlayer.nn.activity import watch_activity
from mlayer.numerics.arrays import Array
from mlayer.training import TrainingResult
from mlayer.training.progress import Progress
from mlayer.training.result import Record, Stopped

# Iterations between two lines of the history.
STRIDE = 20
# Over this many iterations the loss must fall by this part of itself, or the fit has converged.
_LEAST_GAIN = 5e-4
# Where the loss of more than two classes is smaller, in nats, nearly all rows are right already.
_SMALL_LOG_LOSS = 0.5
_MEMORY = 20  # pairs of steps and gradients
_GRADIENT = 1e-7  # converged if no entry of the gradient is larger
_LINE_SEARCH = 40  # evaluations
# In place of a loss that overflows, relative to the first: the line search comes back to shorter steps.
_WALL = 1e6
# The message of a run whose line search ended it: in float32 the digits of the loss may be too few for it.
NO_STEP = "no step lowers the loss"


class Objective:
    """Loss and gradient of a layer as functions of its weights in one vector; keeps the best weights.

    The rows are x, y and weights of mean 1; ``activity`` is the factor of the paper's penalty on exp(M).
    """

    def __init__(
        self, layer: MLayer, rows: tuple[Tensor, Tensor, Tensor], ridge: Ridge, activity: float
    ) -> None:
        self.layer, self.ridge, self.activity = layer, ridge, activity
        self.x, self.y, weight = rows
        self.weight = weight / len(weight)
        self.parameters = [p for p in layer.parameters() if p.requires_grad]
        self.best, self.weights = math.inf, self.start()
        self._wall: float | None = None

    def start(self) -> Array:
        """The weights as they are."""
        return np.asarray(parameters_to_vector(self.parameters).detach().double().numpy())

    @property
    def scale(self) -> float:
        """A loss below which gains are compared with it; 0 for squares, which may fall without end."""
        return _SMALL_LOG_LOSS if self.ridge.loss == "cross_entropy" and self.layer.out_features > 2 else 0.0

    def put(self, weights: Array) -> None:
        """Set the weights."""
        place = 0
        with torch.no_grad():
            for p in self.parameters:
                part = torch.from_numpy(weights[place : place + p.numel()])
                p.copy_(part.reshape(p.shape))
                place += p.numel()

    def __call__(self, weights: Array) -> tuple[float, Array]:
        """Loss and gradient; a high constant where the exponential overflows."""
        self.put(weights)
        value, gradient = self._evaluated()
        if self._wall is None:
            self._wall = _WALL * (1 + abs(value)) if math.isfinite(value) else math.inf
        if gradient is None or not (math.isfinite(value) and np.isfinite(gradient).all()):
            return self._wall, np.zeros(len(weights))
        if value < self.best:
            self.best, self.weights = value, weights.copy()
        return value, gradient

    def _evaluated(self) -> tuple[float, Array | None]:
        watched: AbstractContextManager[list[Tensor]] = nullcontext([])
        if self.activity:
            watched = watch_activity(self.layer)
        with torch.enable_grad(), watched as activities:
            _, losses = self.ridge(self.layer, self.x, self.y)
            loss = (losses * self.weight).sum()
            if activities:
                loss = loss + self.activity * sum(activities)
            value = loss.item()
            if not math.isfinite(value):
                return value, None
            gradients = torch.autograd.grad(loss, self.parameters)
        return value, np.asarray(parameters_to_vector(gradients).double().numpy())


class _ConvergedError(Exception):
    """The loss hardly falls any more."""


class _Journal:
    """The record of a run: a line of the history for each stride."""

    def __init__(self, objective: Objective, shown: Progress) -> None:
        self.objective, self.shown = objective, shown
        self.begin = time.monotonic()
        self.steps = 0
        self.history: list[Record] = []

    def evaluated(self, weights: Array) -> tuple[float, Array]:
        """Loss and gradient, unless the time is over."""
        if self.steps:  # a fit has at least one iteration
            self.shown.update(self.steps, len(self.history) + 1, self.objective.best)
        return self.objective(weights)

    def iterated(self, _: Array) -> None:
        """An iteration is complete."""
        self.steps += 1
        if self.steps % STRIDE:
            return
        self.record()
        if len(self.history) > 1:
            before, now = (self.history[k]["loss"] for k in (-2, -1))
            if before - now < _LEAST_GAIN * max(abs(now), self.objective.scale):
                raise _ConvergedError

    def record(self) -> None:
        """A line of the history."""
        line: Record = {"epoch": len(self.history) + 1, "step": self.steps, "loss": self.objective.best}
        line |= {"learning_rate": 1.0, "seconds": time.monotonic() - self.begin}
        self.history.append(line)
        self.shown.epoch(line)


def fit_all_rows(objective: Objective, max_iter: int, shown: Progress) -> TrainingResult:
    """Minimize, and leave the best weights in the layer; the steps of the result are iterations.

    ``shown`` receives the progress; it may end the training by OutOfTimeError.
    """
    from scipy.optimize import minimize

    journal = _Journal(objective, shown)
    options: dict[str, float] = {"ftol": 1e-12, "gtol": _GRADIENT, "maxcor": _MEMORY}
    options |= {"maxiter": max_iter, "maxfun": 20 * max_iter, "maxls": _LINE_SEARCH}
    stopped: Stopped = "epochs"
    message = "all iterations were done"
    shown.start(max_iter, 0)
    try:
        start = objective.start()
        found = minimize(
            journal.evaluated, start, jac=True, method="L-BFGS-B", callback=journal.iterated, options=options
        )
        if journal.steps < max_iter:
            stopped, message = "early", "converged" if found.success else NO_STEP
        if not journal.history or journal.history[-1]["step"] < journal.steps:
            journal.record()
    except _ConvergedError:
        stopped, message = "early", "converged"
    except OutOfTimeError:
        stopped, message = "early", "the time was over"
    finally:
        objective.put(objective.weights)
        shown.stop()
    history, seconds = journal.history, time.monotonic() - journal.begin
    if not math.isfinite(objective.best):
        stopped, message = "diverged", "the exponential overflows at the initial weights."
        return TrainingResult(history, 0, None, stopped, message, journal.steps, seconds)
    return TrainingResult(history, len(history), objective.best, stopped, message, journal.steps, seconds)

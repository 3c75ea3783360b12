"""Every optimizer with every schedule, stopped at every step, ends with the very same weights."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import torch
from problems import product, same_weights, with_dropout

from mlayer.training import Plateau, Settings, train
from mlayer.training.optimizers import OPTIMIZERS

EPOCHS, BATCHES = 3, 2
SCHEDULES: dict[str, dict[str, Any]] = {
    "constant": {},
    "cosine": {"schedule": "cosine"},
    "one_cycle": {"schedule": "one_cycle"},
    "callable": {"schedule": lambda done: 1 - 0.5 * done},
    "time_decay": {"time_decay": 0.1},
    "plateau": {"plateau": Plateau(0.5, 1)},
}
# Stopped at every step even in the quick run: the default, one of torch's, and one that keeps no state.
EVERY_STOP = {"rmsprop", "adam", "sgd"}


class StoppedError(Exception):
    pass


# What stops a run is no part of it: the value of a context variable is not compared, as a warning then says.
pytestmark = pytest.mark.filterwarnings("ignore:resumed from .* without comparing what is in .*ContextVar")
STOP: ContextVar[int | None] = ContextVar("STOP", default=None)
CALLS: ContextVar[int] = ContextVar("CALLS", default=0)


def noise(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    CALLS.set(CALLS.get() + 1)
    if CALLS.get() == STOP.get():
        raise StoppedError
    return x + 0.01 * torch.randn(x.shape, generator=generator)


def settings(optimizer: str, schedule: str) -> Settings:
    rate = {"lbfgs": 0.02, "sgd": 0.1, "adadelta": 1.0}.get(optimizer, 1e-2)
    return Settings(
        epochs=EPOCHS, batch_size=16, optimizer=optimizer, learning_rate=rate, **SCHEDULES[schedule]
    )


# In the quick run every optimizer with a constant rate, and every schedule with the default optimizer.
PAIRS = [
    pytest.param(
        optimizer,
        schedule,
        marks=[] if schedule == "constant" or optimizer == "rmsprop" else [pytest.mark.slow],
    )
    for optimizer in OPTIMIZERS
    for schedule in SCHEDULES
]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize(("optimizer", "schedule"), PAIRS)
def test_every_stop_resumes_to_the_bit(optimizer: str, schedule: str, every: bool, tmp_path: Path) -> None:
    data, validation = product(16 * BATCHES), product(20, 1)
    how = settings(optimizer, schedule)
    STOP.set(None)
    CALLS.set(0)
    whole = with_dropout()
    train(whole, data, how, validation=validation, augment=noise)
    every = every or (schedule == "constant" and optimizer in EVERY_STOP)
    stops = range(1, CALLS.get() + 1) if every else (4,)
    for stop in stops:
        folder, model = tmp_path / str(stop), with_dropout()
        STOP.set(stop)
        CALLS.set(0)
        options: dict[str, Any] = {"checkpoint": folder, "checkpoint_seconds": 0, "validation": validation}
        with pytest.raises(StoppedError):
            train(model, data, how, augment=noise, **options)
        STOP.set(None)
        again = with_dropout()
        train(again, data, how, augment=noise, **options)
        assert same_weights(whole, again), f"stopped in step {stop}"

"""The settings of a run, as one frozen value: compared on resuming and stored with the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mlayer.checks import (
    between,
    brief,
    did_you_mean,
    flag,
    instance,
    integer,
    number,
    one_of,
    several,
    takes,
)
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.nn.activity import ActivityKind

# (model, x, y) -> the outputs and the loss of each example, (b,).
Loss = Callable[[nn.Module, Tensor, Tensor], tuple[Tensor, Tensor]]
OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
# Fraction of all steps done, in [0, 1] -> factor on the learning rate.
Schedule = Callable[[float], float]


@dataclass(frozen=True)
class Plateau:
    """Multiply the learning rate by ``factor`` after ``patience`` epochs without improvement."""

    factor: float = 0.2
    patience: int = 5
    floor: float = 0.0

    def __post_init__(self) -> None:
        between("factor", self.factor, 0, 1, "0.2 makes the rate a fifth.")
        integer("patience", self.patience, 1)
        number("floor", self.floor, least=0)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a training. Model, data and folder of checkpoints are arguments of :func:`train`.

    Attributes:
        epochs: passes over the data, at most.
        batch_size: for tensors in memory; data loaders bring their own.
        loss: "cross_entropy" (targets are class indices), "squared_error", or a callable
            ``(model, x, y) -> (outputs, losses)`` with one loss per example, such as
            :class:`mlayer.training.PeriodicLoss`.
        optimizer: a name ("adam", "adamw", "sgd", "rmsprop", "lbfgs", or any class of torch.optim), or a
            callable ``parameters -> torch.optim.Optimizer``.
        optimizer_options: more arguments of a named optimizer, such as ``{"momentum": 0.9}``.
        learning_rate: at the start (a callable optimizer sets its own).
        weight_decay: of a named optimizer.
        schedule: None (constant), "cosine", "one_cycle", or a callable from the fraction of the steps
            done to a factor on the learning rate.
        time_decay: the learning rate is divided by (1 + time_decay * step), Keras' "decay".
        plateau: reduction of the learning rate when the monitored value no longer improves.
        gradient_clip: largest 2-norm of the gradient of all parameters together.
        activity_penalty: the paper's lambda: this times the activity of the M-layers is added to the loss.
        activity_kind: "frobenius" (the paper's text) or "l1" (the authors' notebooks).
        metrics: measured on the validation set: "accuracy", "rmse".
        monitor: "loss" or one of the metrics. Taken from the validation set if there is one.
        early_stopping: stop after this many epochs without improvement of the monitored value.
        restore_best: end with the weights of the best epoch.
        seed: of shuffling, augmentation and dropout.
        on_divergence: "raise" a :class:`DivergenceError`, or "stop" and say so in the result. The best
            weights are kept either way.
    """

    epochs: int = 100
    batch_size: int = 32
    loss: str | Loss = "squared_error"
    optimizer: str | OptimizerFactory = "adam"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: str | Schedule | None = None
    time_decay: float = 0.0
    plateau: Plateau | None = None
    gradient_clip: float | None = None
    activity_penalty: float = 0.0
    activity_kind: ActivityKind = "frobenius"
    metrics: tuple[str, ...] = ()
    monitor: str = "loss"
    early_stopping: int | None = None
    restore_best: bool = True
    seed: int = 0
    on_divergence: Literal["raise", "stop"] = "raise"

    def __post_init__(self) -> None:
        from mlayer.training.learning_rate import SCHEDULES
        from mlayer.training.losses import LOSSES, METRICS

        integer("epochs", self.epochs, 0)
        integer("batch_size", self.batch_size, 1)
        integer("seed", self.seed, 0)
        number("learning_rate", self.learning_rate, above=0)
        number("weight_decay", self.weight_decay, least=0)
        number("time_decay", self.time_decay, least=0)
        number("activity_penalty", self.activity_penalty, least=0)
        if self.gradient_clip is not None:
            number("gradient_clip", self.gradient_clip, above=0)
        if self.early_stopping is not None:
            integer("early_stopping", self.early_stopping, 1)
        if self.plateau is not None and not isinstance(self.plateau, Plateau):
            raise ArgumentTypeError(
                "plateau", "a Plateau or None", type(self.plateau).__name__, "Use Plateau(factor, patience)."
            )
        _one_of("loss", self.loss, LOSSES, "The mean squared error is 'squared_error'. Or give a callable.")
        if callable(self.loss):
            _check_loss(self.loss)
        if isinstance(self.schedule, type):  # such as a scheduler of torch, which is made for an optimizer
            must_be = "a name or a function from the fraction of the steps done to a factor"
            raise ArgumentTypeError(
                "schedule", must_be, brief(self.schedule), "For example lambda done: 1 - done."
            )
        if self.schedule is not None:
            _one_of("schedule", self.schedule, SCHEDULES)
        one_of("activity_kind", self.activity_kind, ("frobenius", "l1"), "The paper's is 'frobenius'.")
        one_of("on_divergence", self.on_divergence, ("raise", "stop"), "By default 'raise'.")
        flag("restore_best", self.restore_best)
        metrics: object = self.metrics  # may be of any type
        named = several("metrics", metrics, "a tuple of names", 'For example ("accuracy",).')
        object.__setattr__(self, "metrics", named)
        for metric in self.metrics:
            one_of("metrics", metric, METRICS, "Measure others with on_epoch.")
        instance("monitor", self.monitor, str, "a name", "For example 'loss'.")
        if self.monitor != "loss" and self.monitor not in self.metrics:
            add = f"Add it: Settings(metrics=({self.monitor!r},), monitor={self.monitor!r})."
            near = did_you_mean(
                self.monitor, ("loss", *METRICS), "The metrics are " + ", ".join(METRICS) + "."
            )
            raise ArgumentError(
                "monitor",
                "'loss' or one of the metrics",
                repr(self.monitor),
                add if self.monitor in METRICS else near,
            )
        instance(
            "optimizer_options", self.optimizer_options, Mapping, "a dict", 'For example {"momentum": 0.9}.'
        )
        if not callable(self.optimizer):
            from mlayer.training.optimizers import optimizer_class

            optimizer_class(self.optimizer)

    def fingerprint(self) -> dict[str, Any]:
        """The settings as plain data. Two runs resume each other if theirs are equal.

        Callables count by their code and what they hold.
        """
        from mlayer.training.fingerprint import plain

        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


def _one_of(name: str, value: object, known: Iterable[str], hint: str = "Or give a callable.") -> None:
    if not callable(value):
        one_of(name, value, known, hint)


def _check_loss(loss: Loss) -> None:
    """Raise for a function of outputs and targets, as torch's own losses are."""
    called = loss.forward if isinstance(loss, nn.Module) else loss
    if not takes(called, 3) or str(getattr(called, "__module__", "")).startswith("torch.nn."):
        raise ArgumentTypeError(
            "loss",
            "'cross_entropy', 'squared_error' or a callable (model, x, y) -> (outputs, losses)",
            "one that takes other arguments",
            "For example: lambda model, x, y: (p := model(x), (p - y).square().mean(1)).",
        )

"""The constructor's arguments: checked when a fit begins, and "auto" replaced by what suits the table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from mlayer.checks import brief, did_you_mean, instance, is_finite, is_several, one_of, several
from mlayer.errors import ArgumentError, ArgumentTypeError, in_one_line
from mlayer.estimators.fitting import Recipe
from mlayer.estimators.penalty import PENALTIES
from mlayer.estimators.selection import EFFORTS

# Up to here all rows are used in each step (L-BFGS, float64); beyond, batches (Adam, float32).
SMALL_TABLE = 4000
# Training on batches visits rows this many times in all, in this many epochs at least. The rate falls to 0
# over them: ten epochs of 40,000 rows had R^2 0.911 on a table of 30 columns, 41 at a rate that had hardly
# fallen when early stopping ended them 0.903, at four times the cost.
_MAX_ITER = 300  # the default of both estimators
_VISITS, _FEWEST_EPOCHS = 400_000, 4
_MORE_IF_THOROUGH = 4
# Where the search for alpha starts.
_START_ALPHA = 0.01
_SEE = "See the documentation of the class."


@dataclass(frozen=True)
class EstimatorPlan:
    """The arguments with nothing left open but, perhaps, alpha and periodic."""

    matrix_size: int  # n
    embedding_size: int | None  # d, or None for no embedding
    hold_out: float  # the share of rows for early stopping, 0 for none
    chooses_alpha: bool  # whether alpha is to be chosen on held-out rows
    is_large: bool  # whether a solver for large tables was chosen, and an alpha for it
    recipe: Recipe  # of the training; with an alpha to start from if it is to be chosen


def check_arguments(estimator: Any) -> None:
    """Raise if an argument of the constructor cannot be used; scikit-learn requires that fit reports it."""
    for name in ("matrix_size", "batch_size"):
        _whole(name, getattr(estimator, name), "a positive integer or 'auto'", ("auto",))
    _whole("embedding_size", estimator.embedding_size, "a positive integer, 'auto' or None", ("auto", None))
    for name in ("max_iter", "n_iter_no_change"):
        _whole(name, getattr(estimator, name), "a positive integer")
    _number("alpha", estimator.alpha, or_auto=True)
    _number("learning_rate", estimator.learning_rate, positive=True, or_auto=True)
    _number("activity_penalty", estimator.activity_penalty)
    _number("validation_fraction", estimator.validation_fraction, below=1.0)
    one_of("penalty", estimator.penalty, tuple(PENALTIES), _SEE)
    one_of("effort", estimator.effort, tuple(EFFORTS), _SEE)
    _check_periodic(getattr(estimator, "periodic", "auto"))  # only one of the classes has it
    early = estimator.early_stopping
    if not (is_auto(early) or isinstance(early, bool | np.bool_)):
        hint = "Leave it 'auto' when in doubt."
        raise ArgumentError("early_stopping", "True, False or 'auto'", brief(early), hint)
    instance(
        "warm_start", estimator.warm_start, bool | np.bool_, "True or False", "False starts each fit afresh."
    )
    instance(
        "verbose",
        estimator.verbose,
        bool | np.bool_ | Integral,
        "True or False",
        "True shows a progress bar.",
    )
    seed_of(estimator.random_state, draw=False)
    _check_class_weight(getattr(estimator, "class_weight", None))


def is_auto(value: object) -> bool:
    """Whether it is the word "auto". Comparing an array with it would give an array."""
    return isinstance(value, str) and value == "auto"


def seed_of(random_state: Any, *, draw: bool = True) -> int:
    """A seed for torch, drawn from scikit-learn's ``random_state``; 0 if it is only to be checked."""
    try:
        state = check_random_state(random_state)
    except ValueError:
        raise ArgumentError(
            "random_state",
            "None, an integer from 0 to 2**32 - 1 or a numpy.random.RandomState",
            brief(random_state),
            "For example 0, for the same fit each time.",
        ) from None
    return int(state.randint(2**31 - 1)) if draw else 0


def plan(estimator: Any, rows: int, inputs: int, outputs: int, seed: int) -> EstimatorPlan:
    """The checked arguments of ``estimator``, settled for a table of this size."""
    solver = _solver(estimator.solver, rows)
    large = rows > SMALL_TABLE
    # 16 for many classes took twice the time of 12 and had the same held-out loss (digits, twelve classes).
    n = 8 + min(4, max(0, outputs - 2)) + (4 if large else 0)
    d: int | None = min(inputs, 10 if rows < 1000 else 32)
    if not is_auto(estimator.embedding_size):
        d = None if estimator.embedding_size is None else int(estimator.embedding_size)
    alpha = (_START_ALPHA if solver == "lbfgs" else 1e-4) if is_auto(estimator.alpha) else estimator.alpha
    early = estimator.early_stopping
    early = rows >= 500 if is_auto(early) else bool(early)
    most = int(estimator.max_iter)
    if estimator.solver == "auto" and solver != "lbfgs" and most == _MAX_ITER:  # nothing was asked for
        visits = _VISITS * (_MORE_IF_THOROUGH if estimator.effort == "thorough" else 1)
        most = min(most, max(_FEWEST_EPOCHS, visits // rows))
    return EstimatorPlan(
        matrix_size=n if is_auto(estimator.matrix_size) else int(estimator.matrix_size),
        embedding_size=d,
        hold_out=float(estimator.validation_fraction) if early and solver != "lbfgs" else 0.0,
        chooses_alpha=is_auto(estimator.alpha) and solver == "lbfgs",
        is_large=is_auto(estimator.alpha) and estimator.solver == "auto" and solver != "lbfgs",
        recipe=Recipe(
            loss=estimator._loss,
            penalty=estimator.penalty,
            alpha=float(alpha),
            activity_penalty=float(estimator.activity_penalty),
            solver=solver,
            max_iter=most,
            learning_rate=3e-3 if is_auto(estimator.learning_rate) else float(estimator.learning_rate),
            batch_size=128 if is_auto(estimator.batch_size) else int(estimator.batch_size),
            patience=int(estimator.n_iter_no_change),
            seed=seed,
        ),
    )


def _solver(solver: Any, rows: int) -> str:
    instance(
        "solver", solver, str, "'auto', 'lbfgs' or the name of an optimizer of torch", "For example 'adam'."
    )
    if solver == "auto":
        return "lbfgs" if rows <= SMALL_TABLE else "adam"
    from mlayer.training import Settings
    from mlayer.training.optimizers import OPTIMIZERS

    try:
        Settings(optimizer=solver)
    except ArgumentError as error:
        raise ArgumentError(
            "solver",
            "'auto', 'lbfgs' or the name of an optimizer of torch",
            repr(solver),
            did_you_mean(solver, ("auto", *OPTIMIZERS), "For example 'adam'."),
        ) from error
    if solver.lower() != "lbfgs" and (fault := _unfit(solver)):
        raise ArgumentError(
            "solver",
            "'lbfgs' or an optimizer of torch that trains dense weights of one to three dimensions",
            f"{solver!r}, which says: {fault}",
            "For example 'adam'.",
        )
    return solver.lower()


def _unfit(solver: str) -> str:
    """The reason why the optimizer cannot train weights of these shapes; empty if it can. Found by a step."""
    import torch

    from mlayer.training.optimizers import optimizer_class

    weights = [torch.nn.Parameter(torch.ones(shape)) for shape in ((2,), (2, 2), (2, 2, 2))]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    try:
        optimizer_class(solver)(weights, lr=1e-3).step()  # type: ignore[call-arg]
    except (RuntimeError, ValueError) as error:
        return in_one_line(error)
    return ""


def _check_periodic(value: Any) -> None:
    if is_auto(value) or isinstance(value, bool | np.bool_):
        return
    must_be, hint = "True, False, 'auto' or numbers of inputs", "Leave it 'auto' when in doubt."
    indices = several("periodic", value, must_be, hint) if is_several(value) else [None]
    if any(isinstance(j, bool) or not isinstance(j, Integral) or int(j) < 0 for j in indices):
        raise ArgumentError("periodic", must_be, brief(value), hint)


def _check_class_weight(value: Any) -> None:
    must_be = "None, 'balanced' or a dictionary from class to weight"
    hint = "For example {0: 1.0, 1: 5.0}."
    if isinstance(value, str) and value != "balanced":
        raise ArgumentError("class_weight", must_be, repr(value), did_you_mean(value, ("balanced",), hint))
    if not (value is None or isinstance(value, str | Mapping)):
        raise ArgumentTypeError("class_weight", must_be, brief(value), hint)


def _whole(name: str, value: object, must_be: str, instead: tuple[str | None, ...] = ()) -> None:
    if value is None or isinstance(value, str):
        if value not in instead:
            raise ArgumentTypeError(name, must_be, brief(value), _SEE)
        return
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ArgumentTypeError(name, must_be, brief(value), _SEE)
    if not 1 <= int(value) < 2**63:
        raise ArgumentError(name, must_be, str(value), _SEE)


def _number(
    name: str, value: object, *, positive: bool = False, below: float = math.inf, or_auto: bool = False
) -> None:
    words = f"a number {'above' if positive else 'of at least'} 0"
    words += f" and below {below:g}" if math.isfinite(below) else ""
    words += ", or 'auto'" if or_auto else ""
    if or_auto and is_auto(value):
        return
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(name, words, brief(value), _SEE)
    number = float(value) if is_finite(value) else math.nan
    if not 0 <= number < below or (positive and number == 0):
        raise ArgumentError(name, words, brief(value), _SEE)

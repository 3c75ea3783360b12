"""The constructor's arguments: checked when a fit begins, and "auto" replaced by what suits the table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from mlayer.checks import did_you_mean, one_of
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.estimators.penalty import PENALTIES

# Up to here all rows are used in each step (L-BFGS, float64); beyond, batches (Adam, float32).
SMALL_TABLE = 4000


@dataclass(frozen=True)
class Plan:
    """The arguments with nothing left open but, perhaps, alpha and periodic.

    Attributes:
        matrix_size: n.
        embedding_size: d, or None for no embedding.
        solver: "lbfgs" or the name of an optimizer of torch.
        batch_size: for the latter.
        learning_rate: likewise.
        hold_out: the share of rows for early stopping, 0 for none.
        alpha: a number, or None if it is to be chosen on held-out rows.
    """

    matrix_size: int
    embedding_size: int | None
    solver: str
    batch_size: int
    learning_rate: float
    hold_out: float
    alpha: float | None


def plan(estimator: Any, rows: int, inputs: int, outputs: int) -> Plan:
    """Check the arguments of ``estimator`` and settle them for a table of this size."""
    whole = _whole
    if estimator.matrix_size != "auto":
        whole("matrix_size", estimator.matrix_size)
    if estimator.embedding_size is not None and estimator.embedding_size != "auto":
        whole("embedding_size", estimator.embedding_size)
    whole("max_iter", estimator.max_iter)
    whole("n_iter_no_change", estimator.n_iter_no_change)
    _number("activity_penalty", estimator.activity_penalty)
    _number("validation_fraction", estimator.validation_fraction, below=1.0)
    _one_of("penalty", estimator.penalty, tuple(PENALTIES))
    for name in ("periodic", "early_stopping"):
        if hasattr(estimator, name) and not (
            getattr(estimator, name) == "auto" or isinstance(getattr(estimator, name), bool)
        ):
            raise ArgumentError(
                name,
                "True, False or 'auto'",
                repr(getattr(estimator, name)),
                "Leave it 'auto' when in doubt.",
            )
    solver = _solver(estimator.solver, rows)
    large = rows > SMALL_TABLE
    n = 8 + min(8, max(0, outputs - 2)) + (4 if large else 0)
    d = min(inputs, 10 if rows < 1000 else 32)
    if estimator.alpha == "auto":
        alpha = None if solver == "lbfgs" else 1e-4
    else:
        alpha = _number("alpha", estimator.alpha)
    learning_rate = 3e-3
    if estimator.learning_rate != "auto":
        learning_rate = _number("learning_rate", estimator.learning_rate, positive=True)
    batch_size = 128
    if estimator.batch_size != "auto":
        batch_size = whole("batch_size", estimator.batch_size)
    early = estimator.early_stopping is True or (estimator.early_stopping == "auto" and rows >= 500)
    return Plan(
        matrix_size=n if estimator.matrix_size == "auto" else int(estimator.matrix_size),
        embedding_size=d
        if estimator.embedding_size == "auto"
        else None
        if estimator.embedding_size is None
        else int(estimator.embedding_size),
        solver=solver,
        batch_size=batch_size,
        learning_rate=learning_rate,
        hold_out=float(estimator.validation_fraction) if early and solver != "lbfgs" else 0.0,
        alpha=alpha,
    )


def _solver(solver: object, rows: int) -> str:
    if not isinstance(solver, str):
        raise ArgumentTypeError(
            "solver",
            "'auto', 'lbfgs' or the name of an optimizer of torch",
            repr(solver),
            "For example 'adam'.",
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
    """Why the optimizer cannot train weights of the shapes of a layer; empty if it can. Found by a step."""
    import torch

    from mlayer.training.optimizers import optimizer_class

    weights = [torch.nn.Parameter(torch.ones(shape)) for shape in ((2,), (2, 2), (2, 2, 2))]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    try:
        optimizer_class(solver)(weights, lr=1e-3).step()  # type: ignore[call-arg]
    except (RuntimeError, ValueError) as error:
        return str(error).splitlines()[0]
    return ""


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ArgumentTypeError(
            name, "a positive integer", repr(value), "See the documentation of the class."
        )
    if value < 1:
        raise ArgumentError(name, "a positive integer", repr(value), "See the documentation of the class.")
    return int(value)


def _number(name: str, value: object, *, positive: bool = False, below: float = math.inf) -> float:
    words = f"a number {'above' if positive else 'of at least'} 0"
    words += f" and below {below:g}" if math.isfinite(below) else ""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(name, words, repr(value), "See the documentation of the class.")
    number = float(value)
    if not math.isfinite(number) or number < 0 or (positive and number == 0) or number >= below:
        raise ArgumentError(name, words, repr(value), "See the documentation of the class.")
    return number


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    one_of(name, value, known, "See the documentation of the class.")

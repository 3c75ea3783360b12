"""The plan of a fit: the choices of `mlayer fit`, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlayer.checks import brief, flag, integer, number, one_of, several
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.tables.schema import MAX_CATEGORIES
from mlayer.tables.target import AUTO, TASKS

RANDOM, TIME = "random", "time"
SPLITS = (AUTO, RANDOM, TIME)
EFFORTS = ("quick", "default", "thorough")


@dataclass(frozen=True)
class Training:
    """The size of the model and the length of its training; None is left to the estimator.

    Attributes:
        epochs: largest number of passes over the rows.
        time_limit: seconds for the fit; it ends with what it has learned by then.
        effort: of the search for the ridge: "quick", "default" or "thorough".
        matrix_size: n, of the matrix that is exponentiated.
        embedding_size: d, the features that the columns are mapped to.
    """

    epochs: int | None = None
    time_limit: float | None = None
    matrix_size: int | None = None
    embedding_size: int | None = None
    effort: str = "default"

    def __post_init__(self) -> None:
        for name in ("epochs", "matrix_size", "embedding_size"):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), 1)
        if self.time_limit is not None:
            number("time_limit", self.time_limit, above=0)
        one_of("effort", self.effort, EFFORTS, "Leave it out for the default.")


@dataclass(frozen=True)
class Plan:
    """The choices of a fit.

    Attributes:
        target: the column to predict.
        task: "classification", "regression", or "auto" to have it guessed.
        drop: columns to leave out.
        test_share: of the rows, held out for the metrics.
        seed: of the split and of the training.
        max_categories: of a text column; the rest is put together as "other".
        split: "random", "time" (the last dates are held out), or "auto": by time if the target depends on it.
        balanced: weight the classes equally.
        threshold: of two classes, the probability of the positive one from which it is predicted; None for
            half.
        positive: of two classes, the positive one; None: the one for yes, True or the larger number, else the
            rarer one.
        strict: refuse what would otherwise be corrected and reported.
        training: size of the model, epochs, time.
    """

    target: str
    task: str = AUTO
    drop: tuple[str, ...] = ()
    test_share: float = 0.2
    seed: int = 0
    max_categories: int = MAX_CATEGORIES
    strict: bool = False
    split: str = AUTO
    balanced: bool = False
    threshold: float | None = None
    positive: str | None = None
    training: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        one_of("task", self.task, (AUTO, *TASKS), "Leave it out to have it guessed.")
        integer("seed", self.seed, 0)
        integer("max_categories", self.max_categories, 1)
        flag("strict", self.strict)
        flag("balanced", self.balanced)
        one_of("split", self.split, SPLITS, "Leave it out to have it decided.")
        if self.threshold is not None:
            number("threshold", self.threshold, above=0)
            if not self.threshold < 1:
                raise ArgumentError("threshold", "between 0 and 1", f"{self.threshold:g}", "For example 0.3.")
        if not (self.positive is None or isinstance(self.positive, str)):
            raise ArgumentTypeError(
                "positive", "the name of a class, or None", brief(self.positive), "For example 'fraud'."
            )
        drop = several("drop", self.drop, "several names of columns", 'For example ("id",).')
        object.__setattr__(self, "drop", tuple(map(str, drop)))
        if not isinstance(self.target, str):
            raise ArgumentTypeError(
                "target", "the name of a column", brief(self.target), "For example 'price'."
            )
        if not isinstance(self.training, Training):
            raise ArgumentTypeError(
                "training", "a Training", brief(self.training), "Write Training(epochs=...)."
            )

"""The parts of every experiment module, and how it reports its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from torch import nn

from mlayer.experiments.running.provenance import commit
from mlayer.experiments.running.records import read_part, write_part
from mlayer.experiments.running.rows import PaperRow
from mlayer.experiments.shared.pictures import Figure
from mlayer.training import Settings, TrainingResult, train
from mlayer.training.progress import Silent

Scale = Literal["smoke", "default", "full"]
# Called with what is being done, and the part of it that is done (None: not known).
Report = Callable[[str, float | None], None]
Results = dict[str, Any]


class Experiment(Protocol):
    """The parts of an experiment's module.

    Optional: ``QUOTED_FROM``; ``needs(config)``, the names of the real data sets that it reads; for the page
    ``grids(record)``, the paper's tables with our columns, and ``card(record)``, a result for its top.
    """

    TITLE: str
    IN_PAPER: str  # "Figure 2; section 4.1"; before the semicolon nothing if the paper has no such figure
    CAPTION: str  # what is seen in the picture
    SCALES: Mapping[str, Any]  # smoke (seconds), default (minutes, a few take hours), full (the paper's)
    EXPECTED: Mapping[str, Any]  # figures quoted from the paper (else QUOTED_FROM names whom), never ours
    ROWS: tuple[PaperRow, ...]  # its part of the comparison with the paper

    def run(self, config: Any, context: RunContext) -> Results:
        """Train, measure, and return plain data: numbers, strings, lists, dictionaries."""

    def headline(self, results: Results) -> dict[str, float]:
        """The figures for the summary, by their flat names."""

    def plot(self, results: Results) -> Figure:
        """The picture, from the results alone."""


@dataclass(frozen=True)
class RunContext:
    """The surroundings of a run of an experiment, besides its configuration."""

    data: Path | None = None  # the folder of the real data sets; ``$MLAYER_DATA`` if None
    checkpoints: Path | None = None  # the folder of this run's checkpoints, or None
    # the folder for the results of finished parts, or None. Unlike checkpoints they are small, so that they
    # can be copied or committed, and the run resumed on another machine
    parts: Path | None = None
    report: Report | None = None  # called with what is being done
    keeper: Callable[[Results], None] | None = None  # called with what is finished so far, see :meth:`keep`
    models: Path | None = None  # the folder for trained models that are kept, or None
    tasks: tuple[str, ...] | None = None  # the names of the configuration's tasks to be worked on; None: all

    def checkpoint(self, part: str) -> Path | None:
        """The folder for one training of the experiment."""
        return None if self.checkpoints is None else self.checkpoints / part

    def part(self, name: str, make: Callable[[str], Results]) -> Results:
        """The result of ``make(name)``: plain data, made now, or in an earlier run that did not end.

        It says by which commit it was made, so that a result put together from several runs shows it.
        """
        file = None if self.parts is None else self.parts / f"{name}.json"
        if file is not None and file.exists():
            return read_part(file)
        made = make(name) | {"commit": commit()}
        if file is not None:
            write_part(file, made)
        return made

    def wanted(self, task: str, part: str) -> bool:
        """Whether a part of a task belongs into the results now: it was asked for, or is finished."""
        if self.tasks is None or task in self.tasks:
            return True
        return self.parts is not None and (self.parts / f"{part}.json").exists()

    def say(self, what: str, fraction: float | None = None) -> None:
        """Report what is being done."""
        if self.report is not None:
            self.report(what, fraction)

    def keep(self, results: Results) -> None:
        """Write the results of the parts that are finished: what `run` would return if it ended here."""
        if self.keeper is not None:
            self.keeper(results)

    def train(
        self, model: nn.Module, data: Any, settings: Settings, part: str, what: str = "", **more: Any
    ) -> TrainingResult:
        """Train with the checkpoints of this part; the progress calls it ``what``, or by its name."""
        followed, folder = self.follow(what or part), self.checkpoint(part)
        return train(model, data, settings, checkpoint=folder, progress=followed, **more)

    def follow(self, what: str) -> Follow:
        """The progress of one training, for `mlayer.training.train`."""
        return Follow(what, self)


class Follow(Silent):
    """Passes the progress of a training on to the experiment's report."""

    def __init__(self, what: str, context: RunContext) -> None:
        self.what, self.context, self.total = what, context, 0

    def start(self, total_steps: int | None, done: int) -> None:
        """Training begins, or resumes after ``done`` steps."""
        self.total = total_steps or 0
        self.update(done, 1, 0.0)

    def update(self, step: int, epoch: int, loss: float) -> None:
        """Called after some steps."""
        self.context.say(self.what, step / self.total if self.total else None)

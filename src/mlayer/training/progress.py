"""Progress of a run: a bar with loss, metric, rate and time left. The library itself never prints unasked.

Anything with the four methods of :class:`Progress` can be given to :func:`mlayer.training.train`.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

from mlayer.checks import brief, instance
from mlayer.errors import ArgumentTypeError, MissingPackageError
from mlayer.training.result import Record


class Progress(Protocol):
    """The progress of a run; ``update`` is called at most about ten times per second."""

    def start(self, total_steps: int | None, done: int) -> None:
        """Training begins, or resumes after ``done`` steps."""

    def update(self, step: int, epoch: int, loss: float) -> None:
        """Called after some steps; ``loss`` is the mean of the present epoch so far."""

    def epoch(self, record: Record) -> None:
        """An epoch is complete."""

    def stop(self) -> None:
        """Training has ended, for any reason."""


class Silent:
    """Shows nothing; a base for classes that need only some of the methods."""

    def start(self, total_steps: int | None, done: int) -> None:
        """Nothing."""

    def update(self, step: int, epoch: int, loss: float) -> None:
        """Nothing."""

    def epoch(self, record: Record) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


class Bar:
    """A bar on stderr."""

    def __init__(self, title: str = "training", console: Any = None) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        except ImportError:
            raise MissingPackageError("a progress bar", "rich", "pip install rich") from None
        instance("title", title, str, "text", "For example 'training'.")
        instance("console", console, Console | None, "a rich.console.Console or None", "Leave it out.")
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[numbers]}"),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bars = Progress(*columns, console=console or Console(stderr=True), transient=True)
        self._title = title
        self._metrics = ""
        self._task: Any = None

    def start(self, total_steps: int | None, done: int) -> None:
        """Draw the bar."""
        self._bars.start()
        self._task = self._bars.add_task(self._title, total=total_steps, completed=done, numbers="", rate="")

    def update(self, step: int, epoch: int, loss: float) -> None:
        """Move the bar."""
        speed = self._bars.tasks[0].speed
        rate = f"{speed:.0f} steps/s" if speed else ""
        numbers = f"epoch {epoch}  loss {loss:.4g}{self._metrics}"
        self._bars.update(self._task, completed=step, numbers=numbers, rate=rate)

    def epoch(self, record: Record) -> None:
        """Show the validation's numbers from now on."""
        found = {k.removeprefix("validation_"): v for k, v in record.items() if k.startswith("validation_")}
        self._metrics = "".join(f"  val. {name} {value:.4g}" for name, value in found.items())

    def stop(self) -> None:
        """Take the bar away."""
        self._bars.stop()


def as_progress(progress: bool | Progress) -> Progress:
    """True: a bar if stderr is a terminal. False: nothing. Else the caller's own."""
    if progress is True:
        return Bar() if sys.stderr.isatty() else Silent()
    if progress is False:
        return Silent()
    if not all(callable(getattr(progress, name, None)) for name in ("start", "update", "epoch", "stop")):
        raise ArgumentTypeError(
            "progress", "True, False or a Progress", brief(progress), "For example progress=True."
        )
    return progress

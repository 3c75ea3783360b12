"""The clock of a fit: how much time is left, and how far it is, for one bar over all of its parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from mlayer.training.progress import Silent
from mlayer.training.result import Record

# A step on fewer numbers than this (rows times entries of a matrix) is shorter than handing out the work,
# and next to a busy process threads spend their time waiting for each other.
_NUMBERS_WORTH_THREADS = 4_000_000


class OutOfTimeError(Exception):
    """The time of this part of a fit is over; what has been learned so far counts."""


class Watch:
    """Time and progress of one fit, given to it as ``estimator._watch``.

    Args:
        seconds: for the whole fit, from now on; None for no limit.
        report: called with the part that is done, from 0 to 1, and what is being done.
    """

    def __init__(
        self, seconds: float | None = None, report: Callable[[float, str], None] | None = None
    ) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self._report = report
        self._from, self._to, self._text = 0.0, 1.0, ""

    @property
    def left(self) -> float | None:
        """Seconds, at least 0; None without a limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @contextmanager
    def part(self, start: float, end: float, text: str, time_share: float = 1.0) -> Iterator[None]:
        """A part of the fit: its place on the bar, and the share of the time left that it may take."""
        before = (self._from, self._to, self._text, self._end)
        self._from, self._to, self._text = start, end, text
        if self._end is not None:
            self._end = time.monotonic() + time_share * (self._end - time.monotonic())
        try:
            self.tell(0.0)
            yield
        finally:
            self._from, self._to, self._text, self._end = before

    @contextmanager
    def section(self, start: float, end: float) -> Iterator[None]:
        """A section of the present part, by its share of it: without a text or a time."""
        width = self._to - self._from
        with self.part(self._from + start * width, self._from + end * width, self._text):
            yield

    def tell(self, done: float) -> None:
        """The present part is done to this share, from 0 to 1."""
        if self._report is not None:
            self._report(self._from + min(1.0, done) * (self._to - self._from), self._text)

    def check(self) -> None:
        """Raise if the time is over."""
        if self.left == 0.0:
            raise OutOfTimeError


class Listener(Silent):
    """Passes the training loop's progress to a watch; keeps the history in case the time runs out.

    ``shown``: whether the progress of this run is that of the present part; else only the time is looked at.
    """

    def __init__(self, watch: Watch, *, shown: bool = True) -> None:
        self._watch, self._shown = watch, shown
        self._total = 1
        self.history: list[Record] = []
        self.steps = 0

    def start(self, total_steps: int | None, done: int) -> None:
        """A run begins."""
        self._total = max(1, total_steps or 1)
        self.steps = done

    def update(self, step: int, epoch: int, loss: float) -> None:
        """Called after some steps."""
        del epoch, loss
        self.steps = step
        if self._shown:
            self._watch.tell(step / self._total)
        self._watch.check()

    def epoch(self, record: Record) -> None:
        """An epoch is complete."""
        self.history.append(record)
        self.update(int(record["step"]), int(record["epoch"]), float(record["loss"]))


@contextmanager
def suitable_threads(rows: int, matrix_size: int) -> Iterator[None]:
    """One thread for small work, torch's and NumPy's alike; the process's own number otherwise."""
    threads = torch.get_num_threads()
    if threads == 1 or rows * matrix_size**2 >= _NUMBERS_WORTH_THREADS:
        yield
        return
    torch.set_num_threads(1)
    try:
        # NumPy and SciPy each bring a BLAS with threads that wait for one another on a busy machine.
        with threadpool_limits(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)

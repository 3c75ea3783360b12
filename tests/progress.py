"""A pytest plugin: how many tests are done and about how long the rest will take, instead of dots.

make test uses it. On a terminal one line that is rewritten, elsewhere a line every half minute.
"""

from __future__ import annotations

import sys
import time

import pytest

_EVERY = {True: 1.0, False: 30.0}  # seconds between two lines, on a terminal or not


class Progress:
    """Counts finished tests in the process that prints."""

    def __init__(self) -> None:
        self.total = self.done = self.failed = 0
        self.begun = self.shown = time.monotonic()  # clock: what is shown
        self.rewrites = sys.stdout.isatty()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.total = len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.total = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Counted as ever, but without a letter."""
        return ("passed", "", "") if report.passed and report.when == "call" else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed += 1
        if report.when == "teardown":
            if not self.done:
                self.begun = time.monotonic()  # clock: collecting and importing are over
            self.done += 1
        now = time.monotonic()  # clock: what is shown
        if self.done and now - self.shown >= _EVERY[self.rewrites]:
            self.shown = now
            self.show(now - self.begun)

    def show(self, elapsed: float) -> None:
        text = line(self.done, self.total, self.failed, elapsed)
        sys.stdout.write(f"\r{text:<70}" if self.rewrites else f"{text}\n")
        sys.stdout.flush()


def line(done: int, total: int, failed: int, elapsed: float) -> str:
    """The words; the tests that are left are taken to be like those that are done."""
    left = elapsed * (total - done) / done if done else 0.0
    failures = f", {failed} failed" if failed else ""
    return f"{done:,} of {total:,} tests{failures}, {_clock(elapsed)}, about {_clock(left)} left"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # not in the parallel workers
        config.pluginmanager.register(Progress(), "progress line")

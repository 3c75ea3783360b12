"""Printing: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

SHOWN = 12


def say(text: str, quiet: bool = False) -> None:
    """A line on stderr."""
    if not quiet:
        click.echo(text, err=True)


def remarks(lines: Iterable[object], quiet: bool = False) -> None:
    """What was done with a table, on stderr."""
    lines = list(map(str, lines))
    for line in lines[:SHOWN]:
        say(f"  {line}", quiet)
    if len(lines) > SHOWN:
        say(f"  and {len(lines) - SHOWN} more (all in --json and in the report)", quiet)


def emit_json(content: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False))


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, err: bool = False, words: bool = False
) -> None:
    """A table; the first column left, the others right unless they are ``words``."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(header_style="bold")
    for place, name in enumerate(header):
        grid.add_column(Text(name), justify="left" if words or place == 0 else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))  # Text: brackets in names are no markup
    Console(file=sys.stderr if err else sys.stdout).print(grid)


def metrics_table(columns: Mapping[str, Mapping[str, float]], *, err: bool = False) -> None:
    """Metrics by name, one column for each of ``columns``."""
    names = list(dict.fromkeys(name for values in columns.values() for name in values))
    rows = [[n, *(f"{v[n]:.4g}" if n in v else "" for v in columns.values())] for n in names]
    table(["metric", *columns], rows, err=err)


class Bar:
    """A progress bar on stderr where that is a terminal; silent elsewhere."""

    def __init__(self, progress: Any, task: Any) -> None:
        self.progress, self.task = progress, task

    def update(self, done: float, total: float | None, text: str) -> None:
        """So much is done."""
        if self.progress is not None:
            self.progress.update(self.task, completed=done, total=total, description=text)


def wants_bar(quiet: bool) -> bool:
    """Is there somebody to see one?"""
    return not quiet and sys.stderr.isatty()


@contextmanager
def bar(text: str, quiet: bool) -> Iterator[Bar]:
    """A bar for the time of a block."""
    if not wants_bar(quiet):
        yield Bar(None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bar(progress, progress.add_task(text, total=None))

"""Printing: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import click

SHOWN = 12
SECONDS_BETWEEN_LINES = 3.0


def say(text: str, quiet: bool = False) -> None:
    """A line on stderr. One that cannot be written, as on a full disk, does not stop the work."""
    if quiet:
        return
    try:
        click.echo(line(short(text)), err=True)
    except BrokenPipeError:  # nobody reads on, as in `2>&1 | head`
        raise
    except OSError:
        pass


@contextmanager
def printing() -> Iterator[None]:
    """A block that writes to stdout: if that fails, as on a full disk, the error says so."""
    try:
        yield
    except BrokenPipeError:  # nobody reads on, as in `| head`
        raise
    except OSError as error:
        raise StdoutError(error.strerror or str(error)) from error


class StdoutError(Exception):
    """Standard output cannot be written; files that were written before are whole."""


def out(text: str) -> None:
    """A line on stdout."""
    with printing():
        click.echo(line(text))


def line(text: str) -> str:
    r"""One line for a terminal: what would end it, move the cursor, color or turn the text is written out.

    Names of columns, values and files come from others. All that is printed goes through this function, but
    for text of several lines of ours (:func:`plain`), rows of a table (:func:`results`) and JSON.

    >>> line("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    """
    return "".join(c if _is_harmless(c) else ascii(c)[1:-1] for c in text)


def plain(text: str) -> str:
    """The same for text of several lines: line ends and tabs stay."""
    return "".join(c if c in "\n\t" else line(c) for c in text)


def short(text: str, most: int = 4000) -> str:
    """Text of a sensible length: names and cells of others may have a million characters.

    >>> short("abcdef", 3)
    'abc... (6 characters)'
    """
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def _is_harmless(character: str) -> bool:
    """Neither a control character, nor one that turns or hides text, nor half of a pair."""
    return character.isprintable() or unicodedata.category(character) in ("Zs", "Cn", "Co")


class _RowStream:
    """Stdout for rows of a table, where it is a file or a pipe."""

    def write(self, text: str) -> int:
        with printing():
            return sys.stdout.write(text)

    @staticmethod
    def flush() -> None:
        with printing():
            sys.stdout.flush()


class _Terminal(_RowStream):
    """Stdout for rows of a table, where it is a terminal: one line for each row."""

    def __init__(self) -> None:
        self.inside = False  # quotes: a line end there belongs to a cell, which must not look like a row

    def write(self, text: str) -> int:
        for place, part in enumerate(text.split('"')):
            if place:
                self.inside = not self.inside
                super().write('"')
            super().write(line(part) if self.inside else plain(part))
        return len(text)


def results() -> Any:
    """The stream for rows of a table: a file or a pipe gets them unchanged, a terminal as :func:`line`."""
    return _Terminal() if sys.stdout.isatty() else _RowStream()


def remarks(lines: Iterable[object], quiet: bool = False) -> None:
    """Print the notes about a table to stderr."""
    texts = list(map(str, lines))
    for each in texts[:SHOWN]:
        say(f"  {each}", quiet)
    if len(texts) > SHOWN:
        say(f"  and {len(texts) - SHOWN} more (all in --json and in the report)", quiet)


def emit_json(content: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
    # JSON's own escapes, so that it says the same.
    with printing():
        click.echo("".join(c if c == "\n" or _is_harmless(c) else json.dumps(c)[1:-1] for c in text))


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, err: bool = False, words: bool = False
) -> None:
    """A table; the first column left, the others right unless they are ``words``."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(header_style="bold")
    for place, name in enumerate(header):
        grid.add_column(Text(line(name)), justify="left" if words or place == 0 else "right", overflow="fold")
    for row in rows:
        grid.add_row(
            *(Text(line(short(cell, 1000))) for cell in row)
        )  # Text: brackets in names are no markup
    with suppress(OSError) if err else printing():
        Console(file=sys.stderr if err else sys.stdout).print(grid)


def metrics_table(columns: Mapping[str, Mapping[str, float]], *, err: bool = False) -> None:
    """Metrics by name, one column for each of ``columns``."""
    from mlayer.tables.metrics import readable

    names = list(dict.fromkeys(name for values in columns.values() for name in values))
    rows = [[n, *(readable(v[n]) if n in v else "" for v in columns.values())] for n in names]
    table(["metric", *columns], rows, err=err)


# Shows the progress of a command: how much is done, of how much (None: unknown), and what is being done.
ProgressBar = Callable[[float, float | None, str], None]


class _Lines:
    """A line every few seconds, where nothing can be redrawn: a file, a pipe, a notebook.

    The lines of a run of hours come once a minute: the pause grows with the time that has passed.
    """

    def __init__(self) -> None:
        self.begun = self.last = time.monotonic()

    def __call__(self, done: float, total: float | None, text: str) -> None:
        now = time.monotonic()
        pause = min(max(SECONDS_BETWEEN_LINES, 0.02 * (now - self.begun)), 20 * SECONDS_BETWEEN_LINES)
        if now - self.last >= pause:
            self.last = now
            part = f"{done / total:4.0%}  " if total else ""
            say(f"{part}{text}  {timedelta(seconds=int(now - self.begun))}")  # as the bar writes it


@contextmanager
def bar(text: str, quiet: bool) -> Iterator[ProgressBar]:
    """A bar for the time of a block: redrawn on a terminal, elsewhere a line every few seconds."""
    if quiet:
        yield lambda done, total, text: None
        return
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(line(text), total=None)
        yield lambda done, total, text: progress.update(
            task, completed=done, total=total, description=line(text)
        )


def by_part(shown: ProgressBar) -> Callable[[str, float | None], None]:
    """The same for experiments, which say what they do and the part of it that is done, if it is known."""
    return lambda what, part: shown(part or 0.0, None if part is None else 1.0, what)

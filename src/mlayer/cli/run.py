"""Runs a command and turns whatever goes wrong into a sentence on stderr and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from io import StringIO
from typing import Any

import click

from mlayer.cli.group import ReaderGone, mlayer
from mlayer.cli.show import StdoutError, line, plain, short
from mlayer.disk import new_files
from mlayer.errors import MLayerError, in_one_line

DONE, BUG, MISTAKE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of `mlayer ARGUMENTS`."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in arguments
    try:
        with warnings.catch_warnings(), new_files() as written:
            warnings.showwarning = _warn  # type: ignore[assignment] # which names the places that are left out
            result = mlayer.main(args=list(arguments), prog_name="mlayer", standalone_mode=False)
    except click.ClickException as error:
        words, message = StringIO(), error.format_message()
        error.show(words)
        _tell(plain(words.getvalue().rstrip("\n").replace(message, line(short(message)))))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("stopped; no file was left half-written", debug)
        return INTERRUPTED
    except (ReaderGone, BrokenPipeError):
        _no_more_output()
        return BROKEN_PIPE
    except StdoutError as error:
        kept = f"; written before: {', '.join(map(str, written))}" if written else "; no file was written"
        _say(f"standard output cannot be written ({in_one_line(error)}){kept}", debug)
        _no_more_output()
        return MISTAKE
    except (MLayerError, OSError) as error:
        _say(_words(error), debug)
        return MISTAKE
    except Exception as error:
        if _out_of_memory(error):
            _say(
                "out of memory. Use fewer rows, for example --rows 100000, fewer columns, or a smaller model "
                "(--matrix-size, --embedding-size).",
                debug,
            )
            return MISTAKE
        _say(f"a bug in mlayer: {type(error).__name__}: {in_one_line(error)}", debug)
        _tell("Please report it, with what --debug shows.")
        return BUG
    return result if isinstance(result, int) else DONE


def _no_more_output() -> None:
    """Nobody reads stdout: the interpreter would complain once more when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _out_of_memory(error: Exception) -> bool:
    """Torch's allocators raise a RuntimeError, recognized by its message alone."""
    words = ("not enough memory", "out of memory", "allocate memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
    )


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def _say(text: str, debug: bool) -> None:
    if debug:
        _tell(plain(short(traceback.format_exc(), 100_000)))
    _tell(line(short(f"mlayer: {text}")))


def _tell(text: str) -> None:
    with suppress(OSError):  # nobody reads stderr, or its disk is full: the exit code says it too
        click.echo(text, err=True)


def _warn(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """A warning as one line, without the place in our source; its text may quote a name of others."""
    del place
    _tell(line(short(f"mlayer: {category.__name__}: {message}")))

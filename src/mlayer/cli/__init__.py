"""The command line. Thin: parses, calls, prints. Until a command runs, only click is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

_INSTALL = (
    "mlayer: the command line needs the package {}, which is not installed. "
    "Install it: pip install 'mlayer[cli]'\n"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 a bug, 2 a mistake of the user, 130 Ctrl-C.

    Also 1: `check-proof` refused a row.

    Args:
        arguments: in place of those of the process.
    """
    _open_closed_streams()
    os.environ["MPLBACKEND"] = "agg"  # pictures go to files; a name of another Python's is refused
    try:
        from mlayer.cli.run import run
    except KeyboardInterrupt:
        return 130
    except ImportError as error:
        if error.name is None or error.name.startswith("mlayer"):
            raise
        sys.stderr.write(_INSTALL.format(error.name))
        return 2
    return run(arguments)


def _open_closed_streams() -> None:
    """Let what was closed (`mlayer ... >&-`) lead nowhere.

    Python has None in its place, and the next file that is opened would get its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the end

"""The command line. Thin: parses, calls, prints. Until a command runs, only click is imported."""

from __future__ import annotations

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
    try:
        import click  # noqa: F401
    except ImportError as error:
        sys.stderr.write(_INSTALL.format(error.name))
        return 2
    from mlayer.cli.run import run

    return run(arguments)

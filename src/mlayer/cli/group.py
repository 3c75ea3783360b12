"""The group `mlayer`: a table of commands, each in its own file that is imported when used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mlayer.checks import did_you_mean
from mlayer.cli.show import printing
from mlayer.version import __version__

# Name: (file in cli/commands, what the list of commands says). A new command is one more line here.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("demo", "Train, plot, certify and write a page in under a minute."),
    "fit": ("fit", "Fit a model to a csv or parquet table; write a model file and a report."),
    "predict": ("predict", "Predict the rows of a table."),
    "info": ("info", "Show what a model file holds."),
    "certify": ("certify", "Prove how far each row of a table may move before its class changes."),
    "certify-images": ("certify_images", "Certify a network of images that an experiment kept."),
    "check-proof": ("check_proof", "Check the proof that certify wrote, with an independent program."),
    "explain": ("explain", "Print the formula of a model."),
    "export": ("export", "Write a model as ONNX."),
    "reproduce": ("reproduce", "Run an experiment of the paper, or all; write figures and a report."),
    "bench": ("bench", "Measure speed relative to torch (and JAX, TensorFlow if installed)."),
    "completion": ("completion", "Print a script that completes commands and columns in your shell."),
}


class ReaderGone(Exception):  # noqa: N818 - not an error: the reader closed the pipe
    """The other end of our output was closed."""


class LazyGroup(click.Group):
    """Knows its commands by name and says what they do without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of the table, which is that of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's file."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mlayer.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; click itself would end the process with code 1 where a pipe is closed.

        It would also take an EOFError for Ctrl-C at a prompt. No command prompts: a file ended too early.
        """
        try:
            result = super().invoke(ctx)
            with printing():
                sys.stdout.flush()
            return result
        except BrokenPipeError:
            raise ReaderGone from None
        except EOFError as error:
            if "marshal" in str(
                error
            ):  # on a full disk Python writes truncated .pyc files and later loads them
                raise OSError(
                    f"a file of compiled Python is damaged ({error}). Delete the folders __pycache__ of "
                    f"mlayer ({Path(__file__).parents[1]}), and of other packages if that does not help."
                ) from error
            raise OSError(f"a file ends before it should ({error}). Get it again.") from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a hint for a misspelled one."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            hint = did_you_mean(args[0], COMMANDS, f"The commands are: {', '.join(COMMANDS)}.")
            raise click.UsageError(f"no command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Two commands from a table to predictions:  mlayer fit data.csv --target price;  "
    "mlayer predict data.safetensors new.csv -o out.csv",
)
@click.version_option(__version__, prog_name="mlayer", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def mlayer(debug: bool) -> None:
    """The M-layer: learning with the exponential of one matrix."""
    del debug  # looked for by cli/run.py, wherever it stands

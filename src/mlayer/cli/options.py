"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from mlayer.checks import did_you_mean, file_path
from mlayer.cli.show import line, say
from mlayer.disk import beside, followed, keep_new
from mlayer.errors import ArgumentError, MissingPackageError

if TYPE_CHECKING:
    from pandas import DataFrame

    from mlayer.tables import Source, TableModel


class Mistake(click.ClickException):
    """A user error found before any work is done: one sentence, exit code 2, no usage text."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error like all other mistakes."""
        click.echo(f"mlayer: {self.message}", file=file, err=file is None)


class NamedChoice(click.Choice[str]):
    """One of several words; the error for a misspelled one lists them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The choice; an error names the nearest one."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            raise click.BadParameter(
                f"{error.message.rstrip('.')}. {did_you_mean(str(value), self.choices, '')}".strip(),
                ctx,
                param,
            ) from None


F = TypeVar("F", bound=Callable[..., Any])


class _File(click.Path):
    """A path; an empty one, or a NUL in it, is a user error, which the system reports as an invalid value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path as a pathlib.Path."""
        try:
            file_path("it", value)
        except ArgumentError as error:
            raise click.BadParameter(str(error), ctx, param) from None
        return super().convert(value, param, ctx)


FILE = _File(path_type=Path)


def common(function: F) -> F:
    """--quiet, --json and --debug."""
    function = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")(function)
    function = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)
    return click.option("-q", "--quiet", is_flag=True, help="Print errors and results only.")(function)


norm = click.option(
    "--norm",
    type=NamedChoice(["linf", "l2"]),
    default="linf",
    show_default=True,
    help="Norm of a change of the row.",
)
unit = click.option(
    "--unit",
    "units",
    multiple=True,
    metavar="COLUMN=NUMBER",
    help="The change of COLUMN that a radius of 1 means.",
)
first_rows = click.option("--rows", type=click.IntRange(min=1), help="Use the first rows only.")
spreadsheet = click.option(
    "--spreadsheet", is_flag=True, help="Mark text that a spreadsheet would run as a formula."
)
force = click.option("--force", is_flag=True, help="Replace an existing file.")


@dataclass(frozen=True)
class TableFormat:
    """The format of a text table, as far as the user has given it."""

    delimiter: str | None
    decimal: str | None
    encoding: str | None

    def open(self, table: Path, quiet: bool) -> Source:
        """The table, and a line that says how it was read."""
        from mlayer.tables import open_table

        source = open_table(table, delimiter=self.delimiter, decimal=self.decimal, encoding=self.encoding)
        say(source.description, quiet)
        return source

    def rows(self, table: Path, model: TableModel, count: int | None, quiet: bool) -> DataFrame:
        """The rows that a model is applied to, or the first ones; not the lines of totals at their end."""
        from mlayer.tables.totals import without_totals

        frame = self.open(table, quiet).read(count, text=model.text_columns)
        frame, remarks = without_totals(frame, fewest=1, features=model.schema.features)
        for remark in remarks:
            say(f"  {remark}", quiet)
        return frame


def reading(function: Callable[..., Any]) -> Callable[..., Any]:
    """--delimiter, --decimal and --encoding, which the command gets as one argument, ``table_format``."""

    @wraps(function)
    def call(*, delimiter: str | None, decimal: str | None, encoding: str | None, **others: Any) -> Any:
        return function(table_format=TableFormat(delimiter, decimal, encoding), **others)

    call = click.option("--encoding", help="Encoding of a text table; default: UTF-8, else cp1252.")(call)
    call = click.option("--decimal", help="'.' or ','; guessed if not given.")(call)
    return click.option(
        "--delimiter", help="comma, semicolon, tab, pipe or any character; guessed if not given."
    )(call)


def column_numbers(pairs: tuple[str, ...]) -> dict[str, float]:
    """The values of --unit, by column."""
    units = {}
    for pair in pairs:
        name, equals, value = pair.rpartition("=")
        try:
            units[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise Mistake(f"--unit must be COLUMN=NUMBER; got {pair!r}. For example --unit age=1")
    return units


def check_order(model: Path, table: Path | None) -> None:
    """Whether model and table were given in the wrong order."""
    if table is not None and table.suffix == ".safetensors" and model.suffix != ".safetensors":
        raise Mistake(f"the model comes first, then the table; got {model} and {table}. Change their order")


def require(*packages: str) -> None:
    """Raise if packages of the extra are missing, before any work is done."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingPackageError("this command", package, "pip install 'mlayer[cli]'")


def check_name(path: Path) -> None:
    """Raise if the name of another file cannot be made from this one, as from "." and "/"."""
    if path.name in ("", ".."):
        raise Mistake(f"{path} is a folder; name a file")


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None] | None = None, *, force: bool
) -> None:
    """Raise unless all files can be written, none over another one, before any work is done.

    Args:
        outputs: by option, for example "--report"; None is one that is not wanted.
        inputs: by what they are, for example "table".
        force: whether existing files may be replaced.
    """
    wanted = {option: path for option, path in outputs.items() if path is not None}
    for place, (option, path) in enumerate(wanted.items()):
        for name, given in (inputs or {}).items():
            if given is not None and _same(path, given):
                raise Mistake(f"{path} is the {name} itself; use {option} for another name")
        for other, earlier in list(wanted.items())[:place]:
            if _same(path, earlier):
                raise Mistake(f"{path} is given for both {other} and {option}; choose another name for one")
    for option, path in wanted.items():
        try:
            _check_output(option, path, force)
        except OSError as error:
            why = error.strerror or error
            raise Mistake(f"cannot write {path}: {why}. Use {option} for another place") from None


def _check_output(option: str, path: Path, force: bool) -> None:
    path = followed(path)  # the file behind a link is what will be replaced
    if path.is_dir():
        raise Mistake(f"{path} is a folder; name a file")
    if not path.parent.is_dir():
        raise Mistake(f"there is no folder {path.parent}; create it first")
    if path.exists() and not force:
        raise Mistake(f"{path} exists; use --force to replace it, or {option} for another name")
    if path.exists() and not path.is_file():
        raise Mistake(f"{path} is not a regular file; use {option} for another name")
    with beside(path):  # made and removed as it will be written
        pass
    if not force:
        keep_new(path)


def _same(one: Path, other: Path) -> bool:
    """Whether both paths lead to one file, through any links."""
    try:
        return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))
    except (OSError, RuntimeError):  # cannot be asked for, as links in a circle: opening it will say why
        return False


def complete_columns(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Column names of the table that is already on the line, for the shell's completion."""
    del parameter
    # While an option waits for its value click has not sorted the arguments yet.
    table = ctx.params.get("table") or next((word for word in ctx.args if Path(word).is_file()), None)
    if table is None:
        return []
    try:
        from mlayer.tables.reader.source import open_table

        names = open_table(table).columns
        # The shell gets one name per line, and shows them: none that would be two lines, or an escape.
        return [name for name in names if name.startswith(incomplete) and line(name) == name]
    except Exception:  # no tracebacks in a shell while the user types
        return []

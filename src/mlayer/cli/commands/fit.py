"""`mlayer fit`: from a table to a model file and a report."""

from __future__ import annotations

import os
import shlex
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlayer.cli import show
from mlayer.cli.options import (
    FILE,
    Mistake,
    NamedChoice,
    TableFormat,
    check_name,
    check_outputs,
    common,
    complete_columns,
    reading,
    require,
)

if TYPE_CHECKING:
    from mlayer.tables import TableModel

# The report takes about this part of what the start of the process took, on a busy machine as on an idle one.
_REPORT_SHARE = 0.6
# The least part of a time limit that a fit gets, however long the start took.
_LEAST_SHARE = 0.05


@click.command("fit")
@click.argument("table", type=FILE)
@click.option("-t", "--target", required=True, shell_complete=complete_columns, help="The column to predict.")
@click.option("-o", "--output", type=FILE, help="The model file; default: TABLE's name with .safetensors.")
@click.option("--report", type=FILE, help="The report; default: the model's name with .html.")
@click.option("--no-report", is_flag=True, help="Write no report.")
@click.option(
    "--task",
    type=NamedChoice(["auto", "classification", "regression"]),
    default="auto",
    help="Default: guessed from the target.",
)
@click.option(
    "--drop", multiple=True, shell_complete=complete_columns, help="A column to leave out; may be repeated."
)
@click.option(
    "--rows", type=click.IntRange(1), help="Read only the first N rows; the table may have any size."
)
@click.option(
    "--test-share", type=float, default=0.2, show_default=True, help="Share of the rows that is held out."
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed of the split and the training.",
)
@click.option("--epochs", type=click.IntRange(1), help="Maximum epochs (small tables: iterations of L-BFGS).")
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), help="Seconds for the whole command.")
@click.option(
    "--effort",
    type=NamedChoice(["quick", "default", "thorough"]),
    default="default",
    show_default=True,
    help="Effort of the search for the ridge penalty.",
)
@click.option(
    "--split",
    type=NamedChoice(["auto", "random", "time"]),
    default="auto",
    show_default=True,
    help="How rows are held out: at random, or the last dates; auto: by time if the target depends on it.",
)
@click.option("--balanced", is_flag=True, help="Weight the classes so that all have the same total weight.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Two classes: predict the positive one at this probability or above; default: 0.5.",
)
@click.option(
    "--positive",
    help="Two classes: the positive one; default: the one for yes, else the rarer (of numbers the larger).",
)
@click.option(
    "--matrix-size", type=click.IntRange(1), help="n, the size of the matrix that is exponentiated."
)
@click.option("--embedding-size", type=click.IntRange(1), help="d, the number of features of the embedding.")
@click.option(
    "--max-categories",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="Maximum number of categories of a text column.",
)
@click.option("--strict", is_flag=True, help="Refuse columns and cells that would be left out or corrected.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@reading
@common
def command(  # noqa: PLR0917 - click passes them by name
    table: Path,
    output: Path | None,
    report: Path | None,
    no_report: bool,
    rows: int | None,
    time_limit: float | None,
    force: bool,
    table_format: TableFormat,
    quiet: bool,
    as_json: bool,
    **choices: Any,
) -> None:
    """Fit a model to TABLE (csv or parquet).

    Numbers, Booleans, dates and text are encoded as numbers. The encoding is reported and stored in the model
    file, so that `mlayer predict` takes the raw table. Some rows are held out; the metrics are measured on
    them.
    """
    require("rich", "pandas", "pyarrow", "sklearn", *([] if no_report else ["matplotlib"]))
    model_file = output or Path(_stem(table) + ".safetensors")
    check_name(model_file)
    page_file = None if no_report else report or model_file.with_suffix(".html")
    check_outputs({"-o": model_file, "--report": page_file}, {"table": table}, force=force)

    from mlayer.tables import Plan, Training, fit_table, read_with_target

    source = table_format.open(table, quiet)
    labeled = read_with_target(source, choices["target"], choices["task"], rows)
    if rows is not None:
        show.say(f"the first {rows} rows only, because of --rows; they are not a random sample", quiet)
    # The other options have the names of the fields of Training and Plan.
    sizes = {field.name: choices.pop(field.name) for field in fields(Training) if field.name in choices}
    plan = Plan(training=Training(time_limit=_time_left(time_limit, page_file), **sizes), **choices)
    with show.bar("fitting", quiet) as bar:
        result = fit_table(
            labeled,
            plan,
            on_stage=lambda text: show.say(text, quiet),
            on_progress=lambda part, text: bar(part, 1.0, text),
        )
    _save(result.model, model_file)
    if page_file is not None:
        from mlayer.report import fit_page

        try:
            fit_page(result, source.description, model_file).save(page_file)
        except OSError as error:
            raise Mistake(f"the model was kept, {model_file}; the report failed: {error}") from None

    show.remarks(result.remarks, quiet)
    if as_json:
        files = {"source": source.description, "model": str(model_file)}
        files |= {} if page_file is None else {"report": str(page_file)}
        show.emit_json(result.summary() | files)
        return
    show.out(result.verdict)
    show.metrics_table({"model": result.metrics, "best constant": result.baseline})
    show.out(f"model   {model_file}")
    if page_file is not None:
        show.out(f"report  {page_file}")
    # To be copied into a shell: the name of the file comes from others.
    show.say(f"next:   mlayer predict {shlex.quote(str(model_file))} TABLE -o predictions.csv", quiet)


def _save(model: TableModel, file: Path) -> None:
    """Save the model; in another place if its own can no longer be written: the training is not lost."""
    try:
        model.save(file)
    except OSError as error:
        try:
            place = Path(tempfile.mkdtemp(prefix="mlayer-")) / file.name
            model.save(place)
        except OSError:
            raise error from None
        raise Mistake(f"{error} The model was kept in {place}") from None


def _time_left(limit: float | None, page: Path | None) -> float | None:
    """Seconds for the fit itself: the limit is for the command, from the start of the process."""
    if limit is None:
        return None
    start = _process_seconds()
    reserve = _REPORT_SHARE * start if page is not None else 0.0
    return max(_LEAST_SHARE * limit, limit - start - reserve)


def _process_seconds() -> float:
    """The seconds since this process started; 0 where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        up = float(Path("/proc/uptime").read_text().split()[0])
        return max(0.0, up - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def _stem(table: Path) -> str:
    """The name without its endings: data.csv.gz -> data."""
    name = table.name.removesuffix(".gz")
    return name.rpartition(".")[0] or name

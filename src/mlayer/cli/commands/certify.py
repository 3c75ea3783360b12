"""`mlayer certify`: how far each row may move until its class changes, or where its prediction stays."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlayer.certificates.bounds.methods import names
from mlayer.cli import options, show
from mlayer.cli.options import (
    FILE,
    Mistake,
    NamedChoice,
    TableFormat,
    check_order,
    check_outputs,
    column_numbers,
    common,
    reading,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from mlayer.tables.certify.intervals import IntervalRows

METHODS = names()[::-1]
SHOWN = 10


@click.command("certify")
@click.argument("model", type=FILE)
@click.argument("table", type=FILE)
@click.option("-o", "--output", type=FILE, help="A .csv file for the certificates of all rows.")
@click.option("--eps", type=float, help="Decide only whether rows are certified at this radius; faster.")
@options.norm
@click.option(
    "--method",
    type=NamedChoice(METHODS),
    default="best",
    show_default=True,
    help="The bound; best tries several.",
)
@options.unit
@click.option(
    "--vary", multiple=True, metavar="COLUMN", help="Regression: let this column take every category."
)
@click.option("--rigorous", is_flag=True, help="Check each claim again in ball arithmetic (python-flint).")
@click.option(
    "--proof",
    type=FILE,
    help="A .safetensors file for the proof, which `mlayer check-proof` checks; implies --rigorous.",
)
@options.first_rows
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Number of threads."
)
@options.spreadsheet
@options.force
@reading
@common
def command(  # noqa: PLR0917 - click gives them by name
    model: Path,
    table: Path,
    output: Path | None,
    eps: float | None,
    norm: str,
    method: str,
    units: tuple[str, ...],
    vary: tuple[str, ...],
    rigorous: bool,
    proof: Path | None,
    rows: int | None,
    workers: int,
    spreadsheet: bool,
    force: bool,
    table_format: TableFormat,
    quiet: bool,
    as_json: bool,
) -> None:
    """Prove for each row of TABLE how far its numbers may move before the class that MODEL predicts changes.

    A radius of 0.01 means: all numbers and dates may change at once, each by one hundredth of its range in
    the training table (or of the --unit given). Categories do not change.

    For a regression MODEL: the interval in which each prediction stays while numbers and dates change by
    up to --eps of their ranges or units, and the columns given by --vary take each of their categories.

    A proof is about these rows, this norm and these units. Keep --rows, --norm and --unit with the file:
    `mlayer check-proof` must be given the same, and refuses a proof about anything else.
    """
    check_order(model, table)
    given = column_numbers(units)
    if eps is not None and not 0 <= eps < math.inf:
        raise Mistake(f"--eps must be a finite number of at least 0; got {eps}. For example --eps 0.01")
    if output is not None and output.suffix.lower() != ".csv":
        raise Mistake(f"-o must be a file ending in .csv; got {output.name}")
    if proof is not None and proof.suffix.lower() != ".safetensors":
        raise Mistake(f"--proof must be a file ending in .safetensors; got {proof.name}")
    check_outputs({"-o": output, "--proof": proof}, {"table": table, "model": model}, force=force)
    from mlayer.tables import load_table_model
    from mlayer.tables.certify.certify_table import certify_table

    loaded = load_table_model(model)
    if not loaded.target.classifies:
        refused = {"--norm": norm != "linf", "--method": method != "best", "--rigorous": rigorous}
        wrong = [
            name for name, given_here in (refused | {"--proof": proof is not None}).items() if given_here
        ]
        if wrong:
            raise Mistake(f"{wrong[0]} is for classifiers; {model.name} is a regression model")
        if eps is None:
            raise Mistake(
                "--eps must be given for a regression model: how far the numbers may move, as a share of "
                "their range. For example --eps 0.01"
            )
    elif vary:
        raise Mistake(f"--vary is for regression models; {model.name} is a classifier")
    frame = table_format.rows(table, loaded, rows, quiet)
    if not loaded.target.classifies and eps is not None:
        from mlayer.tables.certify.intervals import interval_table

        with show.bar("bounding", quiet) as bar:
            intervals = interval_table(
                loaded,
                frame,
                eps=eps,
                units=given,
                vary=vary,
                progress=lambda k, n: bar(k, n, f"{k} of {n} rows"),
            )
        _report_intervals(intervals, output, spreadsheet, quiet, as_json)
        return
    with show.bar("certifying", quiet) as bar:
        done = certify_table(
            loaded,
            frame,
            eps=eps,
            norm=norm,
            method=method,
            units=given,
            rigorous=rigorous,
            proof=proof is not None,
            progress=lambda k, n: bar(k, n, f"{k} of {n} rows"),
            workers=workers,
        )
    show.remarks(done.remarks, quiet)
    _write(done.frame, output, spreadsheet)
    if proof is not None and done.certificates.proof is not None:
        done.certificates.proof.save(proof)
    summary = done.summary()
    if as_json:
        files = {
            name: None if path is None else str(path) for name, path in (("output", output), ("proof", proof))
        }
        show.emit_json(summary | {"units": dict(done.units)} | files)
        return
    for name, unit in list(done.units.items())[:SHOWN]:
        show.say(f"  a radius of 1 moves {name} by {unit:g}", quiet)
    middle = summary["median_radius"]
    show.out(f"{summary['rows']} rows, {summary['correct']} classified correctly")
    if eps is not None:
        show.out(f"certified at {eps:g} ({norm}): {summary['certified']} rows")
    elif middle is not None:
        show.out(f"median certified radius ({norm}): {middle:.4g}")
    if summary["unlimited"]:
        show.out(f"{summary['unlimited']} rows keep their class whatever the change")
    if proof is not None:
        show.out(f"proof  {proof}")
    if output is not None:
        show.out(f"certificates  {output}")
    else:
        _first_rows(done.frame, quiet)


def _write(rows: DataFrame, output: Path | None, spreadsheet: bool) -> None:
    from mlayer.disk import replace_file
    from mlayer.tables.predict import without_formulas

    if output is not None:
        frame = without_formulas(rows) if spreadsheet else rows
        replace_file(output, lambda path: frame.to_csv(path, index=False))


def _first_rows(frame: DataFrame, quiet: bool) -> None:
    from mlayer.tables.certify.certify_table import COLUMNS
    from mlayer.tables.metrics import readable

    shown = frame.head(SHOWN)
    # Column by column: as one array an identifier beside fractions would become a rounded fraction.
    columns = [
        [readable(v) if isinstance(v, float) and name in COLUMNS else str(v) for v in shown[name].tolist()]
        for name in shown
    ]
    show.table(list(map(str, shown.columns)), list(zip(*columns, strict=True)))
    if len(frame) > SHOWN:
        show.say(f"the first {SHOWN} rows; -o FILE.csv writes all", quiet)


def _report_intervals(
    done: IntervalRows, output: Path | None, spreadsheet: bool, quiet: bool, as_json: bool
) -> None:
    from mlayer.tables.metrics import readable

    show.remarks(done.remarks, quiet)
    _write(done.frame, output, spreadsheet)
    summary = done.summary()
    if as_json:
        file = None if output is None else str(output)
        show.emit_json(summary | {"units": dict(done.units), "varied": list(done.varied), "output": file})
        return
    for name, unit in list(done.units.items())[:SHOWN]:
        show.say(f"  {name} moves by up to {done.eps * unit:g}", quiet)
    for name in done.varied:
        show.say(f"  {name} takes all its values", quiet)
    show.out(f"{summary['rows']} rows")
    if summary["median_width"] is not None:
        show.out(f"median width of the intervals: {readable(summary['median_width'])}")
    if summary["unbounded"]:
        show.out(f"{summary['unbounded']} rows have no bound: a smaller --eps may give one")
    if output is not None:
        show.out(f"intervals  {output}")
    else:
        _first_rows(done.frame, quiet)

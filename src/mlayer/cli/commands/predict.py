"""`mlayer predict`: a raw table in, its predictions out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mlayer.cli import options, show
from mlayer.cli.options import (
    FILE,
    Mistake,
    TableFormat,
    check_order,
    check_outputs,
    common,
    reading,
    require,
)


@click.command("predict")
@click.argument("model", type=FILE)
@click.argument("table", type=FILE)
@click.option("-o", "--output", type=FILE, help="A .csv or .parquet file; stdout, as csv, if not given.")
@click.option("--proba", is_flag=True, help="Add the probability of each class.")
@click.option(
    "--interval",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Regression: add columns low and high that contain the true value with this probability, e.g. 0.9.",
)
@click.option("--keep", is_flag=True, help="Write the columns of TABLE too, before the predictions.")
@click.option("--strict", is_flag=True, help="Refuse unseen categories, unreadable cells and so on.")
@options.spreadsheet
@options.force
@reading
@common
def command(  # noqa: PLR0917 - click passes them by name
    model: Path,
    table: Path,
    output: Path | None,
    proba: bool,
    interval: float | None,
    keep: bool,
    strict: bool,
    spreadsheet: bool,
    force: bool,
    table_format: TableFormat,
    quiet: bool,
    as_json: bool,
) -> None:
    """Predict the rows of TABLE (csv or parquet, of any size) with a MODEL of `mlayer fit`.

    TABLE must have the raw columns of the table that MODEL was fitted to, in any order. If it has the target,
    the metrics are printed too.
    """
    require("rich", "pandas", "pyarrow")
    check_order(model, table)
    if as_json and output is None:
        raise Mistake("--json needs -o: without it the predictions themselves go to stdout")
    if spreadsheet and output is not None and output.suffix.lower() not in (".csv", ".txt"):
        raise Mistake(f"--spreadsheet is for csv; got {output.name}. Leave it out, or write .csv")
    check_outputs({"-o": output}, {"table": table, "model": model}, force=force)

    from mlayer.tables import load_table_model, predict_table
    from mlayer.tables.predict import check_output
    from mlayer.tables.remarks import counted

    if output is not None:
        check_output(output)
    loaded = load_table_model(model)
    source = table_format.open(table, quiet)
    out: Any = show.results() if output is None else output
    with show.bar("predicting", quiet) as bar:
        done = predict_table(
            loaded,
            source,
            out,
            proba=proba,
            interval=interval,
            keep=keep,
            strict=strict,
            spreadsheet=spreadsheet,
            on_rows=lambda rows: bar(rows, None, counted(rows, "row")),
        )
    show.remarks(done.remarks, quiet)
    if as_json:
        show.emit_json(
            {
                "rows": done.rows,
                "output": str(output),
                "metrics": done.metrics,
                "measured_rows": done.measured_rows,
                "remarks": [remark.as_json() | {"said": str(remark)} for remark in done.remarks],
            }
        )
        return
    if done.metrics and not (quiet and output is None):
        show.metrics_table({counted(done.measured_rows, "row"): done.metrics}, err=output is None)
    if output is not None:
        show.out(f"{done.rows} predictions  {output}")

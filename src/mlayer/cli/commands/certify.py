"""`mlayer certify`: how far each row may move before its class changes, proved."""

from __future__ import annotations

from pathlib import Path

import click

from mlayer.cli import show
from mlayer.cli.options import FILE, Choice, Mistake, Written, check_order, check_outputs, common, reading

METHODS = ("best", "fourth_order", "third_order", "second_order", "first_order", "lipschitz", "paper")
SHOWN = 10


def _units(pairs: tuple[str, ...]) -> dict[str, float]:
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


@click.command("certify")
@click.argument("model", type=FILE)
@click.argument("table", type=FILE)
@click.option("-o", "--output", type=FILE, help="A .csv file for the certificates of all rows.")
@click.option("--eps", type=float, help="Ask only whether rows are certified at this radius; quicker.")
@click.option("--norm", type=Choice(["linf", "l2"]), default="linf", show_default=True)
@click.option("--method", type=Choice(METHODS), default="best", show_default=True)
@click.option(
    "--unit", "units", multiple=True, metavar="COLUMN=NUMBER", help="What a radius of 1 means there."
)
@click.option("--rigorous", is_flag=True, help="Check each claim again in ball arithmetic (python-flint).")
@click.option("--rows", type=click.IntRange(min=1), help="Only the first rows.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Threads.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
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
    rigorous: bool,
    rows: int | None,
    workers: int,
    force: bool,
    written: Written,
    quiet: bool,
    as_json: bool,
) -> None:
    """Prove for each row of TABLE how far its numbers may move before MODEL, a classifier, changes its mind.

    A radius of 0.01 means: all numbers and dates may change at once, each by one hundredth of its range in
    the table of the fit (or of the --unit given). Categories are held still.
    """
    check_order(model, table)
    given = _units(units)
    if output is not None:
        if output.suffix.lower() != ".csv":
            raise Mistake(f"-o must be a file ending in .csv; got {output.name}")
        check_outputs({"-o": output}, {"table": table, "model": model}, force=force)
    from mlayer.disk import replace_file
    from mlayer.tables import load_table_model
    from mlayer.tables.certify import certify_table

    loaded = load_table_model(model)
    source = written.open(table, quiet)
    frame = source.read(rows, text=loaded.text_columns)
    with show.bar("certifying", quiet) as bar:
        done = certify_table(
            loaded,
            frame,
            eps=eps,
            norm=norm,
            method=method,
            units=given,
            rigorous=rigorous,
            progress=lambda k, n: bar.update(k, n, f"{k} of {n} rows"),
            workers=workers,
        )
    show.remarks(done.remarks, quiet)
    if output is not None:
        replace_file(output, lambda path: done.frame.to_csv(path, index=False))
    summary = done.summary()
    if as_json:
        show.emit_json(
            summary | {"units": dict(done.units), "output": None if output is None else str(output)}
        )
        return
    for name, unit in list(done.units.items())[:SHOWN]:
        show.say(f"  a radius of 1 moves {name} by {unit:g}", quiet)
    middle = summary["median_radius"]
    click.echo(f"{summary['rows']} rows, {summary['correct']} classified correctly")
    if eps is not None:
        click.echo(f"certified at {eps:g} ({norm}): {summary['certified']} rows")
    elif middle is not None:
        click.echo(f"median certified radius ({norm}): {middle:.4g}")
    if summary["unlimited"]:
        click.echo(f"{summary['unlimited']} rows cannot change their class at all")
    if output is not None:
        click.echo(f"certificates  {output}")
    else:
        shown = done.frame.head(SHOWN)
        cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row] for row in shown.to_numpy()]
        show.table(list(map(str, shown.columns)), cells)
        if len(done.frame) > SHOWN:
            show.say(f"the first {SHOWN} rows; -o FILE.csv writes all", quiet)

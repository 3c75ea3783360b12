"""`mlayer fit`: from a table to a model file and a report."""

from __future__ import annotations

from pathlib import Path

import click

from mlayer.cli import show
from mlayer.cli.options import (
    FILE,
    Choice,
    Mistake,
    Written,
    check_outputs,
    common,
    complete_columns,
    reading,
    require,
)


@click.command("fit")
@click.argument("table", type=FILE)
@click.option("-t", "--target", required=True, shell_complete=complete_columns, help="The column to predict.")
@click.option("-o", "--output", type=FILE, help="The model file; TABLE's name with .safetensors.")
@click.option("--report", type=FILE, help="The report; the model's name with .html.")
@click.option("--no-report", is_flag=True, help="Write no report.")
@click.option(
    "--task",
    type=Choice(["auto", "classification", "regression"]),
    default="auto",
    help="Guessed from the target if not given.",
)
@click.option(
    "--drop", multiple=True, shell_complete=complete_columns, help="A column to leave out; may be repeated."
)
@click.option("--rows", type=click.IntRange(1), help="Read the first N rows only, of a table of any size.")
@click.option("--test-share", type=float, default=0.2, show_default=True, help="Of the rows, held out.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Of the split and the training.",
)
@click.option(
    "--epochs", type=click.IntRange(1), help="At most so many (small tables: iterations of L-BFGS)."
)
@click.option(
    "--time-limit", type=click.FloatRange(0, min_open=True), help="Seconds; epochs are made fewer to fit."
)
@click.option("--matrix-size", type=click.IntRange(1), help="n, of the matrix that is exponentiated.")
@click.option("--embedding-size", type=click.IntRange(1), help="d, the features that columns are mapped to.")
@click.option(
    "--max-categories", type=click.IntRange(1), default=20, show_default=True, help="Of a text column."
)
@click.option("--strict", is_flag=True, help="Refuse columns and cells that would be left out or mended.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@reading
@common
def command(  # noqa: PLR0917 - click passes them by name
    table: Path,
    target: str,
    output: Path | None,
    report: Path | None,
    no_report: bool,
    task: str,
    drop: tuple[str, ...],
    rows: int | None,
    test_share: float,
    seed: int,
    epochs: int | None,
    time_limit: float | None,
    matrix_size: int | None,
    embedding_size: int | None,
    max_categories: int,
    strict: bool,
    force: bool,
    written: Written,
    quiet: bool,
    as_json: bool,
) -> None:
    """Fit a model to TABLE (csv or parquet).

    Numbers, truth values, dates and text columns are turned into numbers, and how is said; the way there is
    kept in the model file, so that `mlayer predict` takes the raw table. Part of the rows is held out, and
    the metrics are measured on it.
    """
    require("rich", "pandas", "pyarrow", "sklearn", *([] if no_report else ["matplotlib"]))
    model_file = output or Path(_stem(table) + ".safetensors")
    page_file = None if no_report else report or model_file.with_suffix(".html")
    check_outputs({"-o": model_file, "--report": page_file}, {"table": table}, force=force)

    from mlayer.tables import Plan, Training, fit_table, read_with_target

    source = written.open(table, quiet)
    frame, said = read_with_target(source, target, task, rows)
    if rows is not None:
        show.say(f"the first {len(frame)} rows, as --rows asks for; they are no random sample", quiet)
    plan = Plan(
        target=target,
        task=task,
        drop=drop,
        test_share=test_share,
        seed=seed,
        max_categories=max_categories,
        strict=strict,
        training=Training(epochs, time_limit, matrix_size, embedding_size, bar=show.wants_bar(quiet)),
    )
    result = fit_table(frame, plan, said=said, on_stage=lambda text: show.say(text, quiet))
    page = None
    summary = {**result.summary(), "source": source.said, "model": str(model_file)}
    if page_file is not None:
        from mlayer.report import fit_page

        summary["report"] = str(page_file)
        page = fit_page(summary, result.truth, result.predictions.outputs)
    result.model.save(model_file)
    if page_file is not None and page is not None:
        try:
            page.save(page_file)
        except OSError as error:
            why = error.strerror or error
            raise Mistake(f"the model was kept, {model_file}; the report {page_file} failed: {why}") from None

    show.remarks(result.remarks, quiet)
    if as_json:
        show.emit_json(summary)
        return
    click.echo(result.verdict)
    show.metrics_table({"model": result.metrics, "best constant": result.baseline})
    click.echo(f"model   {model_file}")
    if page_file is not None:
        click.echo(f"report  {page_file}")
    show.say(f"next:   mlayer predict {model_file} TABLE -o predictions.csv", quiet)


def _stem(table: Path) -> str:
    """The name without its endings: data.csv.gz -> data."""
    name = table.name.removesuffix(".gz")
    return name.rpartition(".")[0] or name

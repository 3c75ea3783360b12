"""`mlayer explain`: the formula of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mlayer.cli import options, show
from mlayer.cli.options import FILE, Mistake, TableFormat, check_order, check_outputs, common, reading

ROWS = 5000


@click.command("explain")
@click.argument("model", type=FILE)
@click.argument("table", type=FILE, required=False)
@click.option(
    "--degree", type=click.IntRange(min=0), help="Degree of the polynomial, where the formula is not exact."
)
@click.option("--factor", is_flag=True, help="Factor the formula instead of expanding it.")
@click.option("--latex", is_flag=True, help="Print LaTeX instead of text.")
@click.option("--plot", type=FILE, help="Draw model and formula (.png, .svg, .pdf); one or two inputs.")
@click.option(
    "--rows", type=click.IntRange(min=1), default=ROWS, show_default=True, help="Rows of TABLE to use."
)
@options.force
@reading
@common
def command(  # noqa: PLR0917 - click gives them by name
    model: Path,
    table: Path | None,
    degree: int | None,
    factor: bool,
    latex: bool,
    plot: Path | None,
    rows: int,
    force: bool,
    table_format: TableFormat,
    quiet: bool,
    as_json: bool,
) -> None:
    """Print the formula of MODEL, its error against the model and, given TABLE, against the data.

    Layers with nilpotent matrices or one input have an exact formula. For other layers a polynomial is fitted
    to the model at the rows of TABLE, which must then be given.
    """
    check_order(model, table)
    if plot is not None:
        if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise Mistake(f"--plot must end in .png, .svg or .pdf; got {plot.name}")
        check_outputs({"--plot": plot}, {"table": table, "model": model}, force=force)
    from mlayer.disk import replace_file
    from mlayer.errors import ArgumentError
    from mlayer.files import load_with_notes
    from mlayer.symbolic import explain
    from mlayer.tables.explain import explain_table
    from mlayer.tables.horizon import remarks_of_shifts
    from mlayer.tables.model import table_model

    layer, notes = load_with_notes(model)
    options: dict[str, Any] = {"factor": factor} | ({} if degree is None else {"degree": degree})
    fitted = None if (notes or {}).get("table") is None else table_model(model, layer, notes)
    frame = None
    if table is not None and fitted is not None:
        frame = table_format.rows(table, fitted, rows, quiet)
    elif table is not None:
        frame = table_format.open(table, quiet).read(rows)
    try:
        if fitted is not None:
            found = explain_table(fitted, frame, **options)
        else:
            if frame is not None:
                frame = frame.select_dtypes("number")
                if frame.shape[1] != layer.in_features:
                    raise Mistake(
                        f"{table} must have {layer.in_features} columns of numbers, the inputs of {model}; "
                        f"got {frame.shape[1]}. A model of `mlayer fit` picks its columns itself"
                    )
            found = explain(layer, None if frame is None else frame.to_numpy(), **options)
    except ArgumentError as error:
        if table is None and error.argument == "data":
            raise Mistake(f"{model} has no exact formula; name a table where one should hold") from None
        if frame is not None and error.argument == "data" and len(frame) <= 1:
            raise Mistake(
                f"{table} must have two different rows or more, since {model} has no exact formula; got "
                f"{len(frame)}. Name a table whose rows cover the region where the formula should hold"
            ) from None
        raise
    if plot is not None:
        figure = found.plot()
        replace_file(plot, lambda path: figure.savefig(path, format=plot.suffix[1:].lower(), dpi=150))
    if as_json:
        show.emit_json(
            {
                "formulas": [str(one) for one in found.formulas],
                "latex": found.latex.splitlines(),
                "variables": [str(v) for v in found.formula.variables],
                "method": found.formula.method,
                "exact": found.formula.exact,
                "error": found.error,
                "largest_error": found.largest_error,
                "data_error": found.data_error,
                "model_data_error": found.model_data_error,
            }
        )
        return
    for remark in [] if fitted is None or frame is None else remarks_of_shifts(fitted.facts, fitted.schema):
        show.say(str(remark), quiet)
    lines = str(found).splitlines()
    formulas = len(found.formulas)
    for line in found.latex.splitlines() if latex else lines[:formulas]:
        show.out(line)
    for line in lines[formulas:]:
        show.say(line, quiet)
    if plot is not None:
        show.say(f"picture  {plot}", quiet)

"""`mlayer check-proof`: verify that a proof file proves what it claims about the rows of a table."""

from __future__ import annotations

import math
from pathlib import Path

import click

from mlayer.cli import options, show
from mlayer.cli.options import FILE, TableFormat, check_order, column_numbers, common, reading

REFUSED = 1
LONGEST = 200  # characters of a reason: it may quote what a forged file holds


@click.command("check-proof")
@click.argument("model", type=FILE)
@click.argument("table", type=FILE)
@click.argument("proof", type=FILE)
@options.norm
@options.unit
@options.first_rows
@reading
@common
def command(  # noqa: PLR0917 - click gives them by name
    model: Path,
    table: Path,
    proof: Path,
    norm: str,
    units: tuple[str, ...],
    rows: int | None,
    table_format: TableFormat,
    quiet: bool,
    as_json: bool,
) -> int:
    """Check the PROOF that `mlayer certify --proof` wrote, in ball arithmetic, against MODEL and TABLE.

    Give the same --rows, --norm and --unit as to `mlayer certify`: a proof about other rows, another region
    or another model is refused. Exit code 0: every claim is accepted; 1: at least one row is refused; 2: the
    file is damaged, or another mistake.
    """
    check_order(model, table)
    given = column_numbers(units)
    from mlayer.tables import load_table_model
    from mlayer.tables.certify.check_proof import check_table, read_proof_file

    content = read_proof_file(proof)
    loaded = load_table_model(model)
    frame = table_format.rows(table, loaded, rows, quiet)
    with show.bar("checking", quiet) as bar:
        done = check_table(
            loaded,
            frame,
            content,
            norm=norm,
            units=given,
            progress=lambda k, n: bar(k, n, f"{k} of {n} rows"),
        )
    show.remarks(done.remarks, quiet)
    accepted, refused, silent = (done.count(answer) for answer in ("accepted", "refused", "no claim"))
    code = REFUSED if refused else 0
    if as_json:
        verdicts = [
            {
                "row": number,
                "answer": row.answer,
                "radius": "infinite" if math.isinf(row.radius) else row.radius,
                "rival": row.rival,
                "reason": row.reason[:LONGEST],
            }
            for number, row in enumerate(done.rows, 1)
        ]
        counts = {"rows": len(verdicts), "accepted": accepted, "refused": refused, "no_claim": silent}
        show.emit_json(counts | {"norm": norm, "units": dict(done.units), "verdicts": verdicts})
        return code
    cells = []
    for number, row in enumerate(done.rows, 1):
        against = "" if row.rival is None else f"against {row.rival}: "
        radius = f"{row.radius:.6g}" if row.answer == "accepted" else ""
        cells.append([str(number), row.answer, radius, f"{against}{row.reason}"[:LONGEST]])
    show.table(["row", "answer", "radius", "reason"], cells, words=True)
    show.out(f"{accepted} rows accepted, {refused} refused, {silent} without a claim")
    return code

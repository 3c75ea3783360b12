"""`mlayer export`: a model for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from mlayer.cli import options, show
from mlayer.cli.options import FILE, check_name, check_outputs, common


@click.command("export")
@click.argument("model", type=FILE)
@click.option("--onnx", type=FILE, required=True, help="The file to write.")
@options.force
@common
def command(model: Path, onnx: Path, force: bool, quiet: bool, as_json: bool) -> None:
    """Write MODEL as ONNX: from encoded rows to logits (classification) or values (regression).

    For a table a Python file is written next to it, NAME_rows.py: its function numbers(rows) takes the raw
    columns, for a quantity predictions(x, p) keeps to the limits of `mlayer predict`; it needs nothing but
    Python. The columns are also in the metadata, entry "mlayer.table".
    """
    check_name(onnx)
    rows = onnx.with_name(f"{onnx.stem}_rows.py")
    check_outputs({"--onnx": onnx, "the Python file of --onnx": rows}, {"model": model}, force=force)

    from mlayer.tables.export.onnx_table import export_any_onnx
    from mlayer.tables.remarks import counted

    features = export_any_onnx(model, onnx)
    if as_json:
        about = {"onnx": str(onnx), "input": "x", "output": "p", "features": features}
        show.emit_json(about | ({"rows": str(rows)} if features else {}))
        return
    show.out(f"onnx    {onnx}")
    if features:
        show.out(f"rows    {rows}")
    shown = ", ".join(features[:12]) + (f" and {len(features) - 12} more" if len(features) > 12 else "")
    show.say(
        f"its input x has a row of {counted(len(features), 'number')}: {shown}" if features else "",
        quiet or not features,
    )

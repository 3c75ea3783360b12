"""`mlayer export`: a model for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from mlayer.cli import show
from mlayer.cli.options import FILE, check_outputs, common


@click.command("export")
@click.argument("model", type=FILE)
@click.option("--onnx", type=FILE, required=True, help="The file to write.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@common
def command(model: Path, onnx: Path, force: bool, quiet: bool, as_json: bool) -> None:
    """Write MODEL as ONNX: from encoded rows to logits (classification) or values (regression).

    The columns and how they become numbers are in the file's metadata, entry "mlayer.table".
    """
    check_outputs({"--onnx": onnx}, {"model": model}, force=force)

    from mlayer.tables.export import export_any_onnx

    features = export_any_onnx(model, onnx)
    if as_json:
        show.emit_json({"onnx": str(onnx), "input": "x", "output": "p", "features": features})
        return
    show.out(f"onnx    {onnx}")
    shown = ", ".join(features[:12]) + (f" and {len(features) - 12} more" if len(features) > 12 else "")
    show.say(
        f"its input x has a row of {len(features)} numbers: {shown}" if features else "",
        quiet or not features,
    )

"""`mlayer bench`: speed on this machine."""

from __future__ import annotations

import click

from mlayer.cli import show
from mlayer.cli.options import common, require


@click.command("bench")
@click.option(
    "--turns", type=click.IntRange(2), default=7, show_default=True, help="Timed repetitions per library."
)
@click.option("--no-others", is_flag=True, help="Leave out JAX and TensorFlow.")
@click.option("--device", default="cpu", show_default=True, help="Device of the tensors, for example cuda.")
@common
def command(turns: int, no_others: bool, device: str, quiet: bool, as_json: bool) -> None:
    """Compare the speed of expm with that of torch, and of JAX and TensorFlow if installed.

    All libraries are timed alternately within one run. Other programs disturb the figures: close them first.
    """
    require("rich")
    from mlayer.speed import bench

    with show.bar("measuring", quiet) as bar:
        result = bench(
            turns=turns, others=not no_others, device=device, on_case=lambda name: bar(0, None, name)
        )
    if as_json:
        show.emit_json(result)
        return
    show.table(
        ["what", "compared with", "times as long", "quartiles", "mlayer, ms"],
        [
            [
                row["what"],
                row["other"],
                f"{row['ratio']:.3g}",
                f"{row['low']:.3g} to {row['high']:.3g}",
                f"{row['milliseconds']:.3g}",
            ]
            for row in result["rows"]
        ],
    )
    versions = ", ".join(f"{name} {value}" for name, value in result["versions"].items())
    show.say(f"{result['device']}; {result['threads']} threads; {result['kernel']}; {versions}", quiet)

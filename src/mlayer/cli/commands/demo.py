"""`mlayer demo`: what an M-layer can do, in under a minute, on one page."""

from __future__ import annotations

import time
from pathlib import Path

import click

from mlayer.cli import options, show
from mlayer.cli.options import FILE, check_outputs, common

TITLE = "One exponential is enough"
_LONGEST_HEAD = 1000  # bytes, in which the title of a page stands


@click.command("demo")
@click.option("-o", "--output", type=FILE, default=Path("mlayer-demo.html"), show_default=True)
@click.option("--smoke", is_flag=True, help="Run for a few seconds, to check that it works.")
@options.force
@common
def command(output: Path, smoke: bool, force: bool, quiet: bool, as_json: bool) -> None:
    """Learn a spiral and a wave, compile a determinant, certify digits, and write one page. Needs no data."""
    check_outputs({"-o": output}, force=force or _is_page(output))
    from mlayer.experiments import demo
    from mlayer.experiments.running.protocol import RunContext
    from mlayer.report.demo import demo_page

    started = time.monotonic()
    with show.bar("demo", quiet) as bar:
        results = demo.run(demo.SMOKE if smoke else demo.Config(), RunContext(report=show.by_part(bar)))
    seconds = time.monotonic() - started
    demo_page(results, seconds).save(output)
    spiral, wave, digits = results["spiral"], results["wave"], results["digits"]
    facts = {
        "spiral.extra_turn_accuracy": spiral["ours"]["extra_turn_accuracy"],
        "spiral.relu_extra_turn_accuracy": spiral["relu"]["extra_turn_accuracy"],
        "wave.rmse": wave["ours"]["rmse"],
        "determinant.largest_error": results["determinant"]["largest_error"],
        "digits.accuracy": digits["accuracy"],
        "digits.least_certified_radius": min(digits["certified"]),
        "seconds": round(seconds, 1),
    }
    if as_json:
        show.emit_json({**facts, "page": str(output)})
        return
    show.table(["figure", "here"], [[name, f"{value:.4g}"] for name, value in facts.items()])
    show.out(f"page  {output}")


def _is_page(output: Path) -> bool:
    """Whether a page of an earlier demo is there, which is replaced without --force."""
    try:
        if not output.is_file():  # a pipe would be waited for
            return False
        with output.open("rb") as file:
            return f"<title>{TITLE}<".encode() in file.read(_LONGEST_HEAD)
    except OSError:
        return False

"""`mlayer info`: what a model file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mlayer.cli import show
from mlayer.cli.options import FILE, common, require


@click.command("info")
@click.argument("model", type=FILE)
@common
def command(model: Path, quiet: bool, as_json: bool) -> None:
    """Show what MODEL holds: target, columns and how each is handled, metrics of the fit, sizes, versions.

    The file is checked against its digest.
    """
    require("rich", "pandas")
    from mlayer.tables.model import describe_model

    facts = describe_model(model)
    if as_json:
        show.emit_json(facts)
        return
    show.out(f"{facts['file']}: {facts['layer']['said']}")
    table: dict[str, Any] | None = facts["table"]
    if table is None:
        show.say("a layer without a table; use it from Python: mlayer.load(path)", quiet)
        return
    show.out(show.short(f"{table['target']['task']} of {table['target']['name']!r}"))
    if table["target"]["classes"]:
        show.out(show.short("classes: " + ", ".join(map(str, table["target"]["classes"][:20]))))
    show.table(["column", "how it is used"], [[c["name"], c["said"]] for c in table["columns"]], words=True)
    fit = table["facts"]
    if fit.get("metrics"):
        show.metrics_table({"held-out rows": fit["metrics"], "best constant": fit.get("baseline", {})})
    for name in ("created", "rows", "seed", "epochs", "seconds", "versions"):
        if name in fit:
            show.out(show.short(f"{name}: {_plain(fit[name])}"))


def _plain(value: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)

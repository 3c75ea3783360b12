"""`mlayer reproduce`: an experiment of the paper, its figure, its numbers compared with the paper's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlayer.cli import show
from mlayer.cli.options import FILE, Mistake, common

if TYPE_CHECKING:
    from mlayer.experiments.running.protocol import Scale


@click.command("reproduce")
@click.argument("name")
@click.option("--smoke", is_flag=True, help="Run for a few seconds, to check that it works.")
@click.option("--full", is_flag=True, help="The paper's scale: takes hours, baselines days.")
@click.option("--data", type=FILE, help="Folder of MNIST, CIFAR-10, SVHN, ...; $MLAYER_DATA if not given.")
@click.option("--download", is_flag=True, help="First fetch what the data folder lacks for NAME.")
@click.option(
    "-o", "--out", type=FILE, default=Path("results"), show_default=True, help="Folder of the results."
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed instead of the experiment's own.")
@click.option(
    "--task", "tasks", multiple=True, help="Only this task of the experiment, for example cifar10_2_255."
)
@click.option("--anew", is_flag=True, help="Start over instead of resuming an interrupted run.")
@common
def command(  # noqa: PLR0917 - click gives them by name
    name: str,
    smoke: bool,
    full: bool,
    data: Path | None,
    download: bool,
    out: Path,
    seed: int | None,
    tasks: tuple[str, ...],
    anew: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run experiment NAME of the paper, or all; write OUT/NAME.json, OUT/NAME.png and OUT/report.html.

    Names: spiral, periodic, waves, temperatures, determinant, determinant5, permanent, permanent5, images,
    baselines, rivals, ingredients, convolutional, timing, robustness, trained_radii, certified,
    certified_networks; all. The same command resumes a stopped run.
    """
    if smoke and full:
        raise Mistake("--smoke and --full exclude each other; without either the run has its default scale")
    if out.exists() and not out.is_dir():
        raise Mistake(f"{out} is a file; -o names a folder")
    if data is not None and not data.is_dir() and not download:
        raise Mistake(f"there is no folder {data}; --data names the one with the data, --download makes it")
    from mlayer.experiments.running.registry import compare, experiment, needed_sets
    from mlayer.experiments.running.runner import reproduce, reproduce_all
    from mlayer.report.reproduction import SMOKE

    if name == "all" and tasks:
        raise Mistake("--task is for one experiment, not for all")
    if name != "all":
        experiment(name)  # a wrong name is an error before anything is written
    scale: Scale = "smoke" if smoke else "full" if full else "default"
    if download:
        _fetch(needed_sets(name, scale), data, quiet)
    with show.bar(name, quiet) as bar:
        how: dict[str, Any] = {"scale": scale, "data": data, "out": out, "seed": seed}
        how |= {"progress": show.by_part(bar), "resume": not anew}
        records = (
            reproduce_all(**how) if name == "all" else {name: reproduce(name, tasks=tasks or None, **how)}
        )
    page = out / ("report.smoke.html" if smoke else "report.html")
    if as_json:
        show.emit_json({key: record.get("headline", record) for key, record in records.items()})
        return
    for key, record in records.items():
        if "skipped" in record:
            show.out(f"{key}: skipped. {record['skipped']}")
            continue
        show.out(f"{record['title']} ({record['seconds']:.0f} s)")
        rows = [[k, f"{v:.6g}"] for k, v in record["headline"].items()]
        show.table(["figure", "here"], rows)
        compared = [] if smoke else compare(record["headline"])
        if compared:
            show.table(["", "paper", "here", "goal"], compared)
        beside = out / f"{key}.default.json"
        if record["scale"] == "default" and not _replaced(out / f"{key}.json"):
            show.out(f"the complete result of the full scale stays; this one is in {beside}")
    if smoke:
        show.out(SMOKE)
    show.out(f"report  {page}")


def _replaced(kept: Path) -> bool:
    """Whether the result in this file is of the default scale, which does not replace a complete full one."""
    scale: str = json.loads(kept.read_text(encoding="utf-8"))["scale"]
    return scale == "default"


def _fetch(names: Sequence[str], data: Path | None, quiet: bool) -> None:
    from mlayer.datasets import data_folder, fetch_sets

    if not names:
        show.say("this experiment reads no data set: nothing to download", quiet)
        return
    with show.bar("download", quiet) as bar:
        fetch_sets(
            names,
            data,
            progress=lambda file, come, total: bar(come, total, f"{file}, {come / 1e6:.1f} MB"),
        )
    show.say(f"{', '.join(names)}: all files are in {data_folder(data)}", quiet)

"""Writes the page of the reproduction from the results that are there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlayer.experiments.running.protocol import Experiment
from mlayer.experiments.running.records import not_a_result, read_record
from mlayer.experiments.running.registry import EXPERIMENTS, compare, experiment
from mlayer.experiments.shared.pictures import Look, rendered
from mlayer.report.page import Drawn
from mlayer.report.reproduction import Chapter, reproduction_page


def write_page(folder: Path, smoke: bool = False) -> Path:
    """Write FOLDER/report.html from the NAME.json that are there; report.smoke.html from smoke runs.

    Pictures are drawn again from the results, for light and dark pages, wide and narrow.
    """
    ending = ".smoke" if smoke else ""
    chapters = []
    for name in EXPERIMENTS:
        file = folder / f"{name}{ending}.json"
        if file.is_file():
            record = read_record(file)
            with _of_a_run(file):
                chapters.append(chapter(experiment(name), record))
    with _of_a_run(folder):
        page = reproduction_page(chapters, smoke)
    path = folder / f"report{ending}.html"
    page.save(path)
    return path


@contextmanager
def _of_a_run(file: Path) -> Iterator[None]:
    """Turn an error about a record into one that names its file, which others may have written."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise not_a_result(file, f"one that lacks something ({error!r:.200})") from error


def chapter(module: Experiment, record: dict[str, Any]) -> Chapter:
    """The part of the page about one experiment."""
    results = record["results"]
    pictures = [
        rendered(module.plot, results, Look(dark=dark, narrow=narrow))
        for narrow in (False, True)
        for dark in (False, True)
    ]
    place, _, section = module.IN_PAPER.partition("; ")
    whole = record["scale"] != "smoke" and record.get("complete", True)
    return Chapter(
        record,
        place,
        section,
        module.CAPTION,
        compare(record["headline"]),
        Drawn(*pictures),
        module.grids(record) if hasattr(module, "grids") else (),
        module.card(record) if hasattr(module, "card") and whole else None,
    )

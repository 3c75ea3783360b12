"""Runs an experiment by its name and keeps the results.

    OUT/NAME.json       configuration, command, seed, versions, time, the paper's figures and ours
    OUT/NAME.png        the picture
    OUT/models/         the trained models that an experiment keeps
    OUT/report.html     the page, from all results that are there
    OUT/summary.json    the headline figures of all experiments, each with the command that measured it

Files are replaced as a whole. A smoke run writes NAME.smoke.json and NAME.smoke.png and leaves the summary
alone; so does a default run, as NAME.default, where a complete full one exists. During a run its
checkpoints are in OUT/.checkpoints and the results of its finished parts in OUT/parts; the same call resumes
it, also on another machine to which OUT/parts was copied. Long experiments report finished parts as they
go: these are written with "complete": false, under the same names, or as NAME.partial.json
next to a complete result, which they do not replace.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

from mlayer.checks import file_path, flag, function, integer, one_of
from mlayer.datasets import data_folder
from mlayer.disk import alone_in, make_folder, replace_bytes, replace_file
from mlayer.errors import ArgumentError, FileFormatError, MissingDataError, MissingPackageError
from mlayer.experiments.running.page import write_page
from mlayer.experiments.running.protocol import Experiment, Report, Results, RunContext, Scale
from mlayer.experiments.running.provenance import circumstances
from mlayer.experiments.running.records import read_record
from mlayer.experiments.running.registry import EXPERIMENTS, experiment
from mlayer.report.reproduction import commits
from mlayer.version import __version__

PathLike = str | os.PathLike[str]
# A list of numbers goes into one line: one line per curve, not one per point.
_NUMBERS = re.compile(r"\[[-+.\deE\s,]+\]")


def reproduce(
    name: str,
    scale: Scale = "default",
    *,
    data: PathLike | None = None,
    out: PathLike = "results",
    seed: int | None = None,
    tasks: Sequence[str] | None = None,
    progress: Report | None = None,
    resume: bool = True,
    page: bool = True,
) -> dict[str, Any]:
    """Run one experiment and write its results.

    Args:
        name: one of `EXPERIMENTS`.
        scale: "smoke" (seconds, to check that it runs), "default" (minutes), "full" (the paper's).
        data: the folder of the real data sets; ``$MLAYER_DATA`` if None.
        out: the folder for results.
        seed: instead of the configuration's.
        tasks: the names of the experiment's tasks to be worked on now; None: all. Where some are left, what
            is finished is kept for the call that makes them.
        progress: called with what is being done and the part of it that is done, or None.
        resume: continue a run that was stopped. False starts again.
        page: also write OUT/report.html, from all results that are there (OUT/report.smoke.html from smoke
            runs).

    Returns:
        What was written to NAME.json.
    """
    module = experiment(name)
    one_of("scale", scale, get_args(Scale), "default takes minutes.")
    flag("resume", resume)
    flag("page", page)
    function("progress", progress, "(what, part)", 2)
    config = module.SCALES[scale]
    if seed is not None:
        integer("seed", seed, 0)
        config = replace(config, seed=seed)
    chosen = None if tasks is None else _chosen(name, config, tasks)
    data_folder(data)
    folder = file_path("out", out)
    if folder.exists() and not folder.is_dir():
        raise ArgumentError("out", "a folder", f"the file {folder}", "Name a folder for the results.")
    if scale != "smoke" and (folder / "summary.json").exists():
        read_record(folder / "summary.json")  # a damaged one is an error now, not after hours
    run = f"{name}-{scale}-{_digest(asdict(config))}"
    checkpoints, parts = folder / ".checkpoints" / run, folder / "parts" / run
    for own in (checkpoints, parts):
        if own.is_symlink() or (own.exists() and not own.is_dir()):  # would be removed at the end
            raise ArgumentError("out", "a folder of results", f"one where {own} is no folder", "Remove it.")
    with alone_in(checkpoints, wait=False) as alone:
        if not alone:
            raise ArgumentError(
                "out",
                "a folder of results where no other process works on this run",
                f"{folder}, where another process or thread works on {run}",
                "Wait for its end, or name another folder.",
            )
        if not resume:
            for old in (*checkpoints.iterdir(), parts):
                if old.is_dir() and not old.is_symlink():
                    shutil.rmtree(old, ignore_errors=True)
                else:
                    old.unlink(missing_ok=True)
        spent = _seconds_before(checkpoints)
        started = time.monotonic()

        def record_of(results: Results, complete: bool) -> dict[str, Any]:
            return {
                "name": name,
                "title": module.TITLE,
                "command": command(name, scale, seed, chosen),
                "scale": scale,
                "complete": complete,
                "seed": config.seed,
                # Parts that were finished in an earlier run carry the time they took.
                "seconds": round(max(spent + time.monotonic() - started, _seconds_of_parts(results)), 1),
                **circumstances(),
                "parts": sorted(set(commits(results))),
                "headline": module.headline(results),
                "quoted_from": getattr(module, "QUOTED_FROM", "the paper"),
                "paper": dict(module.EXPECTED),
                "config": asdict(config),
                "results": results,
            }

        context = RunContext(
            data=None if data is None else Path(data),
            checkpoints=checkpoints,
            parts=parts,
            report=None if progress is None else _timed(progress, checkpoints, spent),
            keeper=None if scale == "smoke" else lambda part: _keep(folder, record_of(part, False), module),
            models=folder / ("models.smoke" if scale == "smoke" else "models"),
            tasks=chosen,
        )
        try:
            results = module.run(config, context)
        finally:
            _note_seconds(checkpoints, spent + time.monotonic() - started)
        record = record_of(results, chosen is None)
        _keep(folder, record, module)
        shutil.rmtree(checkpoints)
        if chosen is None:
            shutil.rmtree(parts, ignore_errors=True)
    for emptied in (checkpoints.parent, parts.parent):
        _remove_if_empty(emptied)
    if page:
        write_page(folder, scale == "smoke")
    return record


def reproduce_all(
    scale: Scale = "default",
    *,
    data: PathLike | None = None,
    out: PathLike = "results",
    seed: int | None = None,
    progress: Report | None = None,
    resume: bool = True,
) -> dict[str, dict[str, Any]]:
    """Run every experiment, one after the other, with the arguments of :func:`reproduce`.

    One that lacks its data or a package is skipped and says so. If this is stopped, the same call resumes
    the experiment that was interrupted.
    """
    one_of("scale", scale, get_args(Scale), "default takes minutes.")
    flag("resume", resume)
    finished = file_path("out", out) / ".checkpoints" / f"all-{scale}-{_digest([seed])}.json"
    before = read_record(finished) if resume and finished.exists() else {}
    done = {name: one for name, one in before.items() if name in EXPERIMENTS and _has_figures(one)}
    skipped: dict[str, dict[str, Any]] = {}
    for place, name in enumerate(EXPERIMENTS, 1):
        if name in done:
            continue
        labeled = None if progress is None else _of_all(progress, f"{name} ({place} of {len(EXPERIMENTS)})")
        try:
            done[name] = reproduce(
                name, scale, data=data, out=out, seed=seed, progress=labeled, resume=resume, page=False
            )
            write_json(finished, done)
        except (MissingDataError, MissingPackageError) as error:
            skipped[name] = {"name": name, "skipped": str(error)}
    finished.unlink(missing_ok=True)
    _remove_if_empty(finished.parent)
    write_page(file_path("out", out), scale == "smoke")
    return {name: (done | skipped)[name] for name in EXPERIMENTS}


def _of_all(progress: Report, which: str) -> Report:
    """Progress that says which experiment of all it is."""
    return lambda what, part: progress(f"{which}: {what}", part)


def command(name: str, scale: Scale, seed: int | None, tasks: Sequence[str] | None = None) -> str:
    """The command line that does the same.

    >>> command("certified", "full", 7, ["mnist_0.1"])
    'mlayer reproduce certified --full --seed 7 --task mnist_0.1'
    """
    flag = "" if scale == "default" else f" --{scale}"
    chosen = "".join(f" --task {task}" for task in tasks or ())
    return f"mlayer reproduce {name}{flag}" + ("" if seed is None else f" --seed {seed}") + chosen


def _chosen(name: str, config: Any, tasks: Sequence[str]) -> tuple[str, ...]:
    """The names of tasks; an error if the configuration has no such task."""
    known = [task.name for task in getattr(config, "tasks", ())]
    wrong = [task for task in tasks if task not in known]
    if wrong or not tasks:
        must_be = f"tasks of {name} at this scale" if known else f"None: {name} has no tasks to choose from"
        hint = f"Its tasks: {', '.join(known)}." if known else "Leave it out."
        raise ArgumentError("tasks", must_be, ", ".join(map(repr, wrong)) or "none", hint)
    return tuple(tasks)


def _keep(folder: Path, record: dict[str, Any], module: Experiment) -> None:
    name, scale = record["name"], record["scale"]
    there = _complete_scale(folder / f"{name}.json")
    aside = scale == "smoke" or (scale == "default" and there == "full")
    stem = f"{name}.{scale}" if aside else name
    partial = folder / f"{name}.partial.json"
    if not record["complete"] and _complete_scale(folder / f"{stem}.json"):
        write_json(partial, record)
        return
    write_json(folder / f"{stem}.json", record)
    write_picture(folder / f"{stem}.png", module, record["results"])
    if scale != "smoke":
        partial.unlink(missing_ok=True)
    if aside:
        return
    # Another experiment may end at the same moment: each reads and writes the figures of all.
    with alone_in(folder, wait=True):
        _add_to_summary(folder / "summary.json", record)


def _add_to_summary(summary_file: Path, record: dict[str, Any]) -> None:
    summary = read_record(summary_file) if summary_file.exists() else {}
    # What an earlier run of this experiment measured and this one did not would be mixed with figures of
    # another run.
    own = {key.partition(".")[0] for key in record["headline"]}
    summary = {key: value for key, value in summary.items() if key.partition(".")[0] not in own}
    for key, value in record["headline"].items():
        summary[key] = {
            "value": value,
            "command": record["command"],
            "seed": record["seed"],
            "seconds": record["seconds"],
            "date": record["date"],
            "commit": record.get("commit"),
            "parts": record.get("parts", []),
        }
    write_json(summary_file, dict(sorted(summary.items())))


def write_picture(path: Path, module: Experiment, results: Results) -> None:
    """Replace the picture of an experiment as a whole."""
    figure = module.plot(results)
    replace_file(path, lambda new: figure.savefig(new, dpi=110, format="png"))


def _complete_scale(path: Path) -> str | None:
    """The scale of the complete result in this file, or None."""
    try:
        record = read_record(path)
    except (OSError, FileFormatError):
        return None
    return str(record.get("scale")) if record.get("complete", True) else None


def _has_figures(record: Any) -> bool:
    """Whether a record of a finished experiment is one, or somebody else's."""
    figures = record.get("headline") if isinstance(record, dict) else None
    return isinstance(figures, dict) and all(isinstance(value, int | float) for value in figures.values())


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _seconds_of_parts(results: Any) -> float:
    """The sum of all "seconds" in ``results``; those of parts of a part are in the part's own.

    >>> _seconds_of_parts({"rows": [{"seconds": 2.0, "stages": [{"seconds": 1.5}]}, {"seconds": 3}]})
    5.0
    """
    if isinstance(results, dict) and isinstance(results.get("seconds"), int | float):
        return float(results["seconds"])
    parts = results.values() if isinstance(results, dict) else results
    return sum((_seconds_of_parts(part) for part in parts if isinstance(part, dict | list)), 0.0)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file as a whole. JSON has no NaN: a figure that is not a number is an error here."""
    text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
    text = _NUMBERS.sub(lambda found: re.sub(r"\s+", " ", found[0]), text) + "\n"
    make_folder(path.parent)
    replace_bytes(path, text.encode())


def _digest(content: Any) -> str:
    """The name of a run's configuration: one of another configuration or version is not resumed."""
    text = json.dumps([__version__, content], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _seconds_before(checkpoints: Path) -> float:
    file = checkpoints / "seconds"
    try:
        seconds = float(file.read_text()) if file.is_file() and file.stat().st_size < 99 else 0.0
    except (OSError, ValueError):
        return 0.0
    return seconds if 0 <= seconds < math.inf else 0.0


def _note_seconds(checkpoints: Path, seconds: float) -> None:
    # A full disk must not end a run for this, nor hide the error that did.
    with suppress(OSError):
        replace_bytes(checkpoints / "seconds", f"{seconds:.1f}".encode())


def _timed(progress: Report, checkpoints: Path, spent: float) -> Report:
    """A report that also stores now and then how long the run has taken, in case it is killed."""
    started = noted = time.monotonic()

    def report(what: str, fraction: float | None) -> None:
        nonlocal noted
        now = time.monotonic()
        if now - noted > 30:
            noted = now
            _note_seconds(checkpoints, spent + now - started)
        progress(what, fraction)

    return report

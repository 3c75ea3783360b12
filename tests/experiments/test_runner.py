"""Every experiment runs at smoke scale; the runner keeps, resumes and complains as it should."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from mlayer.errors import ArgumentError, FileFormatError, MissingDataError, MissingPackageError
from mlayer.experiments import EXPERIMENTS, experiment, reproduce, reproduce_all
from mlayer.experiments import spiral as spiral_module
from mlayer.experiments.running import protocol, runner
from mlayer.experiments.running.protocol import RunContext
from mlayer.training import train

NAMES = (
    "spiral",
    "periodic",
    "waves",
    "temperatures",
    "determinant",
    "determinant5",
    "permanent",
    "permanent5",
)


# One program with other figures; the determinant also runs in tests/cli/test_more_commands.py.
SLOW = {"permanent", "determinant", "determinant5"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in NAMES]
)
def test_every_experiment_runs(name: str, tmp_path: Path) -> None:
    said: list[tuple[str, float | None]] = []
    record = reproduce(
        name, "smoke", out=tmp_path, progress=lambda what, part: said.append((what, part)), page=False
    )
    kept = json.loads((tmp_path / f"{name}.smoke.json").read_text())
    assert kept == json.loads(json.dumps(record))
    assert kept["command"] == f"mlayer reproduce {name} --smoke"
    assert {"seed", "seconds", "torch", "mlayer", "config", "paper", "headline", "results"} <= set(kept)
    assert all(isinstance(value, float) for value in kept["headline"].values())
    assert (tmp_path / f"{name}.smoke.png").read_bytes().startswith(b"\x89PNG")
    assert said
    assert all(part is None or 0 <= part <= 1 for _, part in said)
    # Neither a summary from a smoke run, nor checkpoints of a finished one.
    assert sorted(os.listdir(tmp_path)) == [f"{name}.smoke.json", f"{name}.smoke.png"]
    # The picture is made from the results alone, as a reader of the file has them.
    assert experiment(name).plot(kept["results"]).axes


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_its_parts(name: str) -> None:
    module = experiment(name)
    assert set(module.SCALES) == {"smoke", "default", "full"}
    assert module.__doc__ is not None
    assert f"mlayer reproduce {name}" in module.__doc__
    assert "Expected" in module.__doc__
    assert module.TITLE
    assert module.EXPECTED


def test_the_paper_s_names_are_there() -> None:
    assert set(NAMES) <= set(EXPERIMENTS)


@pytest.fixture(autouse=True)
def pages(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, bool]]:
    """Do not write pages: the results of quick stand-ins hold nothing to draw."""
    asked: list[tuple[Path, bool]] = []
    monkeypatch.setattr(runner, "write_page", lambda folder, smoke: asked.append((folder, smoke)))
    return asked


def test_the_page_is_written_from_python_too(tmp_path: Path, pages: list[tuple[Path, bool]]) -> None:
    reproduce("timing", "smoke", out=tmp_path)
    reproduce("timing", "smoke", out=tmp_path, page=False)
    assert pages == [(tmp_path, True)]


class CutOffError(Exception):
    """A run that is cut off."""


def test_a_run_that_was_cut_off_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[str] = []

    def counting(model: Any, data: Any, settings: Any, **options: Any) -> Any:
        part = options["checkpoint"].name
        if part == "text-0" and "text-0" not in trained and len(trained) < 3:
            trained.append("cut")
            raise CutOffError
        outcome = train(model, data, settings, **options)
        trained.append(part if outcome.resumed_at is None else f"{part} again")
        return outcome

    monkeypatch.setattr(protocol, "train", counting)
    with pytest.raises(CutOffError):
        reproduce("spiral", "smoke", out=tmp_path)
    assert trained == ["relu-0", "tanh-0", "cut"]
    assert (tmp_path / ".checkpoints").exists()
    resumed = reproduce("spiral", "smoke", out=tmp_path)
    assert trained[3:] == ["relu-0 again", "tanh-0 again", "text-0", "notebook-0", "ours-0"]
    anew = reproduce("spiral", "smoke", out=tmp_path / "other")
    assert resumed["headline"] == anew["headline"]
    assert not (tmp_path / ".checkpoints").exists()


def test_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(config: Any, context: RunContext) -> Any:
        folder = context.checkpoint("part")
        assert folder is not None
        folder.mkdir()
        raise CutOffError

    with monkeypatch.context() as patch:
        patch.setattr(spiral_module, "run", cut)
        with pytest.raises(CutOffError):
            reproduce("spiral", "smoke", out=tmp_path)
        with pytest.raises(FileExistsError):
            reproduce("spiral", "smoke", out=tmp_path)
        with pytest.raises(CutOffError):
            reproduce("spiral", "smoke", out=tmp_path, resume=False)


class Picture:
    """A figure that draws nothing."""

    def savefig(self, path: Path, **options: Any) -> None:
        path.write_bytes(b"picture")


def test_a_default_run_does_not_replace_a_complete_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick(config: Any, context: RunContext) -> dict[str, Any]:
        return {"value": float(config.seeds)}

    def figures(results: dict[str, Any]) -> dict[str, float]:
        value = results["value"]
        return {"spiral.value": value} | ({"spiral.value.sd": 0.1} if value == 10 else {})

    monkeypatch.setattr(spiral_module, "run", quick)
    monkeypatch.setattr(spiral_module, "headline", figures)
    monkeypatch.setattr(spiral_module, "plot", lambda results: Picture())

    def kept(name: str) -> Any:
        return json.loads((tmp_path / name).read_text())

    reproduce("spiral", out=tmp_path)
    assert kept("spiral.json")["scale"] == "default"
    reproduce("spiral", "full", out=tmp_path)
    assert kept("spiral.json")["scale"] == "full"
    summary = kept("summary.json")
    assert set(summary) == {"spiral.value", "spiral.value.sd"}
    reproduce("spiral", out=tmp_path)
    assert kept("spiral.json")["scale"] == "full"
    assert kept("spiral.default.json")["results"] == {"value": 5.0}
    assert kept("summary.json") == summary
    # Figures of an earlier run that a later one does not have go with it.
    (tmp_path / "spiral.json").unlink()
    reproduce("spiral", out=tmp_path)
    assert set(kept("summary.json")) == {"spiral.value"}


def test_no_two_experiments_share_the_first_part_of_a_figure_s_name() -> None:
    summary = json.loads((Path(__file__).parents[2] / "results" / "summary.json").read_text())
    experiments_of: dict[str, set[str]] = {}
    for key, entry in summary.items():
        experiments_of.setdefault(key.partition(".")[0], set()).add(entry["command"].split()[2])
    assert all(len(names) == 1 for names in experiments_of.values())
    assert len(experiments_of) > 8


def test_the_time_of_parts_that_were_done_before_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"a": [{"seconds": 1000.0, "inner": {"seconds": 900.0}}, {"seconds": 500}], "b": "seconds"}
    monkeypatch.setattr(spiral_module, "run", lambda config, context: parts)
    monkeypatch.setattr(spiral_module, "headline", lambda results: {"spiral.value": 1.0})
    monkeypatch.setattr(spiral_module, "plot", lambda results: Picture())
    assert reproduce("spiral", out=tmp_path)["seconds"] == 1500.0


def test_commits_of_parts_stand_in_the_record_and_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"a": [{"commit": "bbb", "inner": [{"commit": "aaa"}]}, {"commit": None}], "b": {"commit": "bbb"}}
    monkeypatch.setattr(spiral_module, "run", lambda config, context: parts)
    monkeypatch.setattr(spiral_module, "headline", lambda results: {"spiral.value": 1.0})
    monkeypatch.setattr(spiral_module, "plot", lambda results: Picture())
    assert reproduce("spiral", out=tmp_path)["parts"] == ["aaa", "bbb"]
    assert json.loads((tmp_path / "summary.json").read_text())["spiral.value"]["parts"] == ["aaa", "bbb"]


def test_all_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    broken = True

    def one(name: str, scale: str, **options: Any) -> dict[str, Any]:
        ran.append(name if options["resume"] else f"{name} anew")
        if name == "periodic" and broken:
            raise CutOffError
        return {"name": name, "headline": {}}

    monkeypatch.setattr(runner, "reproduce", one)
    monkeypatch.setattr(runner, "EXPERIMENTS", {"spiral": "", "periodic": "", "timing": ""})
    with pytest.raises(CutOffError):
        reproduce_all("smoke", out=tmp_path)
    broken = False
    records = reproduce_all("smoke", out=tmp_path)
    assert ran == ["spiral", "periodic", "periodic", "timing"]
    assert list(records) == ["spiral", "periodic", "timing"]
    assert os.listdir(tmp_path) == []
    broken = True
    with pytest.raises(CutOffError):
        reproduce_all("smoke", out=tmp_path)
    broken, ran[:] = False, []
    reproduce_all("smoke", out=tmp_path, resume=False)
    assert ran == ["spiral anew", "periodic anew", "timing anew"]


def test_progress_of_all_names_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def one(name: str, scale: str, **options: Any) -> dict[str, Any]:
        if options["progress"] is not None:
            options["progress"]("training", 0.5)
        return {"name": name, "headline": {}}

    monkeypatch.setattr(runner, "reproduce", one)
    monkeypatch.setattr(runner, "EXPERIMENTS", {"spiral": "", "timing": ""})
    reproduce_all("smoke", out=tmp_path, progress=lambda what, part: said.append(what))
    assert said == ["spiral (1 of 2): training", "timing (2 of 2): training"]
    reproduce_all("smoke", out=tmp_path)


def test_what_was_skipped_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking, ran = True, []

    def one(name: str, scale: str, **options: Any) -> dict[str, Any]:
        ran.append(name)
        if name == "spiral" and lacking:
            raise MissingDataError("put the file there")
        if name == "timing" and lacking:
            raise CutOffError
        return {"name": name, "headline": {}}

    monkeypatch.setattr(runner, "reproduce", one)
    monkeypatch.setattr(runner, "EXPERIMENTS", {"spiral": "", "periodic": "", "timing": ""})
    with pytest.raises(CutOffError):
        reproduce_all("smoke", out=tmp_path)
    lacking = False
    assert not any("skipped" in record for record in reproduce_all("smoke", out=tmp_path).values())
    assert ran == ["spiral", "periodic", "timing", "spiral", "timing"]


def test_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def quick(config: Any, context: RunContext) -> dict[str, Any]:
        return {"value": float(config.seed)}

    monkeypatch.setattr(spiral_module, "run", quick)
    monkeypatch.setattr(spiral_module, "headline", lambda results: {"spiral.value": results["value"]})
    monkeypatch.setattr(spiral_module, "plot", lambda results: Picture())
    (tmp_path / "summary.json").write_text(json.dumps({"other.value": {"value": 3.0, "command": "x"}}))
    reproduce("spiral", out=tmp_path, seed=4)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["other.value"] == {"value": 3.0, "command": "x"}
    assert summary["spiral.value"]["value"] == 4.0
    assert summary["spiral.value"]["command"] == "mlayer reproduce spiral --seed 4"
    reproduce("spiral", "full", out=tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["spiral.value"]["value"] == 0.0
    assert summary["spiral.value"]["command"] == "mlayer reproduce spiral --full"


def test_finished_parts_are_kept_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(config: Any, context: RunContext) -> dict[str, Any]:
        context.keep({"value": 1.0})
        raise CutOffError

    def whole(config: Any, context: RunContext) -> dict[str, Any]:
        context.keep({"value": 1.0})
        return {"value": 2.0}

    def kept(name: str) -> tuple[bool, float]:
        record = json.loads((tmp_path / name).read_text())
        return record["complete"], record["results"]["value"]

    monkeypatch.setattr(spiral_module, "headline", lambda results: {"spiral.value": results["value"]})
    monkeypatch.setattr(spiral_module, "plot", lambda results: Picture())
    monkeypatch.setattr(spiral_module, "run", cut)
    with pytest.raises(CutOffError):
        reproduce("spiral", "smoke", out=tmp_path)
    assert not (tmp_path / "spiral.smoke.json").exists()
    with pytest.raises(CutOffError):
        reproduce("spiral", out=tmp_path)
    assert kept("spiral.json") == (False, 1.0)
    assert json.loads((tmp_path / "summary.json").read_text())["spiral.value"]["value"] == 1.0
    monkeypatch.setattr(spiral_module, "run", whole)
    reproduce("spiral", out=tmp_path)
    assert kept("spiral.json") == (True, 2.0)
    # A complete result is not lost to a later run that is cut off.
    monkeypatch.setattr(spiral_module, "run", cut)
    with pytest.raises(CutOffError):
        reproduce("spiral", out=tmp_path)
    assert kept("spiral.json") == (True, 2.0)
    assert kept("spiral.partial.json") == (False, 1.0)
    monkeypatch.setattr(spiral_module, "run", whole)
    reproduce("spiral", out=tmp_path)
    assert not (tmp_path / "spiral.partial.json").exists()


def test_finished_parts_are_used_on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the small files of OUT/parts are carried over; checkpoints stay where they are."""
    made: list[str] = []

    def run(config: Any, context: RunContext) -> dict[str, Any]:
        def make(name: str) -> dict[str, Any]:
            if name == "third" and len(made) == 2:
                raise CutOffError
            made.append(name)
            return {"value": float(len(made))}

        return {"rows": [context.part(name, make) for name in ("first", "second", "third")]}

    monkeypatch.setattr(spiral_module, "headline", lambda results: {})
    monkeypatch.setattr(spiral_module, "plot", lambda results: Picture())
    monkeypatch.setattr(spiral_module, "run", run)
    with pytest.raises(CutOffError):
        reproduce("spiral", out=tmp_path / "here")
    shutil.copytree(tmp_path / "here" / "parts", tmp_path / "there" / "parts")
    made.append("elsewhere")
    record = reproduce("spiral", out=tmp_path / "there")
    assert made == ["first", "second", "elsewhere", "third"]
    assert [row["value"] for row in record["results"]["rows"]] == [1.0, 2.0, 4.0]
    assert not (tmp_path / "there" / "parts").exists()
    (damaged,) = (tmp_path / "here" / "parts").rglob("first.json")
    damaged.write_text("[1")
    with pytest.raises(
        FileFormatError, match=r"first\.json must be a result of mlayer reproduce; got something that is"
    ):
        reproduce("spiral", out=tmp_path / "here")
    reproduce("spiral", out=tmp_path / "here", resume=False)
    assert made[4:] == ["first", "second", "third"]


@pytest.mark.parametrize("name", [pytest.param("determinant", marks=pytest.mark.slow), "determinant5"])
def test_results_are_the_same_when_every_part_was_finished_before(name: str, tmp_path: Path) -> None:
    """Nothing is measured of a model whose training was left out."""
    module = experiment(name)
    first = module.run(module.SCALES["smoke"], RunContext(parts=tmp_path))
    assert module.run(module.SCALES["smoke"], RunContext(parts=tmp_path)) == first


def test_a_figure_that_is_no_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        runner.write_json(tmp_path / "x.json", {"value": float("nan")})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "error",
    [MissingDataError("put the file there"), MissingPackageError("a", "b", "c")],
    ids=["data", "package"],
)
def test_all_goes_on_without(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(config: Any, context: RunContext) -> Any:
        raise error

    monkeypatch.setattr(spiral_module, "run", lacking)
    monkeypatch.setattr("mlayer.experiments.running.runner.EXPERIMENTS", {"spiral": "", "temperatures": ""})
    records = reproduce_all("smoke", out=tmp_path)
    assert records["spiral"] == {"name": "spiral", "skipped": str(error)}
    assert "headline" in records["temperatures"]


def test_invalid_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ArgumentError, match=r"name must be one of 'spiral', .*; got 'spirals'. Did you mean 'spiral'"
    ):
        reproduce("spirals", out=tmp_path)
    with pytest.raises(ArgumentError, match="scale must be one of 'smoke', 'default', 'full'; got 'tiny'"):
        reproduce("spiral", "tiny", out=tmp_path)  # type: ignore[arg-type]
    monkeypatch.delenv("MLAYER_DATA", raising=False)
    with pytest.raises(MissingDataError, match=r"daily-min-temperatures\.csv is not in"):
        reproduce("temperatures", data=tmp_path, out=tmp_path)


def test_curves_are_written_in_a_line(tmp_path: Path) -> None:
    content = {"a": [1, -2.5, 3e-07], "b": {"c": [[1, 2], [3, 4]], "d": "[1,\n 2]", "e": []}}
    runner.write_json(tmp_path / "x.json", content)
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == content
    assert '"a": [ 1, -2.5, 3e-07 ]' in text

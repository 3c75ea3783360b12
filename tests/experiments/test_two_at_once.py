"""Two calls of `reproduce` in one folder at the same time."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from mlayer.disk import alone_in
from mlayer.errors import ArgumentError, UnwritableError
from mlayer.experiments import reproduce, spiral
from mlayer.experiments.running import runner

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no locks of folders")
RESULTS = {"rows": [], "seconds": 1.0}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spiral, "headline", lambda _: {"spiral.accuracy": 1.0})
    monkeypatch.setattr(runner, "write_picture", lambda *_: None)


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_that_goes_on_is_neither_joined_nor_removed(
    resume: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one that starts over removed the checkpoints of the first."""

    def run(_: Any, context: Any) -> dict[str, Any]:
        kept = context.checkpoint("training")
        kept.mkdir(exist_ok=True)
        context.part("one", lambda _: {"seconds": 1.0})
        monkeypatch.setattr(spiral, "run", lambda *_: pytest.fail("the second run began"))
        with pytest.raises(ArgumentError, match="where no other process works on this run; got"):
            reproduce("spiral", "smoke", out=tmp_path, resume=resume, page=False)
        assert kept.is_dir()
        assert context.parts is not None
        assert (context.parts / "one.json").is_file()
        return dict(RESULTS)

    monkeypatch.setattr(spiral, "run", run)
    assert reproduce("spiral", "smoke", out=tmp_path, page=False)["complete"]
    assert not (tmp_path / ".checkpoints").exists()
    assert not (tmp_path / "parts").exists()


def test_starting_over_removes_what_an_earlier_run_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def make(name: str) -> dict[str, Any]:
        made.append(name)
        return {"seconds": 1.0}

    def run(_: Any, context: Any) -> dict[str, Any]:
        context.part("one", make)
        if len(made) == 1:
            raise KeyboardInterrupt
        return dict(RESULTS)

    monkeypatch.setattr(spiral, "run", run)
    with pytest.raises(KeyboardInterrupt):
        reproduce("spiral", "smoke", out=tmp_path, resume=False, page=False)
    (kept,) = (tmp_path / ".checkpoints").iterdir()
    (kept / "link").symlink_to(tmp_path)
    reproduce("spiral", "smoke", out=tmp_path, resume=False, page=False)
    assert made == ["one", "one"]


@pytest.mark.parametrize("ends", [None, KeyboardInterrupt, ArgumentError("x", "y", "z", "w")])
def test_a_full_disk_does_not_end_a_run_whose_time_cannot_be_noted(
    ends: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hid the error that had ended the run, and ended one that was finished."""

    def run(_: Any, context: Any) -> dict[str, Any]:
        del context
        if ends is not None:
            raise ends
        return dict(RESULTS)

    def full(path: Path, *_: object) -> None:
        raise UnwritableError(path, OSError(28, "No space left on device"))

    monkeypatch.setattr(spiral, "run", run)
    monkeypatch.setattr(runner, "replace_bytes", full)
    monkeypatch.setattr(runner, "write_json", lambda *_: None)
    kind = ends if isinstance(ends, type) else type(ends)
    expected: Any = nullcontext() if ends is None else pytest.raises(kind)
    with expected:
        assert reproduce("spiral", "smoke", out=tmp_path, page=False)["complete"]


def test_two_experiments_that_end_at_once_are_both_in_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second read the summary before the first had written it, and left the first out."""
    reading, written = threading.Barrier(2), runner.write_json

    def slowly(path: Path, content: dict[str, Any]) -> None:
        if path.name == "summary.json":
            with suppress(threading.BrokenBarrierError):  # the other one reads meanwhile, where it can
                reading.wait(0.2)
        written(path, content)

    monkeypatch.setattr(runner, "write_json", slowly)

    def keep(name: str) -> None:
        about = dict.fromkeys(("command", "seed", "seconds", "date"), "")
        figures = {f"{name}.accuracy": 1.0}
        record = {"name": name, "scale": "full", "complete": True, "headline": figures, "results": {}}
        runner._keep(tmp_path, record | about, cast(Any, spiral))

    threads = [threading.Thread(target=keep, args=(name,)) for name in ("spiral", "waves")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(json.loads((tmp_path / "summary.json").read_text())) == {"spiral.accuracy", "waves.accuracy"}


def test_a_folder_that_was_removed_meanwhile_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with alone_in(folder, wait=False) as first, alone_in(folder, wait=False) as second:
        assert (first, second) == (True, False)
        folder.rmdir()
        with alone_in(folder, wait=False) as third:
            assert third
            assert folder.is_dir()

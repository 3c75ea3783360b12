"""OUT/parts and OUT/.checkpoints of `reproduce`, which may be copied: what belongs elsewhere is refused."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hostile import no_hang
from mlayer.errors import ArgumentError, FileFormatError, MLayerError
from mlayer.experiments import reproduce, spiral
from mlayer.experiments.running import runner
from mlayer.experiments.running.protocol import RunContext
from mlayer.experiments.running.registry import EXPERIMENTS

MADE = {"accuracy": 0.9871, "rows": [1.5, 2.0], "seconds": 3.0}
needs_pipes = pytest.mark.skipif(sys.platform == "win32", reason="no pipes")


def made(parts: Path, name: str = "one") -> dict[str, Any]:
    return RunContext(parts=parts).part(name, lambda _: dict(MADE))


def not_again(_: str) -> dict[str, Any]:
    pytest.fail("done again")


def test_a_part_comes_back_as_it_was_made(tmp_path: Path) -> None:
    first = made(tmp_path / "run")
    assert first == MADE | {"commit": first["commit"]}
    assert RunContext(parts=tmp_path / "run").part("one", not_again) == first


def test_parts_of_before_they_were_sealed_are_taken(tmp_path: Path) -> None:
    earlier = MADE | {"commit": None}
    (tmp_path / "one.json").write_text(json.dumps(earlier))
    assert RunContext(parts=tmp_path).part("one", not_again) == earlier


def renamed(parts: Path) -> None:
    (parts / "one.json").rename(parts / "two.json")


def of_another_run(parts: Path) -> None:
    made(parts.parent / "other", "two")
    (parts.parent / "other" / "two.json").rename(parts / "two.json")


def flipped(parts: Path) -> None:
    text = (parts / "one.json").read_text()
    (parts / "two.json").write_text(text.replace("0.9871", "0.9971"))


def cut(parts: Path) -> None:
    (parts / "two.json").write_bytes((parts / "one.json").read_bytes()[:40])


def not_a_number(parts: Path) -> None:
    (parts / "two.json").write_text('{"accuracy": NaN}')


def no_seal(parts: Path) -> None:
    (parts / "two.json").write_text(json.dumps({"sealed": [1], "record": MADE}))


def a_pipe(parts: Path) -> None:
    os.mkfifo(parts / "two.json")


def a_folder(parts: Path) -> None:
    (parts / "two.json").mkdir()


def a_hole(parts: Path) -> None:
    with (parts / "two.json").open("wb") as file:
        file.truncate(2**42)


@needs_pipes
@pytest.mark.parametrize(
    "change", [renamed, of_another_run, flipped, cut, not_a_number, no_seal, a_pipe, a_folder, a_hole]
)
def test_a_part_that_is_none_of_this_run_is_refused(change: Callable[[Path], None], tmp_path: Path) -> None:
    made(tmp_path / "run")
    change(tmp_path / "run")
    with no_hang(), pytest.raises(FileFormatError, match=r"two\.json must be"):
        RunContext(parts=tmp_path / "run").part("two", not_again)


@needs_pipes
def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    target = tmp_path / "precious"
    (tmp_path / "run" / "one.json").symlink_to(target)
    made(tmp_path / "run")
    assert not target.exists()
    assert (tmp_path / "run" / "one.json").is_file()


@needs_pipes
@pytest.mark.parametrize("place", [".checkpoints", "parts"])
def test_a_link_in_place_of_a_folder_is_said_before_the_run(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spiral, "run", lambda *_: pytest.fail("hours of work"))
    run = f"spiral-smoke-{runner._digest(asdict(spiral.SCALES['smoke']))}"
    (tmp_path / place).mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / place / run).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArgumentError, match="is no folder"):
        reproduce("spiral", "smoke", out=tmp_path)


@needs_pipes
@pytest.mark.parametrize("text", ["nan", "inf", "-5", "1e400", "x", "", "9" * 1000, None])
def test_forged_seconds_do_not_count(text: str | None, tmp_path: Path) -> None:
    """NaN would be an error when the result is written, after hours."""
    file = tmp_path / "seconds"
    if text is None:
        os.mkfifo(file)
    else:
        file.write_text(text)
    with no_hang():
        assert runner._seconds_before(tmp_path) == 0.0


@pytest.mark.parametrize("one", [3, {}, {"headline": 3}, {"headline": {"a": "x"}}])
def test_forged_records_of_finished_experiments_are_done_again(
    one: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Again(MLayerError):  # noqa: N818
        pass

    def again(*_: object, **__: object) -> None:
        raise Again

    monkeypatch.setattr(runner, "reproduce", again)
    (tmp_path / ".checkpoints").mkdir()
    finished = tmp_path / ".checkpoints" / f"all-smoke-{runner._digest([None])}.json"
    finished.write_text(json.dumps(dict.fromkeys(EXPERIMENTS, one)))
    with pytest.raises(Again):
        runner.reproduce_all("smoke", out=tmp_path)

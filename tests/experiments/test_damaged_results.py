"""A folder of results that others have written: what is no result is named, before hours of work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlayer.cli import main
from mlayer.errors import FileFormatError
from mlayer.experiments import reproduce, spiral
from mlayer.experiments.running.page import write_page
from mlayer.experiments.running.runner import _complete_scale

NO_RESULTS: dict[str, Any] = {
    "no JSON": "{",
    "deep": "[" * 100_000,
    "a list": "[1]",
    "a number": "3",
    "empty": "{}",
    "no results": json.dumps({"name": "spiral", "headline": {}, "results": None}),
    "results of another kind": json.dumps({"name": "spiral", "headline": [], "results": {"points": "x"}}),
    "bytes": "\udcff",
}


def write(file: Path, text: str) -> None:
    file.write_bytes(text.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("name", NO_RESULTS)
def test_the_page_names_the_file(name: str, tmp_path: Path) -> None:
    write(tmp_path / "spiral.smoke.json", NO_RESULTS[name])
    with pytest.raises(FileFormatError, match=r"spiral\.smoke\.json must be a result of mlayer reproduce"):
        write_page(tmp_path, smoke=True)
    assert not (tmp_path / "report.smoke.html").exists()


@pytest.mark.parametrize("name", NO_RESULTS)
def test_what_is_no_result_is_not_a_complete_one(name: str, tmp_path: Path) -> None:
    write(tmp_path / "spiral.json", NO_RESULTS[name])
    assert _complete_scale(tmp_path / "spiral.json") != "full"


@pytest.mark.parametrize("text", ["{", "[]", "\udcff"])
def test_a_damaged_summary_is_said_before_the_run(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spiral, "run", lambda *_: pytest.fail("hours of work"))
    write(tmp_path / "summary.json", text)
    with pytest.raises(FileFormatError, match=r"summary\.json must be a result"):
        reproduce("spiral", out=tmp_path)
    assert main(["reproduce", "spiral", "-o", str(tmp_path)]) == 2
    assert "summary.json must be a result" in capsys.readouterr().err

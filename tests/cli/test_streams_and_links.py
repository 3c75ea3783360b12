"""Standard streams that are closed or full, links that lead nowhere, Ctrl-C before a command begins."""

from __future__ import annotations

import importlib.abc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from mlayer.cli import main, show
from mlayer.cli.group import LazyGroup
from mlayer.disk import replace_bytes

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")


def called(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`mlayer ARGUMENTS` with streams redirected by a shell."""
    line = f'exec "$@" {redirection}'
    words = ["sh", "-c", line, "sh", sys.executable, "-m", "mlayer", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="no sh")
@pytest.mark.parametrize("redirection", [">&-", "<&- >&-"])
def test_a_closed_stdout_is_no_bug(redirection: str) -> None:
    done = called(redirection, "completion", "bash")
    assert (done.returncode, done.stderr) == (0, "")


@needs_full
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_a_mistake_has_its_exit_code_though_nobody_can_be_told(redirection: str) -> None:
    assert called(redirection, "completion", "nonsense").returncode == 2


def test_a_line_that_cannot_be_written_does_not_stop_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(click, "echo", full)
    show.say("1 %")
    monkeypatch.setattr(click, "echo", gone)
    with pytest.raises(BrokenPipeError):
        show.say("1 %")


class _Interrupted(importlib.abc.MetaPathFinder):
    """Ctrl-C while the command line is imported."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "mlayer.cli.run":
            raise KeyboardInterrupt


def test_ctrl_c_during_imports(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "mlayer.cli.run", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Interrupted(), *sys.meta_path])
    assert main(["completion", "bash"]) == 130
    assert capsys.readouterr().err == ""


def test_compiled_python_that_is_cut_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python leaves such files behind where a disk is full; the message was about a file of the user."""

    def short(name: str) -> None:
        raise EOFError("marshal data too short")

    monkeypatch.setattr("mlayer.cli.group.importlib.import_module", short)
    assert main(["info", "m.safetensors"]) == 2
    said = capsys.readouterr().err
    assert "a file of compiled Python is damaged" in said
    assert "Delete the folders __pycache__" in said


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,y\n" + "".join(f"{k},{k % 2}\n" for k in range(20)))
    Path("m.safetensors").write_bytes(b"")
    os.symlink("loop", "loop")
    os.symlink(tmp_path / "missing" / "file", "dangling")
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "words",
    [
        "info LINK",
        "predict LINK t.csv",
        "predict m.safetensors LINK -o out.csv",
        "predict m.safetensors t.csv -o LINK",
        "predict m.safetensors t.csv -o LINK --force",
        "certify m.safetensors t.csv -o LINK",
        "certify m.safetensors t.csv --rigorous --proof LINK",
        "check-proof m.safetensors t.csv LINK",
        "explain m.safetensors --plot LINK.png",
        "export LINK --onnx out.onnx",
        "export m.safetensors --onnx LINK",
        "fit LINK -t y",
        "fit t.csv -t y -o LINK",
        "fit t.csv -t y --report LINK",
        "demo -o LINK",
    ],
)
def test_links_that_lead_nowhere_are_mistakes_before_any_work(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlayer.tables.fit_table", lambda *_, **__: pytest.fail("the work began"))
    monkeypatch.setattr("mlayer.experiments.demo.run", lambda *_, **__: pytest.fail("the work began"))
    os.symlink("loop.png", "loop.png")
    os.symlink("missing/file.png", "dangling.png")
    for link in ("loop", "dangling"):
        assert main(words.replace("LINK", link).split()) == 2
        said = capsys.readouterr().err
        assert "bug" not in said
        assert len(said) > 20
    assert not Path("missing").exists()


@needs_full
@pytest.mark.parametrize(
    "how", [show.out, lambda text: show.emit_json({text: 1}), lambda text: show.table([text], [])]
)
@pytest.mark.parametrize("files", [[], ["model.file", "page.file"]])
def test_a_full_stdout_hides_no_file_that_was_written(
    how: Any,
    files: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
) -> None:
    """It was one line, "No space left on device", and the model seemed lost."""

    @click.command()
    def command() -> None:
        for name in files:
            replace_bytes(Path(name), b"")
        how("done")

    monkeypatch.setattr(LazyGroup, "get_command", lambda *_: command)
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["info"]) == 2
    kept = f"written before: {', '.join(files)}" if files else "no file was written"
    expected = f"mlayer: standard output cannot be written (No space left on device); {kept}\n"
    assert capsys.readouterr().err == expected


@needs_full
def test_rows_for_a_full_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(show.StdoutError, match="No space left"):
            show.results().write("a,b\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


def test_a_notebook_that_names_how_pictures_are_shown_stops_no_command() -> None:
    """A notebook hands on its environment, also to a Python where such a backend is not installed."""
    words = "from mlayer.cli import main; assert not main(['--version']); import matplotlib.figure"
    environment = os.environ | {"MPLBACKEND": "ipympl_of_another_python"}
    ran = subprocess.run(
        [sys.executable, "-c", words], env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")

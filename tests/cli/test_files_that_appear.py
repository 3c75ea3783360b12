"""A file that another program writes while a command works is not replaced, unless --force is given."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlayer import disk
from mlayer.checks import did_you_mean
from mlayer.cli.run import run
from mlayer.errors import UnwritableError

THEIRS = "of another program"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    there = tmp_path_factory.mktemp("race")
    drawn = np.random.default_rng(0).normal(size=(60, 2))
    frame = pd.DataFrame({"a": drawn[:, 0], "b": drawn[:, 1], "y": np.where(drawn[:, 0] > 0, "p", "q")})
    frame.to_csv(there / "t.csv", index=False)
    model = str(there / "m.safetensors")
    command = ["fit", str(there / "t.csv"), "--target", "y", "-o", model, "--epochs", "1", "-q"]
    assert run([*command, "--no-report"]) == 0
    return there


def appears(monkeypatch: pytest.MonkeyPatch, where: str, *files: Path) -> None:
    """Write the files when the work behind a command has been done."""
    package, _, name = where.rpartition(".")
    module = __import__(package, fromlist=[name])
    work = getattr(module, name)

    def work_and_more(*arguments: Any, **options: Any) -> Any:
        done = work(*arguments, **options)
        for file in files:
            file.write_text(THEIRS)
        return done

    monkeypatch.setattr(where, work_and_more)


COMMANDS = {
    "certify": (["certify", "m", "t.csv", "--rows", "1", "--eps", "0.001", "-o", "c.csv"], "c.csv"),
    "proof": (["certify", "m", "t.csv", "--rows", "1", "--proof", "p.safetensors"], "p.safetensors"),
}


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("force", [False, True])
def test_it_is_kept_unless_it_may_be_replaced(
    kind: str,
    force: bool,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    command, name = COMMANDS[kind]
    command = ["m.safetensors" if word == "m" else word for word in command]
    file = Path(name)
    appears(monkeypatch, "mlayer.tables.certify.certify_table.certify_table", file)
    assert run([*command, "-q", *(["--force"] if force else [])]) == (0 if force else 2)
    said = capfd.readouterr().err
    assert (file.read_bytes() == THEIRS.encode()) is not force
    assert force or f"{name} has appeared since this command began, and is not replaced" in said
    assert not list(folder.glob(".*.tmp"))
    file.unlink()


def test_a_trained_model_is_kept_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(tmp_path))
    appears(monkeypatch, "mlayer.tables.fit_table", Path("n.safetensors"))
    command = ["fit", "t.csv", "--target", "y", "-o", "n.safetensors", "--epochs", "1", "-q", "--no-report"]
    assert run(command) == 2
    assert Path("n.safetensors").read_text() == THEIRS
    assert "The model was kept in" in capfd.readouterr().err
    assert run(["info", str(tmp_path / "n.safetensors"), "-q"]) == 0


@pytest.mark.parametrize("links", [True, False])
def test_what_a_command_has_written_it_may_write_again(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(95, "no links on this disk")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    file = tmp_path / "a"
    with disk.new_files():
        disk.keep_new(file)
        disk.replace_bytes(file, b"one")
        disk.replace_bytes(file, b"two")
        assert file.read_bytes() == b"two"
        assert os.stat(file).st_nlink == 1
    with disk.new_files():
        disk.keep_new(tmp_path / "b")
        (tmp_path / "b").write_text(THEIRS)
        with pytest.raises(UnwritableError, match="is not replaced"):
            disk.replace_bytes(tmp_path / "b", b"ours")
    disk.replace_bytes(file, b"three")
    assert [one.name for one in tmp_path.iterdir() if one.suffix == ".tmp"] == []


@pytest.mark.skipif(os.name == "nt", reason="no masks there")
def test_a_mask_does_not_take_a_file_from_its_owner(tmp_path: Path) -> None:
    """It could be made and not be filled."""
    before = os.umask(0o777)
    try:
        disk.replace_bytes(tmp_path / "a", b"one")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_names_that_look_alike_are_told_apart() -> None:
    assert did_you_mean("caf\u00e9", ["cafe\u0301"], "") == (
        r"Did you mean 'cafe\u0301', which looks like 'caf\xe9'?"
    )
    assert did_you_mean("a b", ["a\u00a0b"], "") == r"Did you mean 'a\xa0b', which looks like 'a b'?"
    assert did_you_mean("Price ", ["price"], "") == "Did you mean 'price'?"

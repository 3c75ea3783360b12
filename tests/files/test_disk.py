"""Replacing a file and keeping the one before it."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from mlayer import errors as errors_module
from mlayer.disk import beside, replace_bytes
from mlayer.errors import (
    ArgumentError,
    ArgumentTypeError,
    FileFormatError,
    KernelError,
    MissingDataError,
    MissingPackageError,
    MLayerError,
    UnwritableError,
)
from mlayer.training import CheckpointError, Settings
from mlayer.training.many import RunsLostError


def test_a_kill_between_keeping_and_replacing_leaves_nothing_behind_later(tmp_path: Path) -> None:
    """After such a kill both names are of one file, and renaming one to the other does nothing."""
    state, before = tmp_path / "state", tmp_path / "before"
    state.write_bytes(b"first")
    os.link(state, before)
    replace_bytes(state, b"second", keep=before)
    assert (state.read_bytes(), before.read_bytes()) == (b"second", b"first")
    assert {path.name for path in tmp_path.iterdir()} == {"state", "before"}


def test_a_refused_rename_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, before = tmp_path / "state", tmp_path / "before"
    state.write_bytes(b"first")

    def refuse(source: os.PathLike[str], target: os.PathLike[str]) -> None:
        raise OSError(5, "the disk says no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="the disk says no"):
        replace_bytes(state, b"second", keep=before)
    assert {path.name for path in tmp_path.iterdir()} == {"state"}
    assert state.read_bytes() == b"first"


def test_files_are_replaced_under_the_rules_of_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There an open file is neither renamed nor removed, and what is open for reading not synchronized."""
    state, before = tmp_path / "state", tmp_path / "before"
    open_now: dict[int, tuple[str, int]] = {}
    system = {name: getattr(os, name) for name in ("open", "close", "fsync", "replace", "unlink")}

    def open_(path: Path, flags: int, mode: int = 0o777) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "a folder is not opened", str(path))
        descriptor: int = system["open"](path, flags, mode)
        open_now[descriptor] = (str(path), flags)
        return descriptor

    def close(descriptor: int) -> None:
        open_now.pop(descriptor, None)
        system["close"](descriptor)

    def fsync(descriptor: int) -> None:
        if not open_now[descriptor][1] & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EBADF, "Bad file descriptor")

    def not_open(name: str) -> Any:
        def call(*paths: Path) -> None:
            if {str(path) for path in paths} & {path for path, _ in open_now.values()}:
                raise PermissionError(errno.EACCES, "used by another process", str(paths[0]))
            system[name](*paths)

        return call

    fakes = {"open": open_, "close": close, "fsync": fsync}
    for name, fake in (fakes | {name: not_open(name) for name in ("replace", "unlink")}).items():
        monkeypatch.setattr(os, name, fake)
    monkeypatch.setattr(sys, "platform", "win32")
    replace_bytes(state, b"first")
    replace_bytes(state, b"second", keep=before)
    with pytest.raises(ZeroDivisionError), beside(state):
        raise ZeroDivisionError
    monkeypatch.undo()
    assert not open_now
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "state": b"second",
        "before": b"first",
    }


def test_a_name_that_leaves_no_room_for_more_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    for data in (b"first", b"second"):
        replace_bytes(path, data)
    assert path.read_bytes() == b"second"
    with pytest.raises(UnwritableError, match="File name too long") as caught:
        replace_bytes(tmp_path / ("n" * 256), b"")
    assert caught.value.errno == errno.ENAMETOOLONG
    assert [child.name for child in tmp_path.iterdir()] == [path.name]


def test_what_another_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with beside(path) as temporary:
        replace_bytes(path, b"by another")
        assert temporary.exists()
        temporary.write_bytes(b"mine")
        left = path.with_name(f".{path.name}.{'0' * 12}.tmp")
        left.write_bytes(b"of a killed process")
        other = path.with_name(".file.not-ours.tmp")
        other.write_bytes(b"of nobody")
        replace_bytes(path, b"again")
        assert (temporary.exists(), left.exists(), other.exists()) == (True, False, True)
    assert not temporary.exists()


def test_links_and_pipes_with_the_name_of_a_left_over_are_not_followed(tmp_path: Path) -> None:
    path, precious = tmp_path / "file", tmp_path / "precious"
    precious.write_bytes(b"precious")
    path.with_name(f".file.{'1' * 12}.tmp").symlink_to(precious)
    os.mkfifo(path.with_name(f".file.{'2' * 12}.tmp"))
    replace_bytes(path, b"data")
    assert precious.read_bytes() == b"precious"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EACCES])
def test_a_folder_that_cannot_be_synchronized_is_no_error(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        whole(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    replace_bytes(tmp_path / "file", b"data")
    assert (tmp_path / "file").read_bytes() == b"data"


def test_errors_survive_the_way_between_processes() -> None:
    """Joblib pickles them; one that cannot be unpickled looks like a killed process."""
    errors = [
        ArgumentError("a", "b", "c", "d"),
        ArgumentTypeError("a", "b", "c", "d"),
        FileFormatError(Path("p"), "b", "c", "d"),
        KernelError("k"),
        MissingDataError("m"),
        MissingPackageError("a", "b", "c"),
        UnwritableError("p", OSError(errno.ENOSPC, "full")),
        RunsLostError([1], [Settings()], [], True),
        CheckpointError("c"),
    ]
    kinds = {type(error) for error in errors}
    assert {getattr(errors_module, name) for name in errors_module.__all__} - kinds == {MLayerError}
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
        assert again.__dict__ == error.__dict__
        assert getattr(again, "errno", None) == getattr(error, "errno", None)

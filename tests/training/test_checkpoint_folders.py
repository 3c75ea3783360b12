"""Foreign entries in a checkpoint's folder, before a run and during it: files of others, links, pipes."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from problems import layer, product, same_weights

from hostile import no_hang
from mlayer.errors import ArgumentError
from mlayer.tensorfile import DamagedError
from mlayer.training import CheckpointError, CheckpointWarning, Settings, train
from mlayer.training.checkpoints import Checkpoints

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there, and no pipes")
FILES = ("state.safetensors", "before.safetensors", "history.jsonl")


def run(folder: Path | None, on_epoch: Callable[[int], None] = lambda _: None) -> torch.nn.Module:
    model = layer()
    with no_hang():
        train(
            model,
            product(),
            Settings(epochs=4),
            checkpoint=folder,
            checkpoint_seconds=0,
            on_epoch=lambda record: on_epoch(int(record["epoch"])),
        )
    return model


@pytest.fixture(scope="module")
def alone() -> torch.nn.Module:
    """The run without a folder."""
    return run(None)


def _link_elsewhere(file: Path) -> None:
    precious = file.parent.with_name("precious")
    precious.write_bytes(b"precious")
    file.symlink_to(precious)


SURPRISES: dict[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "link": _link_elsewhere,
    "link to nothing": lambda file: file.symlink_to(file.parent.with_name("nothing")),
    "link to itself": lambda file: file.symlink_to(file),
    "link to a folder": lambda file: file.symlink_to(file.parent),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("surprise", SURPRISES)
@pytest.mark.filterwarnings("ignore::mlayer.training.CheckpointWarning")
def test_what_appears_during_a_run_costs_neither_the_run_nor_another_file(
    surprise: str, name: str, tmp_path: Path, alone: torch.nn.Module
) -> None:
    folder = tmp_path / "run"

    def put(epoch: int) -> None:
        if epoch == 2:
            (folder / name).unlink(missing_ok=True)
            SURPRISES[surprise](folder / name)

    assert same_weights(run(folder, put), alone)
    assert {file.name for file in tmp_path.iterdir()} <= {"run", "precious"}
    if surprise == "link":
        assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_run_that_could_not_write_says_so(tmp_path: Path) -> None:
    def put(epoch: int) -> None:
        if epoch == 2:
            (tmp_path / "state.safetensors").unlink()
            (tmp_path / "state.safetensors").mkdir()

    with pytest.warns(CheckpointWarning, match="could not write the checkpoint .*training continues"):
        run(tmp_path, put)


@pytest.mark.parametrize("content", ["my notes\n", "[1]\n", '{"name": "x"}\n', "\udcff"])
def test_a_history_of_something_else_is_not_overwritten(content: str, tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"history\.jsonl must be the history of a run, or not there"):
        run(tmp_path)
    assert file.read_bytes() == content.encode("utf-8", "surrogateescape")


def test_a_history_whose_states_were_deleted_is_replaced(tmp_path: Path, alone: torch.nn.Module) -> None:
    run(tmp_path)
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    whole = (tmp_path / "history.jsonl").read_text().count("\n")
    assert same_weights(run(tmp_path), alone)
    assert (tmp_path / "history.jsonl").read_text().count("\n") == whole


def test_a_lock_of_something_else_is_not_emptied(tmp_path: Path) -> None:
    """A few versions of filelock empty the file that they lock."""
    (tmp_path / "lock").write_text("precious" * 100)
    with pytest.raises(CheckpointError, match="must be the lock of a run"):
        run(tmp_path)
    (tmp_path / "lock").unlink()
    (tmp_path / "precious").write_text("x")
    os.link(tmp_path / "precious", tmp_path / "lock")
    with pytest.raises(CheckpointError, match="must be the lock of a run"):
        run(tmp_path)


def test_every_earlier_state_of_a_run_leads_to_the_same_end(tmp_path: Path) -> None:
    """A file that was put back from a copy, next to a newer one."""
    kept: list[bytes] = []
    state = tmp_path / "run" / "state.safetensors"
    end = run(tmp_path / "run", lambda _: kept.append(state.read_bytes()))
    assert len(set(kept)) == 4
    for old in kept:
        state.write_bytes(old)
        assert same_weights(run(tmp_path / "run"), end)


@pytest.mark.filterwarnings("ignore::mlayer.training.CheckpointWarning")
def test_what_is_left_of_two_runs_is_not_mixed(tmp_path: Path) -> None:
    run(tmp_path / "run")
    other = layer(seed=1)
    train(other, product(), Settings(epochs=4), checkpoint=tmp_path / "other", checkpoint_seconds=0)
    state, before = tmp_path / "run" / "state.safetensors", tmp_path / "run" / "before.safetensors"
    shutil.copy(tmp_path / "other" / "state.safetensors", before)
    for damaged in (state.read_bytes()[:-1], b""):
        state.write_bytes(damaged)
        with pytest.raises(ArgumentError, match="starts from other weights"):
            run(tmp_path / "run")
    state.unlink()
    with pytest.raises(ArgumentError, match="starts from other weights"):
        run(tmp_path / "run")


@pytest.mark.parametrize("number", ["ENOLCK", "EOPNOTSUPP", "ENOSYS", "EINVAL"])
def test_a_disk_without_locks(
    number: str, tmp_path: Path, alone: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file stands for the lock there, and a second run is refused all the same."""
    import fcntl

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder = tmp_path / "run"

    def second(epoch: int) -> None:
        if epoch == 2:
            with pytest.raises(CheckpointError, match=r"no other run trains.*no locks.*delete .*lock"):
                run(folder)

    assert same_weights(run(folder, second), alone)
    assert {path.name for path in folder.iterdir()} == set(FILES), "the lock is gone with its run"
    assert same_weights(run(folder), alone)


@pytest.mark.parametrize("after", ["read_header", "check_seal"])
def test_a_file_that_is_replaced_while_it_is_read(
    after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content is that under the digest, or it is refused; never a mixture of two files."""
    from mlayer.training import checkpoints

    train(layer(), product(), Settings(epochs=1), checkpoint=tmp_path / "one")
    train(layer(seed=1), product(), Settings(epochs=1), checkpoint=tmp_path / "two")
    files = [tmp_path / name / "state.safetensors" for name in ("one", "two")]
    wanted = checkpoints._read(files[0])["model"]
    step = getattr(checkpoints, after)

    def replaced(*arguments: Any) -> Any:
        found = step(*arguments)
        shutil.copy(files[1], files[0])
        return found

    monkeypatch.setattr(checkpoints, after, replaced)
    if after == "read_header":
        with pytest.raises(DamagedError, match="another file than a moment ago"):
            checkpoints._read(files[0])
    else:
        found = checkpoints._read(files[0])["model"]
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_run_whose_folder_was_started_over_leaves_it_to_the_other(
    tmp_path: Path, alone: torch.nn.Module
) -> None:
    """A folder that is deleted takes the lock of its run with it, and the next run there makes a new one."""
    folder, taken = tmp_path / "run", ExitStack()

    def start_over(epoch: int) -> None:
        if epoch == 2:
            shutil.rmtree(folder)
            taken.enter_context(Checkpoints(folder).alone())
            (folder / "state.safetensors").write_bytes(b"of the other run")

    with taken, pytest.warns(CheckpointWarning, match="was replaced, and another run trains there"):
        assert same_weights(run(folder, start_over), alone), "to the end"
    assert (folder / "state.safetensors").read_bytes() == b"of the other run"
    assert {file.name for file in folder.iterdir()} <= {"lock", "state.safetensors"}


def test_a_lock_that_somebody_cleaned_away_is_taken_again(tmp_path: Path, alone: torch.nn.Module) -> None:
    """Programs that tidy temporary folders delete what has not changed for days."""
    seen = []

    def clean(epoch: int) -> None:
        if epoch == 2:
            (tmp_path / "lock").unlink()
        if epoch == 4:
            with pytest.raises(CheckpointError, match="another process or thread trains there"):
                run(tmp_path)
            seen.append(epoch)

    assert same_weights(run(tmp_path, clean), alone)
    assert seen
    state = Checkpoints(tmp_path).read()
    assert state is not None
    assert state["epoch"] == 4, "the last epochs are kept too"


@pytest.mark.parametrize("locks", [True, False])
def test_a_run_that_trained_meanwhile_and_has_ended_keeps_its_checkpoints(
    locks: bool, tmp_path: Path, alone: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is gone, cleaned away or with its end, and the first run took the folder for its own."""
    import fcntl

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if not locks:
        monkeypatch.setattr(fcntl, "flock", refuse)
    folder, kept = tmp_path / "run", list[bytes]()

    def start_over(epoch: int) -> None:
        if epoch == 2:
            shutil.rmtree(folder)
            train(layer(seed=5), product(), Settings(epochs=1), checkpoint=folder)
            (folder / "lock").unlink(missing_ok=not locks)
            kept.append((folder / "state.safetensors").read_bytes())

    with pytest.warns(CheckpointWarning, match="another run trains there, or has trained"):
        assert same_weights(run(folder, start_over), alone)
    assert [(folder / "state.safetensors").read_bytes()] == kept


def test_a_run_that_changes_its_folder_writes_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    run(Path("run"), lambda epoch: os.chdir(tmp_path / "other"))
    state = Checkpoints(tmp_path / "run").read()
    assert state is not None
    assert state["epoch"] == 4
    assert not list((tmp_path / "other").iterdir())

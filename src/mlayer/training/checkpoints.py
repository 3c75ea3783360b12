"""Checkpoints: one safetensors file, replaced as a whole, and the history as JSON lines next to it.

    FOLDER/state.safetensors     everything that the rest of the run depends on
    FOLDER/before.safetensors    the state before that one, in case the last one is damaged
    FOLDER/history.jsonl         one line per epoch, for people and scripts
    FOLDER/lock                  held while a process trains here

The state is a tree of dictionaries, lists, numbers and tensors. Tensors go into the file as they are, the
rest as JSON into its metadata (Python writes floats so that they are read back to the bit). No pickle. Every
byte is under a digest (see `mlayer.tensorfile`).
"""

from __future__ import annotations

import errno
import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlayer.checks import brief
from mlayer.disk import has_locks, make_folder, remove_left_over, replace_bytes
from mlayer.errors import FileFormatError, MLayerError, UnwritableError, in_one_line
from mlayer.tensorfile import DamagedError, check_seal, distinct, read_header, sealed, tensors_in
from mlayer.training.code_fingerprint import LONGEST_INTEGER

FORMAT = 9  # 3 had other digests of the data, 4 to 8 of what callables and loaders hold
_KEY = "mlayer-checkpoint"
_LARGEST_LOCK, _LONGEST_LINE = 200, 1 << 20  # bytes
_MUST_BE = "a checkpoint written by mlayer.training"


class CheckpointError(MLayerError, OSError):
    """A checkpoint cannot be written, and nothing was trained yet."""


class NotStorableError(MLayerError, TypeError):
    """A part of a run's state is no tensor, number or text, nor made of them."""

    def __init__(self, what: str, path: str) -> None:
        super().__init__(
            f"a checkpoint cannot hold {what}, at {path}: it holds tensors, numbers, texts, None, and lists, "
            "tuples and dictionaries of them. Keep other things out of the state and the options of the "
            "optimizer, or train without a checkpoint."
        )


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written or read; the last good one is kept or used."""


class Checkpoints:
    """The checkpoints of one run in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "state.safetensors"
        self.before = folder / "before.safetensors"
        self.history = folder / "history.jsonl"
        self._whole = True  # is the last state worth keeping when the next is written?
        self._lock: Any = None  # while a run holds the folder
        self._place: tuple[int, ...] | None = None  # of the lock's file
        self._written: tuple[int, ...] | None = None  # of the last state that was read or written here

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else may train in this folder for the time of a block; the lock ends with its process."""
        from filelock import FileLock, SoftFileLock, Timeout

        for file in (self.folder / "lock", self.file, self.before, self.history):
            # A link in a folder from others would have its target overwritten; a pipe would be waited for.
            if _is_no_file(file):
                raise CheckpointError(
                    f"checkpoint: {file} must be a file; got a link, a folder or a device. "
                    "Nothing was trained: remove it, or give another folder."
                )
        if _holds_something(self.folder / "lock"):  # some versions of filelock empty the file
            raise CheckpointError(
                f"checkpoint: {self.folder / 'lock'} must be the lock of a run; got another file. "
                "Nothing was trained: rename it, or give another folder."
            )
        try:
            make_folder(self.folder)
            soft = not has_locks(self.folder)
            self._lock = (SoftFileLock if soft else FileLock)(self.folder / "lock")
            self._take_lock()
        except Timeout:
            dead = (
                " This disk has no locks, so a killed process of another machine leaves its own there: if no "
                f"run trains there, delete {self.folder / 'lock'}."
            )
            raise CheckpointError(
                f"checkpoint: {self.folder} must be a folder where no other run trains; another process or "
                "thread trains there now. Nothing was trained: wait for its end, or give another folder."
                f"{dead if soft else ''}"
            ) from None
        except (OSError, NotImplementedError) as error:
            raise self._unwritable(error) from None
        try:
            yield
        finally:
            self._lock.release()
            self._lock = None

    def _take_lock(self) -> None:
        self._lock.acquire(timeout=0)
        self._place, self._written = _place(self.folder / "lock"), _place(self.file, True)

    def _hold_lock(self) -> None:
        """Raise if another run trains here now: a folder or lock that is deleted frees the place for it."""
        if self._lock is None or self._place == (now := _place(self.folder / "lock")):
            return
        # Where a lock is a file, that of another run is gone with its end, but its state is there.
        others = (_place(self.file, True) or self._written) != self._written
        if now is None and self.folder.is_dir() and not others:  # cleaned away: taken again
            self._lock.release()
            self._take_lock()
        elif now is not None or self.folder.is_dir():
            lock = self.folder / "lock"
            raise OSError(errno.EBUSY, f"{lock} was replaced, and another run trains there, or has trained")

    def tidy(self) -> None:
        """Remove the half-written files of a run that was killed."""
        for file in (self.file, self.before, self.history, self.folder / "lock"):
            remove_left_over(file)

    def read(self) -> dict[str, Any] | None:
        """The last state that is whole, or None if there is none at all."""
        damages = []
        for file in (self.file, self.before):
            if not file.is_file():
                continue
            try:
                state = _read(file)
            except FileNotFoundError:  # replaced in between
                continue
            except (DamagedError, OSError) as error:
                damages.append((file, error))
                continue
            if damages:
                self._whole = False
                warnings.warn(
                    f"the checkpoint {damages[0][0]} is damaged ({damages[0][1]}); the one before it, "
                    f"{file.name}, is used: what was done since then is done again.",
                    CheckpointWarning,
                    stacklevel=3,
                )
            return state
        if damages:
            raise FileFormatError(
                damages[0][0], _MUST_BE, f"a damaged file ({damages[0][1]})", "Delete it to start over."
            )
        return None

    def write_first(self, state: dict[str, Any]) -> None:
        """Write before the first step, so that a place that cannot be written costs nothing."""
        if _is_of_others(self.history):
            raise CheckpointError(
                f"checkpoint: {self.history} must be the history of a run, or not there; got a file of "
                "something else. Nothing was trained: rename it, or give another folder."
            )
        try:
            make_folder(self.folder)
            size = self._write(state)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise self._unwritable(error) from None
        # The old files and the new one are there together, and best weights and history come on top.
        if free < 4 * size:
            raise CheckpointError(
                f"checkpoint: {self.folder} must have space for {4 * size / 1e6:.1f} MB; "
                f"{free / 1e6:.1f} MB are free. Nothing was trained yet: choose another folder or free space."
            )

    def _unwritable(self, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"checkpoint: {self.folder} must be a folder that can be written; got {_reason(error)}. "
            "Nothing was trained yet: choose another folder or free some space."
        )

    def write(self, state: dict[str, Any]) -> bool:
        """Replace the last state. On failure warn, and keep the last one and the training."""
        try:
            self._write(state)
        except (OSError, MLayerError) as error:  # also a folder or a pipe that is there suddenly
            warnings.warn(
                f"could not write the checkpoint {self.file} ({_reason(error)}); the one before is kept, "
                "training continues and will try again. Free some space, or the work "
                "since then is lost if it stops.",
                CheckpointWarning,
                stacklevel=3,
            )
            return False
        return True

    def _write(self, state: dict[str, Any]) -> int:
        self._hold_lock()
        tensors: dict[str, Tensor] = {}
        tree = _flatten(state, tensors)
        data = sealed(tensors, {_KEY: json.dumps({"format": FORMAT, "tree": tree})})
        replace_bytes(self.file, data, keep=self.before if self._whole else None, follow=False)
        self._whole, self._written = True, _place(self.file, True)
        lines = "".join(json.dumps(record) + "\n" for record in state["history"]).encode()
        if not _holds(self.history, lines):
            replace_bytes(self.history, lines, follow=False)
        return len(data)


def _read(file: Path) -> dict[str, Any]:
    header = read_header(file)
    if _KEY not in header.metadata and "digest" not in header.metadata:
        raise FileFormatError(file, _MUST_BE, "another safetensors file", "Choose another folder.")
    about = _about(header.metadata.get(_KEY, ""))
    if about.get("format") == 1:  # of a mlayer that did not seal its files
        raise FileFormatError(file, f"of format {FORMAT}", "format 1", "Use the mlayer that wrote it.")
    data = check_seal(file, header)
    if about.get("format") != FORMAT:
        raise FileFormatError(
            file, f"of format {FORMAT}", f"format {about.get('format')}", "Use the mlayer that wrote it."
        )
    try:
        tree = _unflatten(about["tree"], tensors_in(data))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedError(f"an inconsistent state: {error!r}"[:300]) from None
    if not isinstance(tree, dict):
        raise DamagedError("no state")
    return tree


def _holds(path: Path, data: bytes) -> bool:
    """Whether this is the content of a file; one of another size is not read."""
    return path.exists() and path.stat().st_size == len(data) and path.read_bytes() == data


def _is_no_file(path: Path) -> bool:
    """Whether something else is there."""
    try:
        return path.is_symlink() or (path.exists() and not path.is_file())
    except OSError:  # nobody may look: writing there will say why
        return False


def _is_of_others(history: Path) -> bool:
    """Whether a file is there that no run wrote; what is left of a run whose state was deleted is none."""
    try:
        with history.open("rb") as file:
            first = file.readline(_LONGEST_LINE)
    except OSError:
        return False
    try:
        return bool(first) and "epoch" not in _about(first.decode())
    except (DamagedError, UnicodeDecodeError):
        return True


def _place(file: Path, content: bool = False) -> tuple[int, ...] | None:
    """The identity of a file on its disk, or also of its content; None if none is there."""
    try:
        about = file.stat(follow_symlinks=False)
    except OSError:
        return None
    content_too = (about.st_size, about.st_mtime_ns) if content else ()
    return (about.st_dev, about.st_ino, *content_too)


def _holds_something(lock: Path) -> bool:
    """Whether a file is no lock: those are empty, or hold the number of a process."""
    try:
        about = lock.stat()
    except OSError:
        return False
    return about.st_nlink > 1 or about.st_size > _LARGEST_LOCK


def _about(text: str) -> dict[str, Any]:
    try:
        about = json.loads(text, object_pairs_hook=distinct)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"a header that is not JSON ({in_one_line(error)})"[:300]) from None
    if not isinstance(about, dict):
        raise DamagedError("a header that is not a JSON object")
    return about


def _reason(error: Exception) -> str:
    return error.why if isinstance(error, UnwritableError) else str(error)


def _flatten(tree: Any, tensors: dict[str, Tensor], path: str = "state") -> Any:
    if isinstance(tree, Tensor):
        name = str(len(tensors))
        tensors[name] = tree.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(tree, dict):
        # As pairs: the keys of an optimizer's state are integers, which JSON would make strings.
        inside = {key: f"{path}[{_storable(key, path)!r:.40}]" for key in tree}
        return {"dict": [[key, _flatten(tree[key], tensors, where)] for key, where in inside.items()]}
    if isinstance(tree, tuple | list):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {kind: [_flatten(one, tensors, f"{path}[{place}]") for place, one in enumerate(tree)]}
    if isinstance(tree, int) and tree.bit_length() > LONGEST_INTEGER:
        raise NotStorableError(f"an integer of {tree.bit_length()} bits", path)
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise NotStorableError(type(tree).__name__, path)


def _storable(key: Any, path: str) -> Any:
    if not isinstance(key, bool | int | float | str | None):  # JSON has no others
        raise NotStorableError(f"the key {brief(key)}", path)
    return key


def _unflatten(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unflatten(value, tensors) for key, value in content}
    values = [_unflatten(value, tensors) for value in content]
    return tuple(values) if kind == "tuple" else values

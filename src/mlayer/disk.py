"""Writing a file so that a crash leaves the old one whole; the error for a file that is not there.

A new file is filled under a temporary name next to the old one, pushed to the disk and renamed. Its process
holds a lock on it meanwhile, so that the next writer can tell a file in use from one that a killed process
left behind, and remove the latter. `tests/reliability` fails each of these steps in turn.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from mlayer.errors import ArgumentError, MLayerError, UnwritableError, in_one_line

if sys.platform != "win32":
    import fcntl

_LONGEST_NAME = 200  # bytes; file systems take 255, and the temporary name is longer than the file's
# A disk that has no locks, or a folder that cannot be synchronized: the file is written anyway.
_NOT_SUPPORTED = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EMLINK}
_OWN = stat.S_IRUSR | stat.S_IWUSR
_NOT_ALLOWED = {errno.EACCES, errno.EPERM}
_NEW: ContextVar[set[Path] | None] = ContextVar("_NEW", default=None)  # see new_files
_WRITTEN: ContextVar[list[Path] | None] = ContextVar("_WRITTEN", default=None)  # the same


def absent(path: Path, endings: tuple[str, ...], hint: str) -> FileNotFoundError:
    """A FileNotFoundError that lists the files with these endings in the folder, or gives ``hint``."""
    folder = path if path.is_dir() else path.parent
    near = sorted(other.name for other in folder.glob("*") if other.suffix in endings)
    there = f"There are: {', '.join(near[:8])}." if near else hint
    return FileNotFoundError(f"no file {path}{', but a folder' if path.is_dir() else ''}. {there}")


def make_folder(path: Path) -> None:
    """Make the folder and those above it, where they are not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableError(path, error, "Name another folder.") from error


def replace_file(
    path: Path, write: Callable[[Path], None], *, keep: Path | None = None, follow: bool = True
) -> None:
    """Let ``write`` fill a new file next to ``path``, push it to the disk, then rename it to ``path``.

    A link is followed: the file that it points to is replaced. Permissions, access lists and other extended
    attributes of an old file are kept, and its owner where the system allows that. While it is filled the
    new file is not readable by users who cannot read the old one. Devices and pipes are refused.

    Args:
        path: the file.
        write: fills the file it is given.
        keep: a name in the same folder under which the old file stays.
        follow: False to replace a link itself, in folders where only this program writes.

    Raises:
        UnwritableError: the disk refused. What was at ``path`` is still there.
    """
    with refusals(path):
        path = checked_target(path, follow=follow)
        with beside(path) as temporary:
            write(temporary)
            _sync(temporary)
            link = path.is_symlink()  # only where links are not followed
            if path.is_file() and not link:
                _make_alike(temporary, path)
            if keep is not None and path.exists() and not link:
                _keep(path, keep)
            _rename(temporary, path)
        _sync_folder(path.parent)


@contextmanager
def new_files() -> Iterator[list[Path]]:
    """A block in which files marked by :func:`keep_new` are never replaced; yields the files written."""
    written: list[Path] = []
    tokens = _NEW.set(set()), _WRITTEN.set(written)
    try:
        yield written
    finally:
        _NEW.reset(tokens[0])
        _WRITTEN.reset(tokens[1])


def keep_new(path: Path) -> None:
    """Mark ``path`` as new: writing it fails if another program has created it meanwhile."""
    new = _NEW.get()
    if new is not None:
        new.add(followed(path).absolute())


def _rename(temporary: Path, path: Path) -> None:
    """Rename and record it; a file marked as new is not replaced, even if it appears at this moment."""
    _rename_unless_new(temporary, path)
    written = _WRITTEN.get()
    if written is not None and path not in written:
        written.append(path)


def _rename_unless_new(temporary: Path, path: Path) -> None:
    new = _NEW.get()
    if not new or path.absolute() not in new:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)
    except OSError as error:
        if path.exists():
            reason = f"{path} has appeared since this command began, and is not replaced"
            raise FileExistsError(errno.EEXIST, reason) from None
        if error.errno not in _NOT_SUPPORTED | _NOT_ALLOWED:
            raise
        os.replace(temporary, path)  # no links on this disk
    new.discard(path.absolute())  # what this command has written it may write again


def checked_target(path: Path, *, follow: bool = True) -> Path:
    """The file that will be replaced, through links; raises if it can be none, before any work is done."""
    path = followed(path) if follow else path
    if path.is_dir() and (follow or not path.is_symlink()):
        raise ArgumentError("path", "a file", f"the folder {path}", "Name a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} for {path.name}. Create it first.")
    if path.exists() and not path.is_file() and (follow or not path.is_symlink()):
        raise ArgumentError(
            "path",
            "a file",
            f"the device, pipe or socket {path}",
            "Name a file, or leave it out to print.",
        )
    return path


def replace_bytes(path: Path, data: bytes, *, keep: Path | None = None, follow: bool = True) -> None:
    """Replace the file at ``path`` by ``data``, all or nothing."""
    replace_file(path, lambda temporary: _write(temporary, data), keep=keep, follow=follow)


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn errors of the system while ``path`` is written into ones that name it and say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None or isinstance(error, MLayerError):  # says what to do already
            raise
        raise UnwritableError(path, error) from error


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """An empty file in the folder of ``path``, removed at the end unless it was renamed.

    Files of this kind that killed processes left behind are removed first.
    """
    remove_left_over(path)
    temporary, descriptor = _temporary(path)
    if sys.platform == "win32":  # where an open file can be neither renamed nor removed
        os.close(descriptor)
    try:
        yield temporary
    finally:
        with suppress(OSError):  # a disk that became read-only: what went wrong first is what counts
            temporary.unlink(missing_ok=True)
        if sys.platform != "win32":
            os.close(descriptor)


def has_locks(folder: Path) -> bool:
    """Whether the disk of a folder has locks that end with their process; some network disks have none."""
    if sys.platform == "win32":
        return True
    temporary = _temporary_name(folder / "lock")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.unlink(temporary)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NOT_SUPPORTED
    finally:
        os.close(descriptor)
    return True


@contextmanager
def alone_in(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Lock the folder against other processes and threads; yields whether the lock was obtained.

    The folder is made. The lock leaves no file behind and ends with its process; where the disk or the system
    has no locks, the answer is yes.

    Args:
        folder: may be removed inside the block.
        wait: until another block has ended; otherwise the answer is no, at once.
    """
    if sys.platform == "win32":
        make_folder(folder)
        yield True
        return
    while True:
        make_folder(folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                held = True
            except OSError as error:  # network disks say EBADF: they lock only what is open for writing
                held = error.errno in _NOT_SUPPORTED | {errno.EBADF}
            if held and not _is_at(descriptor, folder):  # removed by the block before, as it ended
                continue
            yield held
            return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether what is open is still what stands at the path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def remove_left_over(path: Path) -> None:
    """Remove the temporary files of killed processes that wrote ``path``."""
    if sys.platform == "win32":
        return
    pattern = re.compile(re.escape(f".{_short(path.name)}.") + r"[0-9a-f]{12}\.tmp")
    with suppress(OSError), os.scandir(path.parent) as entries:  # a folder may be writable but not readable
        for entry in entries:
            if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):  # in use, or just removed by another
                    descriptor = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        os.unlink(entry.path)
                    finally:
                        os.close(descriptor)


def followed(path: Path) -> Path:
    """The path that a link leads to, even if no file is there yet; other paths unchanged."""
    try:
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError) as error:  # links in a circle: which of the two depends on Python
        if isinstance(error, OSError) and error.errno != errno.ELOOP:
            raise
        raise ArgumentError(
            "path",
            "a file",
            f"{path}, a link that leads nowhere ({in_one_line(error)})",
            "Name the file itself.",
        ) from None


def _temporary(path: Path) -> tuple[Path, int]:
    """A new file next to ``path``, and the descriptor that holds its lock."""
    while True:
        temporary = _temporary_name(path)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _least_mode(path))
        if sys.platform == "win32":
            return temporary, descriptor
        made = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if made & _OWN != _OWN:  # a mask that takes a file from its own owner, who is to fill it
            os.fchmod(descriptor, made | _OWN)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = os.fstat(descriptor).st_nlink == 0
        except OSError as error:
            taken = error.errno not in _NOT_SUPPORTED
        if not taken:
            return temporary, descriptor
        os.close(descriptor)  # another process took it for a left-over before it was locked


def _least_mode(path: Path) -> int:
    """The mode with which a new file for ``path`` starts: that of the old one, writable by its owner."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o666 | _OWN
    except OSError:  # a new one: as the user's mask has it
        return 0o666


def _make_alike(new: Path, old: Path) -> None:
    """Give the new file the permissions of the old one."""
    about = old.stat()
    if sys.platform != "win32":
        made = new.stat()
        if (made.st_uid, made.st_gid) != (about.st_uid, about.st_gid):
            with suppress(OSError):  # only root gives files away
                os.chown(new, about.st_uid, about.st_gid)
    if sys.platform == "linux":
        with suppress(OSError):  # a disk without them
            for name in os.listxattr(old):  # access lists are among them
                with suppress(OSError):
                    os.setxattr(new, name, os.getxattr(old, name))
    os.chmod(new, stat.S_IMODE(about.st_mode))


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{_short(path.name)}.{secrets.token_hex(6)}.tmp")


def _short(name: str) -> str:
    """The name, or its SHA-256 if a temporary name made from it would be too long."""
    data = os.fsencode(name)
    return name if len(data) <= _LONGEST_NAME else hashlib.sha256(data).hexdigest()


def _keep(path: Path, other: Path) -> None:
    """A second name for the file, so that there is one under its own name at every moment."""
    linked = _temporary_name(other)
    try:
        os.link(path, linked)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED | _NOT_ALLOWED:
            raise
        os.replace(path, other)  # no links on this disk: for a moment only the other name is there
        return
    try:
        os.replace(linked, other)
    finally:
        # Renaming one name of a file to another name of the same file does nothing (POSIX), and both
        # are names of one file after a kill between this function and the replacement of ``path``.
        with suppress(OSError):
            linked.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _sync(path: Path) -> None:
    # Windows synchronizes only what is open for writing.
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Push the renaming itself to the disk, where the system can do that."""
    try:
        _sync(folder)
    except OSError as error:
        # Windows cannot open folders, nor can anybody who may write in a folder but not read it.
        if error.errno not in _NOT_SUPPORTED | _NOT_ALLOWED:
            raise UnwritableError(
                folder, error, "The new file is in its place, but a loss of power may still undo that."
            ) from error

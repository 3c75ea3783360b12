"""The files of the real data sets: their folders, checksums and sources."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from mlayer.checks import flag
from mlayer.errors import ArgumentError, ArgumentTypeError, FileFormatError, MissingDataError
from mlayer.memory import check_size

VARIABLE = "MLAYER_DATA"

DataPath = str | os.PathLike[str] | None

_COPIES = 4  # of a file in memory, while it is unpacked and put in order


@dataclass(frozen=True)
class SourceFile:
    """One file of a set."""

    name: str  # of the file
    # of the published file, then those of other accepted forms of it (for example unpacked)
    sha256: tuple[str, ...]
    url: str  # where it is published
    # where under the data folder it is looked for; the first is where it should be put
    folders: tuple[str, ...]
    # a table of which copies differ in quotes and line ends; the checksum is computed without them
    text: bool = False
    archive: str = ""  # the SHA-256 of the archive at ``url`` that holds the file
    # how many bytes at the start say when and by what the file was written, as in MATLAB's format
    remark: int = 0
    # the SHA-256 of what follows them, in accepted copies that differ in their remark
    without_remark: tuple[str, ...] = ()


def data_folder(data: DataPath = None) -> Path | None:
    """The folder that ``data`` or else ``$MLAYER_DATA`` names; None if neither does."""
    if data is None:
        data = os.environ.get(VARIABLE) or None
        if data is None:
            return None
        argument = f"${VARIABLE}"
    else:
        argument = "data"
    if not isinstance(data, str | os.PathLike):
        raise ArgumentTypeError(argument, "the path of a folder", type(data).__name__, "For example 'data'.")
    folder = Path(data)
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(
            argument, "a folder", f"the file {folder}", "Name the folder that holds the data sets."
        )
    return folder


def locate(folder: Path | None, file: SourceFile) -> Path | None:
    """The path of ``file`` below ``folder``, packed or not, or None."""
    if folder is None:
        return None
    for place in file.folders:
        for name in (file.name, file.name.removesuffix(".gz")):
            path = folder / place / name
            if path.is_file():
                return path
    return None


def find(data: DataPath, file: SourceFile, *, verify: bool = True) -> Path:
    """The path of ``file``, its checksum compared, or an error that says what to put where."""
    wanted = flag("verify", verify)
    folder = data_folder(data)
    path = locate(folder, file)
    if path is None:
        raise missing(folder, file)
    check_size(path, _COPIES)
    if wanted:
        check_sum(path, file)
    return path


def missing(folder: Path | None, file: SourceFile, why: str = "") -> MissingDataError:
    """The error that says which file to put where."""
    place = Path("DIR") if folder is None else folder
    where = place / file.folders[0] / file.name
    start = (
        f"No data folder is given (argument data, or ${VARIABLE}), so {file.name} cannot be looked for."
        if folder is None
        else f"{file.name} is not in {folder}."
    )
    rest = " and name that DIR" if folder is None else ""
    return MissingDataError(
        f"{start} {why + ' ' if why else ''}Get it from {file.url} and put it at {where}{rest}; "
        "or have it fetched where there is a network (download=True; mlayer reproduce --download)."
    )


def check_sum(path: Path, file: SourceFile) -> None:
    """Refuse a file that is not the published one."""
    came = digest(path, file)
    if came not in file.sha256 and not (file.remark and sha256_of(path, file.remark) in file.without_remark):
        raise FileFormatError(
            path,
            f"the published file, SHA-256 {file.sha256[0]}",
            f"SHA-256 {came}",
            f"Get it again from {file.url}, or pass verify=False to read it anyway.",
        )


def digest(path: Path, file: SourceFile) -> str:
    """The SHA-256 of what is at ``path``."""
    if file.text:
        return hashlib.sha256(_NO_CONTENT.sub(b"", path.read_bytes()).strip()).hexdigest()
    return sha256_of(path)


def sha256_of(path: Path, start: int = 0) -> str:
    """SHA-256 of the bytes of a file from ``start`` on."""
    with path.open("rb") as stream:
        stream.seek(start)
        return hashlib.file_digest(stream, "sha256").hexdigest()


_NO_CONTENT = re.compile(rb'["\r]')

"""Where the files of the real sets lie, what their sums are, and where they come from."""

from __future__ import annotations

import hashlib
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

from mlayer.checks import flag
from mlayer.errors import ArgumentError, ArgumentTypeError, FileFormatError, MissingDataError

VARIABLE = "MLAYER_DATA"

DataPath = str | os.PathLike[str] | None


class DataWarning(UserWarning):
    """A file is readable but is not the published one."""


@dataclass(frozen=True)
class SourceFile:
    """One file of a set.

    Attributes:
        name: of the file.
        md5: of the published file, with the sums of accepted other forms of it (unpacked) behind.
        url: where it is published.
        folders: where under the data folder it is looked for; the first is where it should be put.
        strict: refuse another sum; otherwise warn. (Copies of SVHN rebuilt from the full-number images
            hold the same digits in another container.)
    """

    name: str
    md5: tuple[str, ...]
    url: str
    folders: tuple[str, ...]
    strict: bool = True


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
    """The path of ``file``, its sum checked, or an error that says what to put where."""
    wanted = flag("verify", verify)
    folder = data_folder(data)
    path = locate(folder, file)
    if path is None:
        raise missing(folder, file)
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
    """Refuse a changed file, or warn if the set allows other containers."""
    with path.open("rb") as stream:
        came = hashlib.file_digest(stream, "md5").hexdigest()
    if came in file.md5:
        return
    if not file.strict:
        warnings.warn(
            f"{path} is not the published file (md5 {came}, published {file.md5[0]}); read all the same.",
            DataWarning,
            stacklevel=4,
        )
        return
    raise FileFormatError(
        path,
        f"the published file, md5 {file.md5[0]}",
        f"md5 {came}",
        f"Get it again from {file.url}, or pass verify=False to read it all the same.",
    )

"""Fetching a file of a data set: to a temporary name, summed on the way, then renamed."""

from __future__ import annotations

import hashlib
import os
import secrets
import tarfile
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from mlayer.datasets.places import VARIABLE, DataPath, DataWarning, SourceFile, data_folder, locate, missing
from mlayer.errors import ArgumentError, FileFormatError

# Called with the file's name, the bytes that have come, and the bytes expected (None: not known).
Progress = Callable[[str, int, int | None], None]

_PIECE = 1 << 18


def fetch(data: DataPath, files: Sequence[SourceFile], progress: Progress | None = None) -> None:
    """Download those of ``files`` that the data folder lacks."""
    folder = data_folder(data)
    if folder is None:
        raise ArgumentError(
            "data", f"given (or ${VARIABLE} set) for a download", "None", "Name the folder to download into."
        )
    for file in files:
        if locate(folder, file) is None:
            _fetch_one(folder, file, progress)


def _fetch_one(folder: Path, file: SourceFile, progress: Progress | None) -> None:
    target = folder / file.folders[0] / file.name
    archive = file.url.endswith(".tar.gz")
    arriving = Path(file.url).name if archive else file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{arriving}.{secrets.token_hex(6)}.tmp"
    try:
        try:
            digest = _stream(file.url, arriving, temporary, progress)
        except OSError as error:  # urllib's errors are OSErrors
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise missing(folder, file, f"The download failed ({reason}).") from None
        if archive:
            _unpack(temporary, target.parent)
        else:
            _judge(digest, target, file)
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _stream(url: str, name: str, path: Path, progress: Progress | None) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    request = urllib.request.Request(url, headers={"User-Agent": "mlayer"})
    with urllib.request.urlopen(request, timeout=30) as answer, path.open("wb") as out:
        length = answer.headers.get("Content-Length")
        total = int(length) if length else None
        come = 0
        while piece := answer.read(_PIECE):
            out.write(piece)
            digest.update(piece)
            come += len(piece)
            if progress is not None:
                progress(name, come, total)
        if total is not None and come != total:
            raise OSError(f"only {come} of {total} bytes came")
    return digest.hexdigest()


def _judge(digest: str, target: Path, file: SourceFile) -> None:
    if digest in file.md5:
        return
    if file.strict:
        raise FileFormatError(
            target,
            f"the published file, md5 {file.md5[0]}",
            f"md5 {digest} from {file.url}",
            "The source has changed or the network meddles: get the file another way.",
        )
    warnings.warn(f"{file.url} has md5 {digest}, published {file.md5[0]}.", DataWarning, stacklevel=5)


def _unpack(archive: Path, folder: Path) -> None:
    """The plain files of the archive, without its folders: nothing can land outside ``folder``."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                stream = tar.extractfile(member) if member.isfile() else None
                if stream is None:
                    continue
                target = folder / Path(member.name).name
                temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
                try:
                    with temporary.open("wb") as out:
                        while piece := stream.read(_PIECE):
                            out.write(piece)
                    os.replace(temporary, target)
                finally:
                    temporary.unlink(missing_ok=True)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise FileFormatError(
            archive, "a .tar.gz archive", f"something else ({error})", "Try again."
        ) from None

"""Fetching a file of a data set: to a temporary name, its sum checked, then renamed.

Whatever stops a download, no file stays behind under a name that a loader looks for.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import secrets
import tarfile
import urllib.error
import urllib.request
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from mlayer.checks import flag, function
from mlayer.datasets.places import VARIABLE, DataPath, DataWarning, SourceFile, data_folder, locate, missing
from mlayer.errors import ArgumentError, FileFormatError

# Called with the file's name, the bytes that have come, and the bytes expected (None: not known).
Progress = Callable[[str, int, int | None], None]

_PIECE = 1 << 18


def fetch(
    data: DataPath, files: Sequence[SourceFile], progress: Progress | None = None, *, download: bool = True
) -> None:
    """Download those of ``files`` that the data folder lacks, if ``download`` says so."""
    function("progress", progress, "(name, bytes, bytes in all)", 3)
    if not flag("download", download):
        return
    folder = data_folder(data)
    if folder is None:
        raise ArgumentError(
            "data", f"given (or ${VARIABLE} set) for a download", "None", "Name the folder to download into."
        )
    for file in files:
        if locate(folder, file) is None:  # an archive may have brought it with another
            _fetch_one(folder, file, files, progress)


def _fetch_one(
    folder: Path, file: SourceFile, files: Sequence[SourceFile], progress: Progress | None
) -> None:
    target = folder / file.folders[0] / file.name
    archive = file.url.endswith(".tar.gz")
    arriving = Path(file.url).name if archive else file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{arriving}.{secrets.token_hex(6)}.tmp"
    try:
        try:
            digest = _stream(file.url, arriving, temporary, progress)
        except (OSError, http.client.HTTPException) as error:  # urllib's errors are OSErrors
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise missing(folder, file, f"The download failed ({reason}).") from None
        if archive:
            _unpack(temporary, folder, [other for other in files if other.url == file.url])
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


def _unpack(archive: Path, folder: Path, files: Sequence[SourceFile]) -> None:
    """Those members of the archive that are ``files``, by their names alone: nothing can land elsewhere."""
    wanted = {file.name: file for file in files}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                file = wanted.get(Path(member.name).name)
                stream = tar.extractfile(member) if file is not None and member.isfile() else None
                if file is not None and stream is not None:
                    _place(stream, folder / file.folders[0] / file.name, file)
                    del wanted[file.name]
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise FileFormatError(
            archive, "a .tar.gz archive", f"something else ({error})", "Try again."
        ) from None
    if wanted:
        names = ", ".join(wanted)
        raise FileFormatError(files[0].url, f"an archive that holds {names}", "one without", "Try again.")


def _place(stream: IO[bytes], target: Path, file: SourceFile) -> None:
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with temporary.open("wb") as out:
            while piece := stream.read(_PIECE):
                out.write(piece)
                digest.update(piece)
        _judge(digest.hexdigest(), target, file)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)

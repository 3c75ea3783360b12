"""Fetching a file of a data set: to a temporary name, its checksum compared, then renamed.

Whatever stops a download, no file stays behind under a name that a loader looks for.
"""

from __future__ import annotations

import http.client
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from mlayer.checks import flag, function
from mlayer.datasets.local_files import (
    VARIABLE,
    DataPath,
    SourceFile,
    data_folder,
    digest,
    locate,
    missing,
    sha256_of,
)
from mlayer.datasets.slow_server import TIMEOUT, SlowServerWatch
from mlayer.disk import beside, make_folder, refusals, remove_left_over, replace_file
from mlayer.errors import ArgumentError, FileFormatError, MLayerError, in_one_line

# Called with the file's name, the bytes that have come, and the bytes expected (None: not known).
Progress = Callable[[str, int, int | None], None]

_PIECE = 1 << 18
# Bytes of one file; the largest of the sets has 182 MB. A server that never stops sending ends in an error.
_MOST = 2 * 10**9
_HERE = ("127.0.0.1", "localhost")  # a server on this machine needs no https


def fetch(
    data: DataPath, files: Sequence[SourceFile], progress: Progress | None = None, *, download: bool = True
) -> None:
    """Download those of ``files`` that the data folder lacks, if ``download`` says so."""
    function("progress", progress, "(name, bytes, total bytes)", 3)
    if not flag("download", download):
        return
    folder = data_folder(data)
    if folder is None:
        raise ArgumentError(
            "data", f"given (or ${VARIABLE} set) for a download", "None", "Name the folder to download into."
        )
    for file in files:
        target = folder / file.folders[0] / file.name
        for written in (target, target.with_name(Path(file.url).name)):
            remove_left_over(written)
        if locate(folder, file) is None:  # an archive may have brought it with another
            _fetch_one(folder, file, files, progress)


def _fetch_one(
    folder: Path, file: SourceFile, files: Sequence[SourceFile], progress: Progress | None
) -> None:
    target = folder / file.folders[0] / file.name
    make_folder(target.parent)
    if not file.url.endswith(".tar.gz"):
        replace_file(
            target, lambda new: _save(_network(folder, file, file.name, progress), new, target, file)
        )
        return
    archive = target.with_name(Path(file.url).name)
    with refusals(archive), beside(archive) as temporary:
        with temporary.open("wb") as out:
            out.writelines(_network(folder, file, archive.name, progress))
        if file.archive:  # a hostile archive is not even opened
            _judge(sha256_of(temporary), file.archive, archive, file)
        _unpack(temporary, folder, [other for other in files if other.url == file.url])


def _network(folder: Path, file: SourceFile, name: str, progress: Progress | None) -> Iterator[bytes]:
    """The chunks of a download; whatever the network does ends in one kind of error."""
    with ExitStack() as stack:
        watch = stack.enter_context(SlowServerWatch())
        total, come = None, 0
        while True:
            try:
                with watch.waiting():
                    if not come:
                        answer, total = _open(file.url, watch)
                        stack.enter_context(answer)
                    piece = answer.read1(_PIECE)
                if not piece and total is not None and come != total:
                    raise OSError(f"only {come} of {total} bytes were received")
            # urllib's errors are OSErrors; a place that it cannot be sent on to is a ValueError.
            except (OSError, http.client.HTTPException, ValueError) as error:
                if isinstance(error, urllib.error.HTTPError):  # holds the connection
                    error.close()
                reason = error.reason if isinstance(error, urllib.error.URLError) else error
                raise missing(folder, file, f"The download failed ({in_one_line(reason)}).") from None
            if not piece:
                return
            watch.come = come = come + len(piece)
            if come > _MOST:
                raise missing(folder, file, f"The download failed ({_beyond(come)}).")
            yield piece
            if progress is not None:
                progress(name, come, total)


def _open(url: str, watch: SlowServerWatch) -> tuple[http.client.HTTPResponse, int | None]:
    """The response, and the length that it announces."""
    _check_address(url)
    opener = urllib.request.build_opener(_StaysEncrypted(), *watch.handlers())
    answer = opener.open(urllib.request.Request(url, headers={"User-Agent": "mlayer"}), timeout=TIMEOUT)
    length = answer.headers.get("Content-Length")
    if length and not (length.isdecimal() and length.isascii() and len(length) < 16):
        answer.close()
        raise OSError(f"a Content-Length of {length[:40]!r}")
    if length and int(length) > _MOST:
        answer.close()
        raise OSError(_beyond(int(length)))
    return answer, int(length) if length else None


class _StaysEncrypted(urllib.request.HTTPRedirectHandler):
    """Redirects are followed to https only; Python's own handler follows them to plain http and ftp too.

    It also leaves the connection open if the next address cannot be used.
    """

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """The answer from the next address."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except (OSError, ValueError):
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(  # noqa: PLR0917 - as Python calls it
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The next request."""
        _check_address(newurl)
        if urllib.parse.urlsplit(req.full_url).scheme == "https" and not newurl.startswith("https://"):
            raise OSError(f"{newurl[:200]}, where https leads, is not an https address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_address(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _HERE):
        raise OSError(f"{url[:200]} is not an https address")


def _beyond(count: int) -> str:
    return f"{count} bytes or more; no file of a data set has more than {_MOST}"


def _save(pieces: Iterator[bytes], path: Path, target: Path, file: SourceFile) -> None:
    """Write the pieces to ``path``; refuse them if they are not the published file."""
    with path.open("wb") as out:
        out.writelines(pieces)
    _judge(digest(path, file), file.sha256[0], target, file)


def _judge(came: str, published: str, target: Path, file: SourceFile) -> None:
    if came != published:
        raise FileFormatError(
            target,
            f"the published file, SHA-256 {published}",
            f"SHA-256 {came} from {file.url}",
            "The source has changed, or the download was altered: get the file another way.",
        )


def _unpack(archive: Path, folder: Path, files: Sequence[SourceFile]) -> None:
    """Unpack the members that are ``files``, by their names alone: nothing can land elsewhere."""
    wanted = {file.name: file for file in files}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                file = wanted.get(Path(member.name).name)
                stream = tar.extractfile(member) if file is not None and member.isfile() else None
                if file is not None and stream is not None:
                    _place(stream, folder / file.folders[0] / file.name, file)
                    del wanted[file.name]
    except MLayerError:
        raise
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError, OverflowError) as error:
        if isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno is not None):
            raise  # of the disk, not of the archive
        raise FileFormatError(
            archive, "a .tar.gz archive", f"something else ({in_one_line(error)})", "Try again."
        ) from None
    if wanted:
        names = ", ".join(wanted)
        raise FileFormatError(files[0].url, f"an archive that holds {names}", "one without", "Try again.")


def _place(stream: IO[bytes], target: Path, file: SourceFile) -> None:
    pieces = iter(lambda: stream.read(_PIECE), b"")
    replace_file(target, lambda new: _save(pieces, new, target, file))

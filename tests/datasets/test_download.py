"""Downloads, from a server on this machine."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlayer.datasets import DataWarning, temperatures
from mlayer.datasets.download import fetch
from mlayer.datasets.places import SourceFile
from mlayer.errors import ArgumentError, FileFormatError, MissingDataError


@dataclass
class Server:
    url: str
    files: dict[str, bytes]
    asked: list[str]
    cut: int = 0


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server("", {}, [])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            content = state.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) - state.cut])

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_port}"
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


def source(server: Server, content: bytes, name: str = "a.bin", strict: bool = True) -> SourceFile:
    server.files[f"/{name}"] = content
    return SourceFile(name, (hashlib.md5(content).hexdigest(),), f"{server.url}/{name}", ("set", "."), strict)


def leftovers(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_file_comes_with_progress(server: Server, tmp_path: Path) -> None:
    content = bytes(range(256)) * 3000
    file = source(server, content)
    calls: list[tuple[str, int, int | None]] = []
    fetch(tmp_path / "new", [file], lambda *call: calls.append(call))
    assert (tmp_path / "new/set/a.bin").read_bytes() == content
    assert calls[-1] == ("a.bin", len(content), len(content))
    assert [c[1] for c in calls] == sorted({c[1] for c in calls})
    assert leftovers(tmp_path) == ["new/set/a.bin"]
    fetch(tmp_path / "new", [file])
    assert len(server.asked) == 1  # what is there is left alone


def test_wrong_sum(server: Server, tmp_path: Path) -> None:
    file = source(server, b"right")
    server.files["/a.bin"] = b"wrong"
    with pytest.raises(FileFormatError, match=r"the published file, md5 .*; got md5 .* from http"):
        fetch(tmp_path, [file])
    assert leftovers(tmp_path) == []
    lenient = source(server, b"right", strict=False)
    server.files["/a.bin"] = b"wrong"
    with pytest.warns(DataWarning, match="has md5"):
        fetch(tmp_path, [lenient])
    assert leftovers(tmp_path) == ["set/a.bin"]


def test_failures_say_what_to_put_where(server: Server, tmp_path: Path) -> None:
    gone = SourceFile("b.bin", ("0",), f"{server.url}/b.bin", ("set",))
    with pytest.raises(MissingDataError, match=r"The download failed \(.*Not Found.*put it at .*set/b.bin"):
        fetch(tmp_path, [gone])
    cut = source(server, b"x" * 1000)
    server.cut = 10
    with pytest.raises(MissingDataError, match="only 990 of 1000 bytes came"):
        fetch(tmp_path, [cut])
    nobody = SourceFile("c.bin", ("0",), "http://127.0.0.1:9/c.bin", ("set",))
    with pytest.raises(MissingDataError, match=r"The download failed \("):
        fetch(tmp_path, [nobody])
    assert leftovers(tmp_path) == []


def test_an_archive_lands_in_its_folder_only(server: Server, tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name in ("cifar/one.bin", "../../outside.bin", "/abs.bin"):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"abcd"))
        link = tarfile.TarInfo("link.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    server.files["/all.tar.gz"] = stream.getvalue()
    file = SourceFile("one.bin", ("0",), f"{server.url}/all.tar.gz", ("set",))
    fetch(tmp_path / "data", [file])
    assert leftovers(tmp_path) == ["data/set/abs.bin", "data/set/one.bin", "data/set/outside.bin"]
    server.files["/all.tar.gz"] = b"no archive"
    other = SourceFile("two.bin", ("0",), f"{server.url}/all.tar.gz", ("set",))
    with pytest.raises(FileFormatError, match=r"a .tar.gz archive; got something else"):
        fetch(tmp_path / "data", [other])


def test_a_download_needs_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLAYER_DATA", raising=False)
    with pytest.raises(ArgumentError, match=r"data must be given \(or \$MLAYER_DATA set\) for a download"):
        temperatures(download=True)

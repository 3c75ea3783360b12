"""Downloads, from a server on this machine."""

from __future__ import annotations

import gc
import hashlib
import io
import re
import tarfile
import threading
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlayer.datasets import IMAGE_SETS, fetch_sets, load_by_name, temperatures
from mlayer.datasets.download import _StaysEncrypted, fetch
from mlayer.datasets.local_files import SourceFile, find
from mlayer.errors import ArgumentError, FileFormatError, MissingDataError


@dataclass
class Server:
    url: str
    files: dict[str, bytes]
    asked: list[str]
    cut: int = 0
    chunked: bool = False
    length: str | None = None
    moved: str = ""


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
            if state.moved:
                self.send_response(302)
                self.send_header("Location", state.moved)
                self.end_headers()
                return
            sent = content[: len(content) - state.cut]
            self.send_response(200)
            if state.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n" % len(content) + sent + b"\r\n0\r\n\r\n" * (not state.cut))
                return
            self.send_header("Content-Length", state.length or str(len(content)))
            self.end_headers()
            self.wfile.write(sent)

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


def source(server: Server, content: bytes, name: str = "a.bin") -> SourceFile:
    server.files[f"/{name}"] = content
    return SourceFile(name, (hashlib.sha256(content).hexdigest(),), f"{server.url}/{name}", ("set", "."))


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
    with pytest.raises(FileFormatError, match=r"the published file, SHA-256 .*; got SHA-256 .* from http"):
        fetch(tmp_path, [file])
    assert leftovers(tmp_path) == []


def test_failures_say_what_to_put_where(server: Server, tmp_path: Path) -> None:
    gone = SourceFile("b.bin", ("0",), f"{server.url}/b.bin", ("set",))
    with pytest.raises(MissingDataError, match=r"The download failed \(.*Not Found.*put it at .*set/b.bin"):
        fetch(tmp_path, [gone])
    cut = source(server, b"x" * 1000)
    server.cut = 10
    with pytest.raises(MissingDataError, match="only 990 of 1000 bytes were received"):
        fetch(tmp_path, [cut])
    nobody = SourceFile("c.bin", ("0",), "http://127.0.0.1:9/c.bin", ("set",))
    with pytest.raises(MissingDataError, match=r"The download failed \("):
        fetch(tmp_path, [nobody])
    assert leftovers(tmp_path) == []


def archive(*members: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("link.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return stream.getvalue()


def member(server: Server, name: str, content: bytes) -> SourceFile:
    return SourceFile(name, (hashlib.sha256(content).hexdigest(),), f"{server.url}/all.tar.gz", ("set",))


def test_an_archive_gives_what_was_asked_for(server: Server, tmp_path: Path) -> None:
    server.files["/all.tar.gz"] = archive(
        ("cifar/one.bin", b"1111"), ("../../outside.bin", b"2222"), ("/abs.bin", b"3333"), ("readme", b"4")
    )
    files = [member(server, "one.bin", b"1111"), member(server, "outside.bin", b"2222")]
    fetch(tmp_path / "data", files)
    assert leftovers(tmp_path) == ["data/set/one.bin", "data/set/outside.bin"]
    assert (tmp_path / "data/set/outside.bin").read_bytes() == b"2222"
    assert server.asked == ["/all.tar.gz"]  # once for both
    with pytest.raises(FileFormatError, match=r"all.tar.gz must be an archive that holds two.bin, link.bin"):
        fetch(tmp_path / "data", [member(server, "two.bin", b""), member(server, "link.bin", b"")])


def test_a_bad_archive(server: Server, tmp_path: Path) -> None:
    server.files["/all.tar.gz"] = archive(("one.bin", b"right"), ("two.bin", b"wrong"))
    files = [member(server, "one.bin", b"right"), member(server, "two.bin", b"right")]
    with pytest.raises(FileFormatError, match=r"two.bin must be the published file"):
        fetch(tmp_path, files)
    assert leftovers(tmp_path) == ["set/one.bin"]  # whole, and its sum is right
    whole = archive(("one.bin", bytes(range(256)) * 999), ("two.bin", b"right"))
    for content in (b"no archive", whole[: len(whole) // 2], whole[:100] + b"\0" * 50 + whole[150:]):
        server.files["/all.tar.gz"] = content
        with pytest.raises(FileFormatError, match=r"a .tar.gz archive; got something else"):
            fetch(tmp_path / "other", files[1:])
        assert leftovers(tmp_path / "other") == []


def test_one_who_stops_a_download_finds_no_half_file(server: Server, tmp_path: Path) -> None:
    content = bytes(3_000_000)
    file = source(server, content)
    seen: list[list[str]] = []

    def stop(name: str, come: int, total: int | None) -> None:
        seen.append(leftovers(tmp_path))
        if come > 1_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(tmp_path, [file], stop)
    assert all(len(files) == 1 and files[0].endswith(".tmp") for files in seen)
    assert leftovers(tmp_path) == []
    fetch(tmp_path, [file])
    assert (tmp_path / "set/a.bin").read_bytes() == content


def test_a_chunked_answer_that_breaks_off(server: Server, tmp_path: Path) -> None:
    file = source(server, b"x" * 5000)
    server.chunked = True
    fetch(tmp_path / "whole", [file])  # no length is known beforehand
    assert leftovers(tmp_path / "whole") == ["set/a.bin"]
    server.cut = 10
    with pytest.raises(MissingDataError, match=r"The download failed \(IncompleteRead"):
        fetch(tmp_path / "cut", [file])
    assert leftovers(tmp_path / "cut") == []


def test_sets_by_name(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = (source(server, b"one", "one"), source(server, b"two", "two"))
    monkeypatch.setitem(load_by_name.FILES, "mnist", files)
    monkeypatch.setenv("MLAYER_DATA", str(tmp_path))
    fetch_sets(["mnist"])
    assert leftovers(tmp_path) == ["set/one", "set/two"]
    with pytest.raises(ArgumentError, match=r"names must be one of 'mnist', .*; got 'digits'"):
        fetch_sets(["mnist", "digits"])
    assert set(IMAGE_SETS) - set(load_by_name.FILES) == {"digits"}


def test_a_download_needs_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLAYER_DATA", raising=False)
    with pytest.raises(ArgumentError, match=r"data must be given \(or \$MLAYER_DATA set\) for a download"):
        temperatures(download=True)


def test_an_archive_of_another_sum_is_not_opened(server: Server, tmp_path: Path) -> None:
    content = archive(("one.bin", b"right"))
    server.files["/all.tar.gz"] = content
    file = replace(member(server, "one.bin", b"right"), archive=hashlib.sha256(content).hexdigest())
    fetch(tmp_path / "right", [file])
    assert leftovers(tmp_path / "right") == ["set/one.bin"]
    server.files["/all.tar.gz"] = archive(("one.bin", b"right"), ("more", b""))
    with pytest.raises(FileFormatError, match=r"all.tar.gz must be the published file, SHA-256"):
        fetch(tmp_path / "other", [file])
    assert leftovers(tmp_path / "other") == []


def test_every_file_of_every_set_has_a_sum() -> None:
    files = [file for files in load_by_name.FILES.values() for file in files]
    assert len(files) >= len(load_by_name.FILES)
    for file in files:
        assert file.sha256
        assert all(re.fullmatch("[0-9a-f]{64}", one) for one in file.sha256)
        assert file.url.startswith("https://")
        assert not file.url.endswith(".tar.gz") or re.fullmatch("[0-9a-f]{64}", file.archive)


def test_the_sum_of_a_text_leaves_out_quotes_and_line_ends(tmp_path: Path) -> None:
    file = SourceFile(
        "t.csv", (hashlib.sha256(b"Date,Temp\n1981-01-01,2").hexdigest(),), "", (".",), text=True
    )
    for content in (b"Date,Temp\n1981-01-01,2\n", b'"Date","Temp"\r\n"1981-01-01",2\r\n'):
        (tmp_path / "t.csv").write_bytes(content)
        assert find(tmp_path, file) == tmp_path / "t.csv"
    for content in (b"Date,Temp\n1981-01-01,3\n", b"Date,Temp\n1981-01-01,2\n1981-01-02,2\n", b""):
        (tmp_path / "t.csv").write_bytes(content)
        with pytest.raises(FileFormatError, match="the published file"):
            find(tmp_path, file)


@pytest.mark.parametrize("length", ["-5", "abc", "9" * 30, "1e3", "5, 6", "0x10", "99999", "3"])
def test_a_bad_content_length_is_an_error_that_names_the_file(
    length: str, server: Server, tmp_path: Path
) -> None:
    file = source(server, b"right")
    server.length = length
    with pytest.raises((MissingDataError, FileFormatError), match=r"a\.bin"):
        fetch(tmp_path, [file])
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "http://[::1", "gopher://x/", "https://\u00e9\u2603.\x7f/"]
)
def test_an_address_that_sends_one_on_to_nowhere(place: str, server: Server, tmp_path: Path) -> None:
    file = source(server, b"right")
    server.moved = place.encode().decode("latin-1")
    gc.collect()  # what earlier tests left
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(MissingDataError, match="The download failed"):
            fetch(tmp_path, [file])
        gc.collect()
    assert leftovers(tmp_path) == []
    assert [str(warning.message) for warning in said] == []  # no connection is left open


@pytest.mark.parametrize(
    "place", ["http://mlayer.invalid/a.bin", "ftp://127.0.0.1/a.bin", "http://127.0.0.1.mlayer.invalid/a.bin"]
)
def test_a_redirect_leads_to_https_only(place: str, server: Server, tmp_path: Path) -> None:
    file = source(server, b"right")
    server.moved = place
    with pytest.raises(MissingDataError, match="not an https address"):
        fetch(tmp_path, [file])
    assert leftovers(tmp_path) == []


def test_https_does_not_lead_to_a_server_on_this_machine() -> None:
    asked = urllib.request.Request("https://mlayer.invalid/a.bin")
    with pytest.raises(OSError, match="not an https address"):
        _StaysEncrypted().redirect_request(asked, io.BytesIO(), 302, "", {}, "http://127.0.0.1/a.bin")
    same = _StaysEncrypted().redirect_request(asked, io.BytesIO(), 302, "", {}, "https://mlayer.invalid/b")
    assert same is not None
    assert same.full_url == "https://mlayer.invalid/b"


@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_without_end_is_not_written_to_the_disk(
    chunked: bool, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = source(server, b"right" * 1000)
    server.chunked = chunked
    monkeypatch.setattr("mlayer.datasets.download._MOST", 999)
    with pytest.raises(MissingDataError, match="no file of a data set has more than 999"):
        fetch(tmp_path, [file])
    assert leftovers(tmp_path) == []


def test_plain_http_is_refused(tmp_path: Path) -> None:
    file = SourceFile("a.bin", ("0",), "http://example.org/a.bin", ("set",))
    with pytest.raises(MissingDataError, match="not an https address"):
        fetch(tmp_path, [file])

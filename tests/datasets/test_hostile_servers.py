"""Servers that answer with anything: one sentence without control characters, and no file, in every case."""

from __future__ import annotations

import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mlayer.datasets import slow_server
from mlayer.datasets.download import fetch
from mlayer.datasets.local_files import SourceFile
from mlayer.errors import MissingDataError, MLayerError

DATA = bytes(range(256)) * 20
OK, CHUNKED = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def moved(place: bytes, code: int = 302) -> bytes:
    return b"HTTP/1.1 %d Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (code, place)


ANSWERS = {
    "nothing": b"",
    "terminal escapes": b"\x00\xff\x1b[31m" * 50,
    "escapes in a reason": b"HTTP/1.1 404 \x1b[31mred\x1b]0;title\x07\r\n\r\n",
    "no code": b"HTTP/1.1\r\n\r\n",
    "code 0": b"HTTP/1.1 0 x\r\n\r\n",
    "code -5": b"HTTP/1.1 -5 x\r\n\r\n",
    "code 99999": b"HTTP/1.1 99999 x\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\n\r\n",
    "continue without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 200,
    "no content": b"HTTP/1.1 204 No\r\n\r\n",
    "a part": b"HTTP/1.1 206 Partial\r\nContent-Length: 10\r\n\r\n" + DATA[:10],
    "a password": b'HTTP/1.1 401 x\r\nWWW-Authenticate: Basic realm="x"\r\n\r\n',
    "a wrong challenge": b"HTTP/1.1 401 x\r\nWWW-Authenticate: Digest\r\n\r\n",
    "too short": OK + b"Content-Length: 6000\r\n\r\n" + DATA,
    "length 0": OK + b"Content-Length: 0\r\n\r\n" + DATA,
    "length of a part": OK + b"Content-Length: 5119\r\n\r\n" + DATA,
    "no header": DATA,
    "chunk without number": CHUNKED + b"zz\r\nabc",
    "negative chunk": CHUNKED + b"-5\r\nabc",
    "endless chunk": CHUNKED + b"ffffffffffffffff\r\nabc",
    "many headers": OK + b"".join(b"A%d: b\r\n" % k for k in range(500)) + b"\r\n",
    "long header": OK + b"A: " + b"x" * 100_000 + b"\r\n\r\n",
    "long line": b"HTTP/1.1 " + b"x" * 100_000,
    "packed": OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
    **{
        f"moved to {place[:40]!r}": moved(place)
        for place in (
            *(b"", b"/y", b"//example.com/x", b"file:///etc/passwd", b"ftp://127.0.0.1/x", b"data:,abc"),
            *(b"http://example.com/x", b"http://127.0.0.1:1/\x1b[31m", b"http://127.0.0.1:1/a b"),
            *(b"http://[::1", b"http://[::1]:x/", b"http://127.0.0.1:99999999/", b"\\\\host\\x"),
            *(b"http://127.0.0.1@example.com/", b"http://127.0.0.1\\@example.com/", b"http://127.0.0.1:1/\0"),
            *(b"http://127.0.0.1:1/\xe9", b"http://127.0.0.1:1/%0d%0aX: y", b"http://" + b"a" * 300 + b"/"),
        )
    },
    "moved with code 307": moved(b"http://example.com", 307),
    "moved with code 308": moved(b"http://example.com", 308),
    "moved nowhere": b"HTTP/1.1 302 x\r\n\r\n",
}


class RawServer:
    """Sends the same bytes to all who ask."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.answer = b""

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            with connection:
                try:
                    if not connection.recv(65536):
                        return  # the end of the test
                    connection.sendall(self.answer)
                except OSError:  # the other end has seen enough
                    continue


@pytest.fixture(scope="module")
def server() -> Iterator[RawServer]:
    made = RawServer()
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    socket.create_connection(made.listening.getsockname()).close()
    thread.join()
    made.listening.close()


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


@pytest.mark.parametrize("ending", [".bin", ".tar.gz"])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_refused_in_a_sentence(
    name: str, ending: str, server: RawServer, tmp_path: Path
) -> None:
    server.answer = ANSWERS[name]
    digest = hashlib.sha256(DATA).hexdigest()
    file = SourceFile("f.bin", (digest,), f"{server.url}/f{ending}", ("set",), archive="0" * 64)
    with pytest.raises(MLayerError, match=r"f\.(bin|tar\.gz)") as caught:
        fetch(tmp_path, [file])
    assert str(caught.value).isprintable()
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("../../f.bin", tarfile.REGTYPE), ("/f.bin", tarfile.REGTYPE), ("f.bin", tarfile.SYMTYPE)),
        *(("f.bin", tarfile.LNKTYPE), ("f.bin", tarfile.FIFOTYPE), ("f.bin", tarfile.CHRTYPE)),
    ],
)
@pytest.mark.parametrize("damage", ["none", "half", "last bytes", "a bit"])
def test_an_archive_writes_the_published_file_or_nothing(
    name: str, kind: bytes, damage: str, server: RawServer, tmp_path: Path
) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        member.size = len(DATA) if kind == tarfile.REGTYPE else 0
        tar.addfile(member, io.BytesIO(DATA))
    packed = bytearray(stream.getvalue())
    if damage in ("half", "last bytes"):
        packed = packed[: len(packed) // 2 if damage == "half" else -5]
    elif damage == "a bit":
        packed[len(packed) // 2] ^= 0x40
    server.answer = OK + b"Content-Length: %d\r\n\r\n" % len(packed) + packed
    folder = tmp_path / "data" / "of" / "sets"
    file = SourceFile("f.bin", (hashlib.sha256(DATA).hexdigest(),), f"{server.url}/f.tar.gz", ("set",))
    with suppress(MLayerError):
        fetch(folder, [file])
    assert [path.read_bytes() for path in files_in(tmp_path)] in ([], [DATA])
    assert files_in(tmp_path) in ([], [folder / "set" / "f.bin"])


DRIPS = {
    "status": (b"", b"H"),
    "headers": (OK, b"A"),
    "body": (OK + b"Content-Length: 5000\r\n\r\n", b"x"),
    "size of a chunk": (CHUNKED, b"1"),
    "extension of a chunk": (CHUNKED + b"5;", b"x"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.mark.parametrize("name", DRIPS)
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No byte comes too late for the timeout of the socket, and the answer never ends."""
    monkeypatch.setattr(slow_server, "_SECONDS", 0.1)
    start, byte = DRIPS[name]
    ended = threading.Event()

    def drip() -> None:
        with listening.accept()[0] as connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(start)
            while not ended.wait(0.01):
                connection.sendall(byte)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip)
        thread.start()
        file = SourceFile("f.bin", ("0",), f"http://127.0.0.1:{listening.getsockname()[1]}/f", ("set",))
        with pytest.raises(MissingDataError, match=r"fewer than 60,000 bytes came in 0 s\).*put it at"):
            fetch(tmp_path, [file])
        ended.set()
        thread.join()
    assert files_in(tmp_path) == []

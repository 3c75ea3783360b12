"""Ends connections that bring next to nothing: the timeout of a socket starts again with every byte.

While `http.client` waits for a line or a piece nothing of ours runs, so the sockets are shut down by another
thread: the waiting call then ends with an error, or as if the data had ended.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

TIMEOUT = 30.0  # seconds for the first byte of anything
# A download is given up if fewer bytes than these come while it is waited for so long, in seconds.
_LEAST_BYTES, _SECONDS = 60_000, 60.0


class SlowServerWatch:
    """Watches over the connections that are opened through it; to be used in a `with` block.

    Attributes:
        come: bytes that were received, counted by the caller.
    """

    def __init__(self) -> None:
        self.come = 0
        self._waited, self._since = 0.0, None  # type: float, float | None
        self._slow = False
        self._sockets: list[socket.socket] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> SlowServerWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for connection in self._sockets:
            connection.close()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block that waits for the server; what the disk and the caller take is not its fault."""
        self._since = begun = time.monotonic()
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError):
            self._raise_if_slow()
            raise
        finally:
            self._since = None
            self._waited += time.monotonic() - begun
        self._raise_if_slow()

    def handlers(self) -> list[urllib.request.BaseHandler]:
        """Handlers for urllib whose connections are watched."""
        watch = self

        class Plain(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                watch._sockets.append(self.sock.dup())  # ends the connection also during a TLS handshake

        class Encrypted(http.client.HTTPSConnection, Plain):  # whose connect calls that of Plain
            pass

        class PlainHandler(urllib.request.HTTPHandler):
            def http_open(self, req: urllib.request.Request) -> Any:
                return self.do_open(Plain, req)

        class EncryptedHandler(urllib.request.HTTPSHandler):
            def https_open(self, req: urllib.request.Request) -> Any:
                return self.do_open(Encrypted, req)

        return [PlainHandler(), EncryptedHandler()]

    def _watch(self) -> None:
        come, waited = 0, 0.0
        while not self._ended.wait(_SECONDS):
            since, now = self._since, self._waited
            now += 0.0 if since is None else time.monotonic() - since
            if self.come - come < _LEAST_BYTES and now - waited > 0.9 * _SECONDS:
                self._slow = True
                for connection in self._sockets:
                    with suppress(OSError):  # closed already
                        connection.shutdown(socket.SHUT_RDWR)
            come, waited = self.come, now

    def _raise_if_slow(self) -> None:
        if self._slow:
            raise OSError(f"fewer than {_LEAST_BYTES:,} bytes came in {_SECONDS:.0f} s")

"""An HTTP server of small objects, of which it answers some as broken servers do.

The first segment of a path says how: `/ok/…`, `/status-503/…`. What follows is the name of the object, whose
bytes are `data_of(name)`, or what a test has put into `objects`: these have an ETag.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler

from servers.local import LocalServer, QuietHandler

PAGE = b"<!DOCTYPE html>\n<html><body>Please log in</body></html>"
BOMB = gzip.compress(bytes(20_000_000))


def data_of(name: str, size: int = 2000) -> bytes:
    """The bytes of an object."""
    start = hashlib.sha256(name.encode()).digest()
    return (start * (size // len(start) + 1))[:size]


class ObjectServer(LocalServer):
    """Serves the objects on a free port of 127.0.0.1.

    Args:
        delay: seconds before each answer.
        together: so many requests are to come before one is answered, at most half a minute after the first.
        size: bytes of an object.
        elsewhere: where `/elsewhere/…` redirects to.
    """

    def __init__(self, delay: float = 0.0, size: int = 2000, elsewhere: str = "", together: int = 1) -> None:
        server = self
        self.delay, self.size, self.elsewhere = delay, size, elsewhere
        self.objects: dict[str, bytes] = {}
        self.requests: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.running = self.most_running = 0
        self.lock = threading.Lock()
        self.together, self.gathered = together, threading.Event()

        class Handler(QuietHandler):
            def do_GET(self) -> None:  # noqa: N802
                server.answer(self)

        super().__init__(Handler)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        with self.lock:
            self.requests[handler.path] += 1
            number = self.requests[handler.path]
            self.headers.append({key.lower(): value for key, value in handler.headers.items()})
            self.running += 1
            self.most_running = max(self.running, self.most_running)
            if self.running >= self.together:
                self.gathered.set()
        try:
            self.gathered.wait(30)
            time.sleep(self.delay)
            _, kind, name = handler.path.split("/", 2)
            getattr(self, f"_{kind.partition('-')[0]}")(handler, kind, name, number)
        finally:
            with self.lock:
                self.running -= 1

    def _send(
        self, handler, data: bytes, status: int = 200, length: int | None = None, **headers: str
    ) -> None:
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data) if length is None else length))
        handler.end_headers()
        handler.wfile.write(data)
        if length is not None and length > len(data):
            handler.close_connection = True

    def _ok(self, handler, kind: str, name: str, number: int) -> None:
        data, tag = self._bytes_of(name)
        wanted = handler.headers.get("range")
        if wanted is None:
            return self._send(handler, data, **tag)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(len(data), int(last) + 1 if last else len(data))
        if start >= len(data):
            return self._send(handler, b"", 416, Content_Range=f"bytes */{len(data)}")
        said = f"bytes {start}-{stop - 1}/{len(data)}"
        return self._send(handler, data[start:stop], 206, Content_Range=said, **tag)

    def _bytes_of(self, name: str) -> tuple[bytes, dict[str, str]]:
        """The bytes of an object, and the header with its ETag, if it has one."""
        if name not in self.objects:
            return data_of(name, self.size), {}
        data = self.objects[name]
        return data, {"ETag": f'"{hashlib.sha256(data).hexdigest()[:16]}"'}

    def _bare(self, handler, kind: str, name: str, number: int) -> None:
        """Says nothing by which the object could be recognized."""
        handler.send_header = lambda key, value, send=handler.send_header: key == "ETag" or send(key, value)
        self._ok(handler, kind, name, number)

    def _whole(self, handler, kind: str, name: str, number: int) -> None:
        """Ignores ranges."""
        self._send(handler, self._bytes_of(name)[0])

    def _status(self, handler, kind: str, name: str, number: int) -> None:
        self._send(handler, b"no", int(kind[-3:]), Content_Type="text/plain")

    def _once(self, handler, kind: str, name: str, number: int) -> None:
        """Fails the first time, as `once-429`."""
        if number > 1:
            return self._ok(handler, kind, name, number)
        return self._send(handler, b"later", int(kind[-3:]), Retry_After="0")

    def _short(self, handler, kind: str, name: str, number: int) -> None:
        self._send(handler, data_of(name, self.size)[:100], length=self.size)

    def _page(self, handler, kind: str, name: str, number: int) -> None:
        self._send(handler, PAGE, Content_Type="text/html")

    def _bomb(self, handler, kind: str, name: str, number: int) -> None:
        self._send(handler, BOMB, Content_Encoding="gzip")

    def _endless(self, handler, kind: str, name: str, number: int) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        piece = bytes(65536)
        for _ in range(10_000):
            handler.wfile.write(b"%x\r\n" % len(piece) + piece + b"\r\n")

    def _slow(self, handler, kind: str, name: str, number: int) -> None:
        """A byte now and then, for longer than a test may take."""
        handler.send_response(200)
        handler.send_header("Content-Length", str(self.size))
        handler.end_headers()
        for _ in range(self.size):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.2)

    def _silent(self, handler, kind: str, name: str, number: int) -> None:
        time.sleep(30)

    def _redirect(self, handler, target: str) -> None:
        self._send(handler, b"", 302, Location=target)

    def _circle(self, handler, kind: str, name: str, number: int) -> None:
        self._redirect(handler, handler.path)

    def _file(self, handler, kind: str, name: str, number: int) -> None:
        self._redirect(handler, "file:///etc/passwd")

    def _metadata(self, handler, kind: str, name: str, number: int) -> None:
        self._redirect(handler, "http://169.254.169.254/latest/meta-data/")

    def _elsewhere(self, handler, kind: str, name: str, number: int) -> None:
        self._redirect(handler, f"{self.elsewhere}/ok/{name}")

    def _login(self, handler, kind: str, name: str, number: int) -> None:
        self._redirect(handler, f"http://user:secret@{self.host}/ok/{name}")

    def _here(self, handler, kind: str, name: str, number: int) -> None:
        self._redirect(handler, f"/ok/{name}")

"""A proxy before a real server that damages its answers as networks and stores do.

    with FaultProxy(nginx.url) as proxy:
        proxy.scripts["/data.bin"] = Script([Cut(1000), None, Status(503)])  # first, second, third request
        read(f"{proxy.url}/data.bin")

A first path segment that starts with `run-` is not forwarded, so that every run of a test has its own paths
and faults.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from types import TracebackType

PIECE = 16 * 1024


@dataclass(frozen=True)
class Cut:
    """The connection is closed after n bytes of the body; the Content-Length is that of the whole."""

    after: int
    reset: bool = False
    """With RST instead of FIN."""


@dataclass(frozen=True)
class Stall:
    """Nothing is sent after n bytes of the body; below 0, no answer at all."""

    after: int


@dataclass(frozen=True)
class Status:
    """Another status, with a short text; the connection is kept."""

    code: int
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Said:
    """The answer with some headers replaced; None removes one."""

    headers: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class NoRange:
    """A range is not honoured: the whole object comes, with status 200."""


Fault = Cut | Stall | Status | Said | NoRange


@dataclass
class Script:
    """What happens to the requests of one path: to the first ones in turn, then to all others."""

    first: list[Fault | None] = field(default_factory=list)
    then: Fault | None = None


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    fault: Fault | None


class FaultProxy:
    """Serves on its own port, in threads, until its context ends.

    Args:
        upstream: URL of the real server, without a path.
        latency: seconds before each answer.
        rate: bytes a second of each connection.
    """

    def __init__(self, upstream: str, latency: float = 0.0, rate: float | None = None) -> None:
        self._host, port = upstream.removeprefix("http://").split(":")
        self._port = int(port)
        self._latency, self._rate = latency, rate
        self.scripts: dict[str, Script] = {}
        """By path, as the client asks for it."""
        self.requests: list[Request] = []
        self._counts: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._wake, self._woken = socket.socketpair()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wake.close()  # its other end, which all stalls wait for as well, becomes readable
        self._listener.close()

    def asked(self, path: str) -> list[Request]:
        """The requests for a path, in order."""
        with self._lock:
            return [request for request in self.requests if request.path == path]

    def _accept(self) -> None:
        while True:
            # `select` cannot wait for descriptors above 1,023.
            if self._woken in wait([self._listener, self._woken]):
                return
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = http.client.HTTPConnection(self._host, self._port)
        with client, contextlib.closing(server), contextlib.suppress(OSError, http.client.HTTPException):
            rest = b""
            while True:
                while b"\r\n\r\n" not in rest:
                    piece = client.recv(65536)
                    if not piece:
                        return
                    rest += piece
                head, _, rest = rest.partition(b"\r\n\r\n")
                if not self._answer(client, server, head.decode("latin-1")):
                    return

    def _answer(self, client: socket.socket, server: http.client.HTTPConnection, head: str) -> bool:
        """Answers one request; False when the connection ends."""
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        fault = self._fault_of(path)
        with self._lock:
            self.requests.append(Request(path, headers, fault))
        if self._latency:
            time.sleep(self._latency)
        if isinstance(fault, Status):
            said = "".join(f"{name}: {value}\r\n" for name, value in fault.headers)
            said += "Content-Type: text/plain\r\nContent-Length: 4\r\n"
            client.sendall(f"HTTP/1.1 {fault.code} Fault\r\n{said}\r\noops".encode())
            return True
        if isinstance(fault, Stall) and fault.after < 0:
            self._hold(client)
            return False
        passed = {name: value for name, value in headers.items() if name != "host"}
        if isinstance(fault, NoRange):
            passed.pop("range", None)
        server.request(method, self._behind(path), headers=passed)
        response = server.getresponse()
        client.sendall(self._head(response, fault))
        return self._body(client, response, fault)

    def _head(self, response: http.client.HTTPResponse, fault: Fault | None) -> bytes:
        headers = {name.lower(): value for name, value in response.getheaders()}
        if isinstance(fault, Said):
            for name, value in fault.headers:
                headers.pop(name, None)
                if value is not None:
                    headers[name] = value
        lines = [f"HTTP/1.1 {response.status} {response.reason}", *(f"{n}: {v}" for n, v in headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _body(self, client: socket.socket, response: http.client.HTTPResponse, fault: Fault | None) -> bool:
        left = fault.after if isinstance(fault, (Cut, Stall)) else 1 << 60
        while left > 0 and (piece := response.read(min(left, PIECE))):
            client.sendall(piece)
            left -= len(piece)
            if self._rate:
                time.sleep(len(piece) / self._rate)
        if isinstance(fault, Stall):
            self._hold(client)
            return False
        if isinstance(fault, Cut):
            if fault.reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        return True

    def _hold(self, client: socket.socket) -> None:
        """Until the client gives up, or the proxy ends."""
        wait([client, self._woken])

    def _fault_of(self, path: str) -> Fault | None:
        with self._lock:
            script = self.scripts.get(path)
            number = self._counts[path]
            self._counts[path] += 1
        if script is None:
            return None
        return script.first[number] if number < len(script.first) else script.then

    @staticmethod
    def _behind(path: str) -> str:
        return "/" + path.partition("/run-")[2].partition("/")[2] if path.startswith("/run-") else path

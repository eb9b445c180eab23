"""A web server as far away as a data centre: every request waits, and all answers share one line.

    with SlowServer(folder, latency=0.02, rate=50e6) as server:
        read(server.url + "/name.tar")
        print(server.cpu_seconds())

It runs in a separate process. Keep-alive, ranges, ETags; files come from memory, whatever the query.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

PIECE = 32 * 1024
_RANGE = re.compile(r"(?i)\r\nrange: *bytes=(\d+)-(\d*)\r\n")


class SlowServer:
    """Serves the files of a folder.

    Args:
        folder: read whole at the start.
        latency: seconds between a request and the first byte of its answer.
        rate: bytes a second of all answers together.
    """

    def __init__(self, folder: Path, latency: float, rate: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(folder, latency, rate, theirs), daemon=True)

    def __enter__(self) -> SlowServer:
        self._process.start()
        self.url = f"http://127.0.0.1:{self._ours.recv()}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.join()

    def cpu_seconds(self) -> float:
        """Processor time that the server has taken."""
        self._ours.send("cpu")
        return float(self._ours.recv())


class _Line:
    """Gives out moments at which bytes may go, so that all together keep to a rate.

    It makes up for late wake-ups on a busy machine; otherwise the line would be slower than specified.
    """

    CREDIT = 0.01
    """Seconds that a sender may be late."""

    def __init__(self, rate: float) -> None:
        self._rate, self._free, self._lock = rate, 0.0, threading.Lock()

    def wait(self, size: int) -> None:
        with self._lock:
            begin = max(time.monotonic() - self.CREDIT, self._free)
            self._free = begin + size / self._rate
        pause = self._free - time.monotonic()
        if pause > 0:
            time.sleep(pause)


def _serve(folder: Path, latency: float, rate: float, pipe: Connection) -> None:
    files = {f"/{path.name}": path.read_bytes() for path in folder.iterdir() if path.is_file()}
    line = _Line(rate)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    pipe.send(listener.getsockname()[1])

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer, args=(connection, files, latency, line), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    while True:
        pipe.recv()
        used = os.times()
        pipe.send(used.user + used.system)


def _answer(connection: socket.socket, files: dict[str, bytes], latency: float, line: _Line) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = b""
    try:
        while True:
            while b"\r\n\r\n" not in head:
                piece = connection.recv(65536)
                if not piece:
                    return
                head += piece
            request, _, head = head.partition(b"\r\n\r\n")
            time.sleep(latency)
            text = request.decode("latin-1") + "\r\n"
            data = memoryview(files.get(text.split(" ", 2)[1].partition("?")[0], b""))
            start, status, extra = 0, "200 OK", ""
            if match := _RANGE.search(text):
                start = int(match[1])
                status, extra = (
                    "206 Partial Content",
                    f"Content-Range: bytes {start}-{len(data) - 1}/{len(data)}\r\n",
                )
            connection.sendall(
                f"HTTP/1.1 {status}\r\nContent-Length: {len(data) - start}\r\nAccept-Ranges: bytes\r\n"
                f'ETag: "{len(data)}"\r\n{extra}\r\n'.encode()
            )
            for at in range(start, len(data), PIECE):
                piece_of = data[at : at + PIECE]
                line.wait(len(piece_of))
                connection.sendall(piece_of)
    except OSError:
        pass
    finally:
        connection.close()

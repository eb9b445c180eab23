"""An HTTP server in a thread of this process, on a free port: what the servers of tests are made of."""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections open, logs nothing, and accepts that clients are killed."""

    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, *arguments: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    """Ends its connections when it is closed.

    Otherwise their threads wait as long as a client keeps them open, and each makes forking this process slower.
    """

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._connections: set[Any] = set()
        super().__init__(("127.0.0.1", 0), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class LocalServer:
    """A server that runs as long as its context.

    Args:
        handler: answers the requests.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = _Server(handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"
        """The address, without `/` at its end."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

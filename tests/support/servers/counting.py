"""An HTTP server in this process that counts what is fetched from it."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PIECE = 64 * 1024


class CountingServer:
    """Serves the files of a folder with ranges; `fetched` counts the GETs by path.

    Args:
        folder: what is served.
        pause: seconds before each piece of 64 KiB, so that several readers meet.
    """

    def __init__(self, folder: Path, pause: float = 0.0) -> None:
        self.folder, self.pause = Path(folder), pause
        self.fetched: Counter[str] = Counter()
        """GET requests by path."""
        self._guard = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """Address of the folder, without `/` at its end."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> CountingServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with server._guard:
                    server.fetched[self.path] += 1
                try:
                    data = (server.folder / self.path.lstrip("/").partition("?")[0]).read_bytes()
                except OSError:
                    self.send_error(404)
                    return
                start = 0
                asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
                if asked is not None and int(asked[1]) < len(data):
                    start = int(asked[1])
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(data) - start))
                self.send_header("ETag", f'"{len(data)}"')
                self.send_header("Accept-Ranges", "bytes")
                self.end_headers()
                for at in range(start, len(data), PIECE):
                    if server.pause:
                        time.sleep(server.pause)
                    self.wfile.write(data[at : at + PIECE])

            def handle(self) -> None:
                with contextlib.suppress(OSError):  # the client was killed
                    super().handle()

            def log_message(self, *arguments: object) -> None:
                pass

        return Handler

"""An HTTP server in this process that counts what is fetched from it."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from zlib import crc32

from servers.local import LocalServer, QuietHandler

PIECE = 64 * 1024


class CountingServer(LocalServer):
    """Serves the files of a folder with ranges; `fetched` counts the GETs by path.

    Args:
        folder: what is served.
        pause: seconds before each piece of 64 KiB, so that several readers meet.
    """

    def __init__(self, folder: Path, pause: float = 0.0) -> None:
        self.folder, self.pause = Path(folder), pause
        self.fetched: Counter[str] = Counter()
        """GET requests by path."""
        self.sent = 0
        """Bytes of objects that were requested."""
        self._guard = threading.Lock()
        super().__init__(self._handler())

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(QuietHandler, BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with server._guard:
                    server.fetched[self.path] += 1
                try:
                    data = (server.folder / self.path.lstrip("/").partition("?")[0]).read_bytes()
                except OSError:
                    self.send_error(404)
                    return
                start, stop = 0, len(data)
                asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                if asked is not None and int(asked[1]) < len(data):
                    start, stop = int(asked[1]), min(int(asked[2]) + 1 if asked[2] else stop, stop)
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
                else:
                    self.send_response(200)
                with server._guard:
                    server.sent += stop - start
                self.send_header("Content-Length", str(stop - start))
                self.send_header("ETag", f'"{crc32(data)}"')
                self.send_header("Accept-Ranges", "bytes")
                self.end_headers()
                for at in range(start, stop, PIECE):
                    if server.pause:
                        time.sleep(server.pause)
                    self.wfile.write(data[at : min(at + PIECE, stop)])

        return Handler

"""A server that repeats the whole request, as proxies, object stores and frameworks do in their error pages."""

from __future__ import annotations

import json
from html import escape
from http.server import BaseHTTPRequestHandler

from servers.local import LocalServer, QuietHandler

FORMS = ("plain", "xml", "json")


class EchoServer(LocalServer):
    """Answers `/STATUS/FORM/…` with that status, and the request in a body of that form; with a cut for `/cut/…`.

    `/to/HOST:PORT/…` redirects there, and `/shard/…` gives `data`.
    """

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.seen: list[dict[str, str]] = []
        """The headers of each request."""
        super().__init__(self._handler())

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(QuietHandler, BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.seen.append({name.lower(): value for name, value in self.headers.items()})
                path = (
                    "/" + self.path.partition("://")[2].partition("/")[2] if "://" in self.path else self.path
                )
                _, kind, form, *_ = [*path.split("/"), "", ""]
                said_as = form if form in FORMS else "plain"
                if kind in ("shard", "cut"):
                    self._send(200, "application/x-tar", server.data, cut=kind == "cut")
                elif kind == "to":
                    self._send(302, "text/plain", b"", Location=f"http://{form}{path.partition(form)[2]}")
                else:
                    said = f"{self.requestline} {dict(self.headers)}"
                    bodies = {
                        "plain": said,
                        "xml": f"<?xml version='1.0'?><Error><Code>No</Code><Message>{escape(said)}</Message>"
                        f"<StringToSign>{escape(said)}</StringToSign></Error>",
                        "json": json.dumps({"error": {"message": said}}),
                    }
                    self._send(
                        int(kind) if kind.isdigit() else 404,
                        f"application/{said_as}" if said_as != "plain" else "text/plain",
                        bodies[said_as].encode(),
                    )

            def _send(self, status: int, kind: str, body: bytes, cut: bool = False, **headers: str) -> None:
                self.send_response(status)
                for name, value in {
                    "Content-Type": kind,
                    "Content-Length": str(len(body)),
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if cut else body)
                self.close_connection = cut or self.close_connection

        return Handler

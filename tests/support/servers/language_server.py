"""yaml-language-server, as editors run it: a process that communicates over its standard streams."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).parent / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"


def need_server() -> None:
    """Skip the test without the server, which CI must have."""
    if not SERVER.exists():
        if os.environ.get("CI"):
            pytest.fail("yaml-language-server is not installed: run scripts/servers")
        pytest.skip("yaml-language-server is not installed: run scripts/servers")


class LanguageServer:
    """Opens documents, and asks about them.

    Args:
        schema: named by a line above each document; None if `settings` name it.
        settings: further settings of YAML, as in an editor.
        folder: the folder that is open in the editor.
    """

    def __init__(
        self, schema: Path | None = None, settings: dict[str, Any] | None = None, folder: Path = Path("/")
    ) -> None:
        self._line = "" if schema is None else f"# yaml-language-server: $schema={schema.as_uri()}\n"
        self._settings, self._folder = settings or {}, folder
        self._numbers = itertools.count(1)
        self._answers: dict[int, Any] = {}
        self._found: dict[str, list[dict[str, Any]]] = {}
        self._arrived = threading.Condition()
        self._process = subprocess.Popen(
            ["node", str(SERVER), "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> LanguageServer:
        self._reader.start()
        uri = self._folder.as_uri() if self._settings else None
        self.ask(
            "initialize",
            {
                "processId": None,
                "rootUri": uri,
                "workspaceFolders": uri and [{"uri": uri, "name": "project"}],
                "capabilities": {"workspace": {"configuration": True}},
            },
        )
        self._send("initialized", {})
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def open(self, name: str, text: str) -> None:
        """Opens a document; below a line with a schema, its own first line is line 1, counted from 0."""
        text = f"{self._line}{text}"
        document = {"uri": self._uri(name), "languageId": "yaml", "version": 1, "text": text}
        self._send("textDocument/didOpen", {"textDocument": document})

    def problems(self, name: str) -> list[dict[str, Any]]:
        """What the editor would mark in a document that was opened."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: self._uri(name) in self._found, 60), (
                "the server says nothing"
            )
            return self._found[self._uri(name)]

    def ask(self, method: str, parameters: Any) -> Any:
        """The result of a request."""
        number = next(self._numbers)
        self._send(method, parameters, number)
        with self._arrived:
            assert self._arrived.wait_for(lambda: number in self._answers, 60), "the server does not answer"
            return self._answers.pop(number)

    def at(self, method: str, name: str, line: int, column: int) -> Any:
        """The result of a request about a place, counted from 0."""
        place = {"textDocument": {"uri": self._uri(name)}, "position": {"line": line, "character": column}}
        return self.ask(f"textDocument/{method}", place)

    def _uri(self, name: str) -> str:
        return (self._folder / name).as_uri()

    def _send(self, method: str | None, body: Any, number: int | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0"}
        message |= {"result": body} if method is None else {"method": method, "params": body}
        message |= {} if number is None else {"id": number}
        data = json.dumps(message).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self._process.stdin.flush()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        while header := stream.readline():
            length = 0
            while header.strip():
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
                header = stream.readline()
            self._take(json.loads(stream.read(length)))

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("method") == "workspace/configuration":
            settings = {"validate": True, "hover": True, "completion": True, "schemaStore": {"enable": False}}
            settings |= self._settings
            sections = [each.get("section") for each in message["params"]["items"]]
            self._send(None, [settings if each == "yaml" else {} for each in sections], message["id"])
        elif "method" in message and "id" in message:
            self._send(None, None, message["id"])
        with self._arrived:
            if message.get("method") == "textDocument/publishDiagnostics":
                self._found[message["params"]["uri"]] = message["params"]["diagnostics"]
            elif "method" not in message and "id" in message:
                self._answers[message["id"]] = message.get("result")
            self._arrived.notify_all()

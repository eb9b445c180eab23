"""A Hugging Face Hub in this process: one dataset repository, as the Hub's API describes it, and files of a model.

Pages: https://huggingface.co/docs/hub/api (the endpoints), https://huggingface.co/.well-known/openapi.json (their
answers), https://huggingface.co/docs/xet/file-id (`resolve` redirects to the bytes), and huggingface_hub 2.4.0, whose
client is what asks here. The bytes are on another path, as those of the Hub are on another server.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from servers.local import LocalServer, QuietHandler

PAGE = 3
"""Entries of one page of a listing."""


class Hub(LocalServer):
    """Serves the dataset repository `team/texts`, and the files of a model repository with this name.

    Args:
        token: what clients must log in with; "" for none.
    """

    repo = "team/texts"

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.commits: dict[str, dict[str, bytes]] = {}
        """Commit → path → content."""
        self.references: dict[str, str] = {}
        """Branch or tag → commit."""
        self.asked: list[tuple[str, str, str]] = []
        """(method, path, range) of each request."""
        self.unanswered: list[str] = []
        """Parts of paths: the next request with one of them gets no answer."""
        self.leaving = threading.Event()
        super().__init__(self._handler())

    def __exit__(self, *error: object) -> None:
        self.leaving.set()
        super().__exit__(*error)

    def commit(self, files: dict[str, bytes], *references: str) -> str:
        """Add a commit with these files, to which references lead."""
        sha = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[sha] = files
        self.references.update(dict.fromkeys(references, sha))
        return sha

    def entries(self, sha: str, folder: str, recursive: bool) -> list[dict[str, Any]]:
        """What a listing says of the files in a folder, and of its folders."""
        found: dict[str, dict[str, Any]] = {}
        start = f"{folder}/" if folder else ""
        for path, content in sorted(self.commits[sha].items()):
            if not path.startswith(start):
                continue
            parts = path[len(start) :].split("/")
            for depth in range(1, len(parts)):
                if depth == 1 or recursive:
                    name = start + "/".join(parts[:depth])
                    found[name] = {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
            if len(parts) == 1 or recursive:
                found[path] = self.entry(path, content)
        return list(found.values())

    def entry(self, path: str, content: bytes) -> dict[str, Any]:
        """What a listing says of a file: those of data are in LFS."""
        sums = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
        return {
            "type": "file",
            "oid": hashlib.sha1(content).hexdigest(),
            "size": len(content),
            "lfs": sums,
            "path": path,
        }

    def _handler(hub) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(QuietHandler, BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # headers and bodies are written one after the other

            def do_GET(self) -> None:
                split = urlsplit(self.path)
                path, query = split.path, parse_qs(split.query)  # a revision may have a quoted slash
                hub.asked.append((self.command, path, self.headers.get("Range", "")))
                if lost := next((part for part in hub.unanswered if part in path), None):
                    hub.unanswered.remove(lost)
                    hub.leaving.wait()
                if path.startswith("/bytes/"):
                    _, _, sha, name = unquote(path).split("/", 3)
                    self.send_file(hub.commits[sha][name])
                    return
                if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                    said = f"Invalid credentials in {self.headers.get('Authorization')}"
                    self.answer(401, {"error": said}, {"X-Error-Message": said})
                elif found := re.fullmatch(rf"/api/datasets/{hub.repo}(?:/revision/(.+))?", path):
                    if sha := self.commit_of(unquote(found[1] or "main")):
                        self.answer(
                            200, {"id": hub.repo, "sha": sha, "private": False, "tags": [], "siblings": []}
                        )
                elif found := re.fullmatch(rf"/api/datasets/{hub.repo}/paths-info/([^/]+)", path):
                    self.send_paths(unquote(found[1]))
                elif found := re.fullmatch(rf"/api/datasets/{hub.repo}/tree/([^/]+)/?(.*)", path):
                    self.send_tree(unquote(found[1]), unquote(found[2]), query)
                elif found := re.fullmatch(rf"/datasets/{hub.repo}/resolve/([^/]+)/(.+)", path):
                    self.redirect(unquote(found[1]), unquote(found[2]))
                elif found := re.fullmatch(rf"/{hub.repo}/resolve/([^/]+)/(.+)", path):
                    self.send_small(unquote(found[1]), unquote(found[2]))
                else:
                    self.answer(404, {"error": "not found"}, {"X-Error-Code": "RepoNotFound"})

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_POST(self) -> None:
                self.do_GET()

            def commit_of(self, revision: str) -> str | None:
                sha = hub.references.get(revision, revision)
                if sha in hub.commits:
                    return sha
                self.answer(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
                return None

            def send_paths(self, revision: str) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if sha := self.commit_of(revision):
                    asked = [body["paths"]] if isinstance(body["paths"], str) else body["paths"]
                    files = hub.commits[sha]
                    entries = [hub.entry(name, files[name]) for name in asked if name in files]
                    folders = {each["path"]: each for each in hub.entries(sha, "", True)}
                    entries += [folders[name] for name in asked if name in folders and name not in files]
                    self.answer(200, entries)

            def send_tree(self, revision: str, folder: str, query: dict[str, list[str]]) -> None:
                if not (sha := self.commit_of(revision)):
                    return
                entries = hub.entries(
                    sha, folder, query.get("recursive", ["false"])[0].lower() in ("true", "1")
                )
                if folder and not entries:
                    self.answer(404, {"error": "no such folder"}, {"X-Error-Code": "EntryNotFound"})
                    return
                start = int(query.get("cursor", ["0"])[0])
                more = {}
                if start + PAGE < len(entries):
                    rest = "&".join(f"{name}={each[0]}" for name, each in query.items() if name != "cursor")
                    place = f"{hub.url}{urlsplit(self.path).path}?{rest}&cursor={start + PAGE}"
                    more = {"Link": f'<{place}>; rel="next"'}
                self.answer(200, entries[start : start + PAGE], more)

            def find(self, revision: str, name: str) -> tuple[str, bytes] | None:
                if not (sha := self.commit_of(revision)):
                    return None
                if name not in hub.commits[sha]:
                    self.answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
                    return None
                return sha, hub.commits[sha][name]

            def send_small(self, revision: str, name: str) -> None:
                """Send a file that is not in LFS, without a redirect."""
                if found := self.find(revision, name):
                    sha, content = found
                    etag = f'"{hashlib.sha1(content).hexdigest()}"'
                    self.send_file(content, {"X-Repo-Commit": sha, "ETag": etag})

            def redirect(self, revision: str, name: str) -> None:
                if not (found := self.find(revision, name)):
                    return
                sha, content = found
                about = {
                    "X-Repo-Commit": sha,
                    "X-Linked-Size": str(len(content)),
                    "X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"',
                }
                self.answer(302, {}, {"Location": f"{hub.url}/bytes/{sha}/{name}", **about})

            def send_file(self, content: bytes, headers: dict[str, str] | None = None) -> None:
                start, stop = 0, len(content)
                if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
                    start, stop = int(asked[1]), min(stop, int(asked[2] or stop) + 1)
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(stop - start))
                self.send_header("Accept-Ranges", "bytes")
                for header, text in (headers or {}).items():
                    self.send_header(header, text)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content[start:stop])

            def answer(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
                body = json.dumps(value).encode()
                self.send_response(status)
                for name, text in (headers or {}).items():
                    self.send_header(name, text)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

        return Handler

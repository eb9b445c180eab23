"""A double of an AIStore cluster: one gateway and several targets on loopback, as a running AIStore 5.0 was observed.

It keeps the traps of the real one: GET answered by 301 and all else by 307; a gateway that never serves bytes; one
namespace for each provider, `ais` if none is named; checksums of the whole on parts; 404 that means five things; ETL
streams that end cleanly when they die, with the error appended. What it cannot prove: performance, real placement,
rebalancing, Kubernetes, chains of certificates.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import xxhash

from servers.aistore_nodes import Gateway, Node, Pod, Target
from wdspec.stores import ais_client as missing_objects
from wdspec.stores.ais_client import PATIENCE

PROVIDERS = {
    "": "ais",
    "ais": "ais",
    "gcp": "gcp",
    "gs": "gcp",
    "aws": "aws",
    "s3": "aws",
    "azure": "azure",
    "az": "azure",
    "oci": "oci",
    "oc": "oci",
}
SCHEMES = {"gs": "gcp", "s3": "aws", "az": "azure", "oc": "oci", "ais": "ais"}

Bucket = tuple[str, str, str]
"""Provider, namespace, name."""
Fault = Callable[["Node", object], bool]
"""Gets the node and the request's handler, answers or prepares; True if nothing more is to be said."""


@dataclass(frozen=True)
class Seen:
    """One request, as a node got it."""

    node: str
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def by_gateway(self) -> bool:
        return self.node == "p"


@dataclass
class Stored:
    """An object: its bytes and its version."""

    data: bytes
    version: int = 1


@dataclass
class Etl:
    """A transformation: of a whole object and the text of its arguments."""

    transform: Callable[[bytes, str], bytes]
    kind: str = "hpush"
    dies_after: int | None = None
    """Bytes after which the stream ends cleanly, with an error text appended."""
    cut_after: int | None = None
    """Bytes after which the connection is cut, once."""


@dataclass
class AisDouble:
    """The cluster. `with AisDouble() as double: double.put("gs://b/o.tar", data)`."""

    targets: int = 2
    gateway_count: int = 1
    checksum: str = "xxhash2"
    page_size: int = 1000
    cold_delay: float = 0.0
    tokens: set[str] | None = None
    """Tokens that gateways accept; None: none is asked for."""
    allow_direct: bool = False
    without_etl: bool = False
    tls: ssl.SSLContext | None = None
    """For https at all nodes."""
    backends: set[str] = field(default_factory=lambda: {"gcp", "aws", "azure", "oci", "ais"})

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.remote: dict[Bucket, dict[str, Stored]] = {}
        self.cached: dict[Bucket, dict[str, Stored]] = {}
        self.etls: dict[str, Etl] = {}
        self.jobs: dict[str, list[str]] = {}
        self.requests: list[Seen] = []
        self.violations: list[str] = []
        self.faults: dict[str, deque[Fault]] = {"p": deque(), "t": deque()}
        self.listings: dict[str, Bucket] = {}
        self.nodes: list[Node] = []
        self.shift = 0
        """Added to the number of the target that has an object: another map of the cluster."""
        self.damages: Callable[[bytes], bytes] = bytes
        """What becomes of the bytes of an object that is written."""
        self.dead_port: int | None = None
        """Where redirects lead instead of to a target, if not None."""

    def __enter__(self) -> AisDouble:
        self.gateway = Gateway(self, "p")
        self.gateways = [self.gateway, *(Gateway(self, f"p{n}") for n in range(1, self.gateway_count))]
        self.target_nodes = [Target(self, f"t{n}") for n in range(self.targets)]
        self.pod = Pod(self, "pod")
        self.nodes = [*self.gateways, *self.target_nodes, self.pod]
        for node in self.nodes:
            node.start()
        missing_objects.PATIENCE = 0.05
        return self

    def __exit__(self, *_: object) -> None:
        missing_objects.PATIENCE = PATIENCE
        for node in self.nodes:
            node.stop()

    @property
    def endpoint(self) -> str:
        return self.gateway.url

    def put(self, url: str, data: bytes) -> None:
        """Store an object at its URL, in the remote bucket if it is in a cloud."""
        self.store(*self.named(url), data)

    def store(self, bucket: Bucket, name: str, data: bytes) -> None:
        with self.lock:
            objects = self.remote.setdefault(bucket, {})
            version = objects[name].version + 1 if name in objects else 1
            objects[name] = Stored(data, version)

    def remove(self, url: str) -> None:
        bucket, name = self.named(url)
        del self.remote[bucket][name]

    @staticmethod
    def named(url: str) -> tuple[Bucket, str]:
        scheme, _, rest = url.partition("://")
        bucket, _, name = rest.partition("/")
        return (SCHEMES[scheme], "", bucket), name

    def script(self, node: str, *faults: Fault) -> None:
        """What the next requests to the gateway (`p`) or to targets (`t`) meet, one each."""
        self.faults[node].extend(faults)

    def seen(self, node: str = "", method: str = "", path: str = "/v1/objects/") -> list[Seen]:
        """Requests so far, in order."""
        return [
            each
            for each in self.requests
            if each.node.startswith(node) and method in ("", each.method) and each.path.startswith(path)
        ]

    def forget(self) -> None:
        """Forgets requests and faults."""
        self.requests.clear()
        for faults in self.faults.values():
            faults.clear()

    def target_of(self, bucket: Bucket, name: str) -> int:
        uname = f"{'/'.join(bucket)}/{name}".encode("utf-8", "surrogateescape")
        return (zlib.crc32(uname) + self.shift) % self.targets

    def held(self, bucket: Bucket, name: str) -> Stored | None:
        """The copy that the cluster has, if it has one; its own objects it always has."""
        return (self.remote if bucket[0] == "ais" else self.cached).get(bucket, {}).get(name)

    def fetched(self, bucket: Bucket, name: str, latest: bool) -> Stored | None:
        """The object as a GET gives it: a copy may be stale, and is made first if there is none."""
        held = self.held(bucket, name)
        if held is not None and not latest:
            return held
        there = self.remote.get(bucket, {}).get(name)
        if there is None:
            self.cached.get(bucket, {}).pop(name, None)
            return None
        if held is None and self.cold_delay:
            time.sleep(self.cold_delay)
        with self.lock:
            self.cached.setdefault(bucket, {})[name] = Stored(there.data, there.version)
        return there

    def digest(self, data: bytes) -> str:
        if self.checksum in ("xxhash", "xxhash2"):
            return str(xxhash.xxh64(data).hexdigest())
        return hashlib.new(self.checksum, data, usedforsecurity=False).hexdigest()


def status(code: int, message: str | None = None, **headers: str) -> Fault:
    """Answers with a status: with AIStore's JSON, or with an empty body."""

    def fault(node: Node, handler: object) -> bool:
        handler.refuse(code, message, **headers)  # type: ignore[attr-defined]
        return True

    return fault


def cut(after: int, reset: bool = False) -> Fault:
    """Ends the connection after n bytes of the body, with its full length announced."""

    def fault(node: Node, handler: object) -> bool:
        handler.cut_after, handler.resets = after, reset  # type: ignore[attr-defined]
        return False

    return fault


def redirect(location: str) -> Fault:
    """Redirects somewhere."""

    def fault(node: Node, handler: object) -> bool:
        handler.redirect(301, location)  # type: ignore[attr-defined]
        return True

    return fault


def fine(node: Node, handler: object) -> bool:
    """No fault, this time."""
    return False


def error_json(message: str, status: int, node: str, tcode: str | None) -> bytes:
    said = {"tcode": tcode} if tcode else {}
    return json.dumps(
        {
            **said,
            "message": message,
            "method": "GET",
            "url_path": "/v1/objects",
            "remote_addr": "127.0.0.1",
            "caller": "",
            "node": node,
            "status": status,
        }
    ).encode()

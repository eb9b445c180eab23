"""Requests to an AIStore cluster: a gateway redirects to the target that has the bytes, and the target sends them.

Only gateways see the token. Redirects are followed by hand and never kept: they may be signed and expire, and a target
may leave the cluster.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import IO
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError
from urllib3.util import Timeout

from wdspec.base.errors import MissingShardError, ShardError, StoreError, UnusableStoreError, find_lack
from wdspec.base.process import KeyedValues, PerProcess
from wdspec.base.redaction import harmless, redact_answer
from wdspec.stores import http_requests
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.http_answers import retry_after
from wdspec.stores.retry import PASSING, TransientError

log = logging.getLogger("wdspec")


MAP = "/v1/daemon?what=smap"
_LARGEST = 16 * 1024 * 1024
_LEAVING = 1 << 2 | 1 << 3
"""Flags of a node that is in maintenance, or being taken out."""


class Gateways:
    """The gateways of a cluster: those that are named, and those in the cluster's map.

    The next one is used if one does not answer. The first one that answers is asked for the map, so that reading
    continues when a named gateway leaves.

    Args:
        named: URLs of equivalent gateways.
    """

    def __init__(self, named: tuple[str, ...]) -> None:
        self._named = named
        self._known = list(named)
        self._turn = 0
        self._has_map = False

    def __len__(self) -> int:
        return len(self._known)

    @property
    def current(self) -> str:
        """The URL of the gateway to ask."""
        return self._known[self._turn % len(self._known)]

    def pass_over(self) -> None:
        """Use the next gateway; once it answers, it is asked for a new map."""
        self._turn += 1
        self._has_map = False

    def learn(self, ask: Callable[[str], urllib3.BaseHTTPResponse]) -> None:
        """Ask the current gateway for the map, once after each change of gateways. Errors are only logged."""
        if self._has_map:
            return
        self._has_map = True
        gateway = self.current
        try:
            response = ask(gateway + MAP)
            found = (
                _gateways_in(response.read(_LARGEST), urlsplit(gateway).scheme)
                if response.status == 200
                else []
            )
            http_requests.drain(response)
        except Exception as error:
            log.debug(
                "the map of the AIStore cluster at %s cannot be read: %s", urlsplit(gateway).netloc, error
            )
            return
        self._known = list(dict.fromkeys([*self._named, *found]))
        self._turn = self._known.index(gateway) if gateway in self._known else 0


def _gateways_in(text: bytes, scheme: str) -> list[str]:
    """The public URLs of the gateways in a map, in the order of their names; only those with the trusted scheme."""
    nodes = json.loads(text)["pmap"]
    there = (nodes[name] for name in sorted(nodes))
    urls = (
        str(node["public_net"]["direct_url"]) for node in there if not int(node.get("flags") or 0) & _LEAVING
    )
    return [url.rstrip("/") for url in urls if urlsplit(url).scheme == scheme and urlsplit(url).hostname]


PATIENCE = 10.0
"""Seconds from the first 404 of an object to the one that counts.

A target that has just joined does not have all its objects yet, and gateways learn of it at different times: for a few
seconds, requests for objects that exist get a 404.
"""
BELIEVED = 30.0
"""Seconds after such a 404 during which every 404 of that target counts at once, so that a thousand missing shards do
not wait that long each."""
LOST = 120.0
"""Seconds after a failed connection to a target during which no 404 counts before the retries are used up.

About 35 seconds after a target has died, the others answer 404 for its objects, until it is back.
"""


MAX_HOPS = 5
"""One redirect is usual, or two if an ETL sends the response itself."""
_LONGEST_TOKEN = 64 * 1024


@dataclass(frozen=True)
class Reply:
    """The final answer of a cluster."""

    response: urllib3.BaseHTTPResponse
    host: str
    """Host and port of the node that sent it."""
    hops: int
    """Number of redirects before it: 0 if a gateway sent it."""
    token: str | None = field(default=None, repr=False)
    """The token that the gateway received."""


@dataclass(frozen=True)
class _Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None
    file: IO[bytes] | None = None

    def for_gateway(self, token: str | None) -> _Request:
        """The request as the gateway gets it: with the token, and without the file, which only the target gets."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        own = self.headers if self.file is None else http_requests.HEADERS
        return replace(self, headers={**own, **headers}, file=None)


class AisClient:
    """The connections of this process to one cluster."""

    def __init__(self, cluster: AisCluster) -> None:
        self._cluster = cluster
        self._timeout = Timeout(connect=cluster.connect_timeout, read=cluster.read_timeout)
        self._manager = _manager(cluster)
        self._token: str | None = None
        self._token_read = False
        self._gateways = Gateways(cluster.endpoints)
        self._reached = False
        self._believed: dict[str, float] = {}  # host of a target → when its 404 was last believed
        self._lost = float("-inf")  # when a target last failed to answer

    def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        file: IO[bytes] | None = None,
    ) -> Reply:
        """The answer to a request for a path and query, whatever its status; the caller closes it.

        If the token is refused, its file is read again, since tokens expire, and the request is repeated once.

        Args:
            headers: those of the bytes of `file`, if it is given. Only the target gets the file.

        Raises:
            TransientError: no node answered.
            StoreError: certificates or redirects that cannot be trusted, or a token file that cannot be read.
        """
        request = _Request(method, target, headers, body, file)
        reply = self._reply(request)
        if reply.response.status == 401 and self._renew_token():
            reply.response.close()
            reply = self._reply(request)
        return reply

    def believes_missing(self, host: str, since: float) -> bool:
        """Whether a target's 404 is final for an object first reported missing at `since`, by `time.monotonic`."""
        now = monotonic()
        if now - self._lost < LOST:
            return False
        if now - since >= PATIENCE:
            self._believed[host] = now
        return now - self._believed.get(host, -BELIEVED) < BELIEVED

    def _reply(self, request: _Request) -> Reply:
        response, url = self._from_gateway(request)
        try:
            response, url, hops = http_requests.follow_redirects(
                response, url, lambda target: self._from_target(target, request), MAX_HOPS
            )
        except http_requests.RedirectError as error:
            remedy = ": others could read the data; use https for its targets, too" if error.is_unsafe else ""
            raise StoreError(f"AIStore at {_show_host(error.url)} answers with {error}{remedy}") from None
        return Reply(response, urlsplit(url).netloc, hops, self._token)

    def _renew_token(self) -> bool:
        """Read the token's file again; return whether the token is a new one."""
        before = self._token
        if self._cluster.token is not None:
            return False
        self._token = token_in(self._cluster)
        self._token_read = True
        return self._token is not None and self._token != before

    def _from_gateway(self, request: _Request) -> tuple[urllib3.BaseHTTPResponse, str]:
        if not self._token_read:
            self._token, self._token_read = self._cluster.token or token_in(self._cluster), True
        shown = request.for_gateway(self._token)
        failures = []
        gateways = self._gateways
        for _ in range(len(gateways)):
            url = gateways.current + request.target
            try:
                response = self._sent(url, shown)
            except _NoConnectionError as error:
                failures.append(f"{_show_host(url)}: {error}")
                gateways.pass_over()
                continue
            self._reached = True
            gateways.learn(
                lambda url: self._sent(
                    url, _Request("GET", "", http_requests.HEADERS).for_gateway(self._token)
                )
            )
            return response, url
        raise TransientError(
            f"no gateway of AIStore answers: {'; '.join(failures)}; "
            "is the endpoint right (AIS_ENDPOINT or `aistore.endpoint`), and is the cluster up?",
            brief=not self._reached,
        )

    def _from_target(self, url: str, request: _Request) -> urllib3.BaseHTTPResponse:
        if request.file is not None:
            request.file.seek(0)
        try:
            return self._sent(url, request)
        except TransientError:
            self._lost = monotonic()
            raise
        except _NoConnectionError as error:
            self._lost = monotonic()
            raise TransientError(
                f"the gateway redirects to {_show_host(url)}, which cannot be reached: {error}; the targets of the "
                "cluster, not only its gateway, must be reachable from here"
            ) from error

    def _sent(self, url: str, request: _Request) -> urllib3.BaseHTTPResponse:
        body = request.body if request.file is None else request.file
        try:
            return self._get(url, request, body)
        except (NewConnectionError, ConnectTimeoutError) as error:
            raise _NoConnectionError(_words(error)) from harmless(error)
        except SSLError as error:
            raise StoreError(
                f"TLS with {_show_host(url)} failed: {_words(error)}; AIS_CLIENT_CA or `aistore.client_ca` names the "
                "certificates to trust, AIS_CRT and AIS_CRT_KEY the client's own"
            ) from error
        except (HTTPError, OSError) as error:
            raise TransientError(f"no answer from {_show_host(url)}: {_words(error)}") from harmless(error)

    def _get(self, url: str, request: _Request, body: bytes | IO[bytes] | None) -> urllib3.BaseHTTPResponse:
        try:
            return http_requests.get(self._manager, url, request.headers, self._timeout, body, request.method)
        except (HTTPError, OSError) as error:
            if (lack := find_lack(error)) is None:
                raise
            raise UnusableStoreError(f"no connection to {_show_host(url)}; {lack}") from harmless(error)


class _NoConnectionError(Exception):
    """Nothing listens there, or nothing answers in time."""


_clients: PerProcess[KeyedValues[AisCluster, AisClient]] = PerProcess(KeyedValues)


def client_for(cluster: AisCluster) -> AisClient:
    """The client of this process for a cluster. Raises StoreError if its certificates cannot be read."""
    return _clients.value.get(cluster, lambda: AisClient(cluster))


def token_in(cluster: AisCluster) -> str | None:
    """The token in the cluster's file: JSON as `ais auth login` writes it, or the token alone.

    Raises StoreError if a file that the user named cannot be read, or has no token.
    """
    path = cluster.token_file
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LONGEST_TOKEN).strip()
        token = json.loads(text)["token"] if text.startswith("{") else text
    except FileNotFoundError:
        if not cluster.token_named:
            return None
        raise StoreError(
            "no such file, where AIStore's token should be; `ais auth login` writes it",
            location=path,
        ) from None
    except (OSError, ValueError, KeyError) as error:
        if (lack := find_lack(error)) is not None:
            raise UnusableStoreError(f"the file of AIStore's token cannot be read; {lack}") from error
        raise StoreError(
            f"the file of AIStore's token cannot be read: {type(error).__name__}; `ais auth login` writes a new one",
            location=path,
        ) from None
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
        raise StoreError(
            "the file of AIStore's token has no token; `ais auth login` writes a new one", location=path
        )
    return token


def _manager(cluster: AisCluster) -> urllib3.PoolManager:
    for path in (cluster.client_ca, cluster.client_crt, cluster.client_key):
        if path is not None and not os.path.isfile(path):
            raise StoreError("no such file, where AIStore's certificates should be", location=path)
    if cluster.skip_verify_crt:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return http_requests.note_manager(
        urllib3.PoolManager(
            maxsize=http_requests.CONNECTIONS,
            cert_reqs="CERT_NONE" if cluster.skip_verify_crt else "CERT_REQUIRED",
            ca_certs=cluster.client_ca,
            cert_file=cluster.client_crt,
            key_file=cluster.client_key,
        )
    )


def _show_host(url: str) -> str:
    """Host and port of a URL; the rest may be signed."""
    return urlsplit(url).netloc


def _words(error: Exception) -> str:
    """The text of an error, without the names of Python objects."""
    cause = error.__cause__ or error.__context__ or error
    return getattr(cause, "strerror", None) or str(cause).rpartition(">: ")[2] or type(cause).__name__


_OVERLOADED = PASSING - {500}
_ADVICE = {
    400: "check the bucket and the name, and whether the cluster's copy is damaged (`ais evict` removes it)",
    401: "log in with `ais auth login`, or set AIS_AUTHN_TOKEN",
    403: "ask for permission to read this bucket",
    501: "this cluster is built without it",
    507: "the cluster has no room for what it fetches; free some space",
}


_NO_BUCKET = re.compile(r"nosuchbucket|errbcknotfound|bucket \"?[a-z]+://[^\s/\"]+/?\"? does not exist")
"""What a target says about a whole bucket; a cloud's missing bucket is noticed only there."""


@dataclass(frozen=True)
class Refusal:
    """An answer without any bytes of a shard."""

    status: int
    text: str
    """Its message, on one line."""
    node: str
    """The node that sent it: `p[…]` for a gateway, `t[…]` for a target, "" if unknown."""
    host: str
    hops: int
    retry_after: float | None = None
    kind: str = ""
    """AIStore's name for the error, "" if unknown."""

    @property
    def is_starting(self) -> bool:
        """Whether the cluster is starting: a gateway has no map of it yet, or its targets have not joined yet."""
        text = self.text.lower()
        return self.status == 400 and (
            self.kind == "ErrNoNodes" or "smap v0" in text or "no storage targets" in text
        )

    @classmethod
    def of(cls, reply: Reply) -> Refusal:
        """Read a reply to its end."""
        status, headers = reply.response.status, reply.response.headers
        data = http_requests.drain(reply.response)
        text, node, kind = data, "", ""
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            said = json.loads(data)
            text, node, kind = (
                str(said["message"]).encode(),
                str(said.get("node", "")),
                str(said.get("tcode", "")),
            )
        wait = retry_after(headers.get("retry-after"))
        words = redact_answer(text.decode("utf-8", "replace"), reply.token or "").encode()
        return cls(status, http_requests.one_line(words, 300), node, reply.host, reply.hops, wait, kind)

    def __str__(self) -> str:
        """The node and its message."""
        who = "the gateway" if self.by_gateway else "the target"
        return f"{who} {self.host} answers {self.status}{f': {self.text}' if self.text else ''}"

    @property
    def by_gateway(self) -> bool:
        """Whether a gateway refuses: then the cluster's configuration is wrong, not the shard."""
        return self.node.startswith("p[") or (self.hops == 0 and not self.node.startswith("t["))

    def error(self, cluster: AisCluster) -> TransientError | ShardError | StoreError:
        """The error to raise.

        Returns:
            TransientError: it may pass. MissingShardError: the object does not exist. ShardError: it cannot be read.
            StoreError: no other shard could be read either.
        """
        text, etl = self.text.lower(), cluster.etl
        if self.status in _OVERLOADED or self.is_starting:
            return TransientError(str(self), retry_after=self.retry_after)
        if self.status == 404 and (self.by_gateway or _NO_BUCKET.search(text)):
            return StoreError(
                f"{self}; does the bucket exist, is its provider configured in the cluster, and is "
                f"{cluster.endpoints[0]} the cluster?"
            )
        if self.status == 404 and etl is not None and ("starting new etl" in text or "etl job" in text):
            return StoreError(f"{self}; start the ETL `{etl.name}`: `ais etl start {etl.name}`")
        if self.status in (404, 410):
            return MissingShardError(f"no such object in AIStore: {self}")
        if self.status >= 500 and self.status not in _ADVICE:
            what = f"the ETL `{etl.name}` fails on this shard" if etl and "etl" in text else "AIStore fails"
            return ShardError(f"{what}: {self}")
        if self.status == 416:
            return ShardError(f"the object is shorter than it was: {self}; start again from a saved state")
        advice = _ADVICE.get(self.status, "check the URL")
        if self.status == 501 and etl is not None:
            advice = "this cluster is built without ETLs"
        return StoreError(f"AIStore refuses: {self}; {advice}")

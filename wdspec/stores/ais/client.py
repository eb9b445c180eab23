"""Asking an AIStore cluster: a gateway says which target has the bytes, and the target gives them.

The token is shown to gateways only. Redirects are followed by hand, taken as they come and never kept: they may be
signed, and expire; and a target may leave.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError
from urllib3.util import Timeout

from wdspec.errors import StoreError
from wdspec.redaction import harmless
from wdspec.stores.ais.gateways import Gateways
from wdspec.stores.ais.missing_objects import MissingObjects
from wdspec.stores.http.exchange import CONNECTIONS, HEADERS, drain, get, is_safe_redirect, redirect_of
from wdspec.stores.settings.ais_cluster import AisCluster
from wdspec.streams.retrying import TransientError
from wdspec.system.per_process import KeyedValues, PerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_HOPS = 5
"""One is usual, and two where an ETL answers by itself."""
_LONGEST_TOKEN = 64 * 1024


@dataclass(frozen=True)
class Reply:
    """What a cluster answered in the end."""

    response: urllib3.BaseHTTPResponse
    host: str
    """Host and port of whom it came from."""
    hops: int
    """Redirects on the way: 0 if a gateway answered by itself."""
    token: str | None = field(default=None, repr=False)
    """What the gateway was shown."""


@dataclass(frozen=True)
class _Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None
    file: IO[bytes] | None = None

    def for_gateway(self, token: str | None) -> _Request:
        """With the token, and without what only a target gets."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        own = self.headers if self.file is None else HEADERS
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
        self.missing = MissingObjects()

    def get(self, target: str, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        """The answer to a GET of a path and query, whatever its status; the caller closes it. See `ask`."""
        return self.ask("GET", target, headers, body)

    def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        file: IO[bytes] | None = None,
    ) -> Reply:
        """The answer to a request for a path and query, whatever its status; the caller closes it.

        Where the token is refused, its file is read again, as tokens expire, and the cluster asked once more.

        Args:
            headers: of the bytes of `file`, if it is given, which is for a target: the gateway only says which.

        Raises:
            TransientError: nobody answered.
            StoreError: certificates or redirects that cannot be trusted, or a token file that cannot be read.
        """
        request = _Request(method, target, headers, body, file)
        reply = self._reply(request)
        if reply.response.status == 401 and self._renew_token():
            reply.response.close()
            reply = self._reply(request)
        return reply

    def _reply(self, request: _Request) -> Reply:
        response, url = self._from_gateway(request)
        try:
            for hops in range(MAX_HOPS + 1):
                try:
                    there = redirect_of(response, url)
                except ValueError as error:
                    raise StoreError(f"AIStore at {_shown(url)} answers by {error}") from None
                if there is None:
                    return Reply(response, urlsplit(url).netloc, hops, self._token)
                if hops < MAX_HOPS:
                    _check_redirect(url, there)
                    url = there
                    drain(response)
                    response = self._from_target(url, request)
        except BaseException:
            response.close()
            raise
        response.close()
        raise StoreError(f"more than {MAX_HOPS} redirects in AIStore, the last one to {_shown(url)}")

    def _renew_token(self) -> bool:
        """Reads the token's file again; whether there is another one now."""
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
                failures.append(f"{_shown(url)}: {error}")
                gateways.pass_over()
                continue
            self._reached = True
            gateways.learn(lambda url: self._sent(url, _Request("GET", "", HEADERS).for_gateway(self._token)))
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
        except _NoConnectionError as error:
            raise TransientError(
                f"the gateway sends us to {_shown(url)}, and there is no connection to that: {error}; the targets of "
                "the cluster, not only its gateway, must be reachable from here"
            ) from error

    def _sent(self, url: str, request: _Request) -> urllib3.BaseHTTPResponse:
        body = request.body if request.file is None else request.file
        try:
            return get(self._manager, url, request.headers, self._timeout, body, request.method)
        except (NewConnectionError, ConnectTimeoutError) as error:
            raise _NoConnectionError(_words(error)) from harmless(error)
        except SSLError as error:
            raise StoreError(
                f"TLS with {_shown(url)} failed: {_words(error)}; AIS_CLIENT_CA or `aistore.client_ca` names the "
                "certificates to trust, AIS_CRT and AIS_CRT_KEY the client's own"
            ) from error
        except (HTTPError, OSError) as error:
            raise TransientError(f"no answer from {_shown(url)}: {_words(error)}") from harmless(error)


def _check_redirect(url: str, target: str) -> None:
    if not is_safe_redirect(url, target):
        raise StoreError(
            f"AIStore at {_shown(url)} redirects from {urlsplit(url).scheme} to {urlsplit(target).scheme}://, which is "
            "refused: anybody could read along; let its targets use https too"
        )


class _NoConnectionError(Exception):
    """Nothing listens there, or nothing comes back in time."""


_clients: PerProcess[KeyedValues[AisCluster, AisClient]] = PerProcess(KeyedValues)


def client_for(cluster: AisCluster) -> AisClient:
    """The client of this process for a cluster.

    Raises:
        StoreError: certificates that cannot be read.
    """
    return _clients.value.get(cluster, lambda: AisClient(cluster))


def token_in(cluster: AisCluster) -> str | None:
    """The token in the cluster's file: JSON as `ais auth login` writes it, or the token alone.

    Raises:
        StoreError: a file that somebody named cannot be read, or holds no token.
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
            "there is no such file, which AIStore's token should be in; `ais auth login` writes it",
            location=path,
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(
            f"the file of AIStore's token cannot be read: {type(error).__name__}; `ais auth login` writes it anew",
            location=path,
        ) from None
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
        raise StoreError(
            "the file of AIStore's token holds none; `ais auth login` writes it anew", location=path
        )
    return token


def _manager(cluster: AisCluster) -> urllib3.PoolManager:
    for path in (cluster.client_ca, cluster.client_crt, cluster.client_key):
        if path is not None and not os.path.isfile(path):
            raise StoreError("no such file, which AIStore's certificates should be in", location=path)
    if cluster.skip_verify_crt:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return urllib3.PoolManager(
        maxsize=CONNECTIONS,
        cert_reqs="CERT_NONE" if cluster.skip_verify_crt else "CERT_REQUIRED",
        ca_certs=cluster.client_ca,
        cert_file=cluster.client_crt,
        key_file=cluster.client_key,
    )


def _shown(url: str) -> str:
    """Whom a URL leads to: what follows may be signed."""
    return urlsplit(url).netloc


def _words(error: Exception) -> str:
    """What an error says, without the names of Python's objects."""
    cause = error.__cause__ or error.__context__ or error
    return getattr(cause, "strerror", None) or str(cause).rpartition(">: ")[2] or type(cause).__name__

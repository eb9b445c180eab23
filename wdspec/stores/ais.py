"""Objects of an AIStore cluster: reading, listing, prefetching and writing.

Every request starts at a gateway, including one that resumes a cut stream (`ais_client.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import IO, Any, BinaryIO, Protocol, cast

import urllib3
from urllib3.exceptions import HTTPError

from wdspec.base.errors import MissingShardError, ShardError, StoreError, WdspecError, install_command
from wdspec.base.process import PerProcess
from wdspec.stores.ais_client import AisClient, Refusal, Reply, client_for
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.http_answers import extent_of, read_number
from wdspec.stores.http_requests import HEADERS, Explain, WireBody, drain
from wdspec.stores.outputs import GatheredOutput, Output
from wdspec.stores.resume import RangeResponse, ResumingStream
from wdspec.stores.retry import Retries, RetryPolicy, TransientError, with_retries
from wdspec.stores.store import KeyStore, ObjectStat, StoreSettings
from wdspec.urls.urls import AIS_PREFIX

log = logging.getLogger("wdspec")

MAX_INTERNAL = 5
"""How many responses with status 500 are retried; a cluster that is only overloaded answers 503 or 429."""
NO_CLUSTER = "the address of AIStore is not known; set AIS_ENDPOINT, or `aistore: {endpoint: …}` in the spec"
_DIRECTORY = 256
"""The flag of a listed entry that is not an object."""
_VALIDATORS = ("ais-version", "ais-checksum-value", "etag")
_PIECE = 1024 * 1024


class AisStore(KeyStore):
    """Objects that an AIStore cluster serves: `ais+gs://bucket/object`."""

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        """A stream; sends no request before the first `read`.

        Raises:
            StoreError: the cluster's address is unknown, or its certificates cannot be read.
            UrlError: a name that AIStore cannot have.
        """
        cluster, url = _cluster(location, settings), location.removeprefix(AIS_PREFIX)
        if not cluster.object(url).name:
            raise ShardError("this names a bucket, not an object in it", location=url)
        retry_policy = replace(
            settings.retry_policy, connect_timeout=cluster.connect_timeout, read_timeout=cluster.read_timeout
        )
        return cast(BinaryIO, ResumingStream(AisShard(client_for(cluster), cluster, url), url, retry_policy))

    def keys(self, root: str, start: str, settings: StoreSettings, depth: int | None) -> Iterator[str]:
        cluster = _cluster(root, settings)
        return list_names(cluster, root.removeprefix(AIS_PREFIX), start, settings.retry_policy)

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> Output:
        return AisUpload(_plain_object(location, settings), overwrite)

    def count_requests(self, location: str, size: int) -> int | None:
        return 1

    def stat(self, location: str, settings: StoreSettings) -> ObjectStat:
        """The size is unknown if an ETL transforms the object.

        If the spec asks for the latest version, a GET makes the cluster fetch it first: a HEAD would answer 409.
        """
        plain = _plain_object(location, settings)
        if plain.cluster.latest:
            shard = AisShard(plain.client, plain.cluster, plain.url)
            with_retries(plain.policy, plain.url, lambda: shard(0).body.close())
        headers = plain.request("HEAD").response.headers
        transformed = settings.ais is not None and settings.ais.etl is not None
        size = None if transformed else read_number(headers.get("content-length"))
        return ObjectStat(size, _validator(headers, is_cloud=not plain.url.startswith("ais://")))

    def announce(self, locations: Iterable[str], settings: StoreSettings) -> None:
        if settings.ais is not None:
            prefetch(settings.ais, (location.removeprefix(AIS_PREFIX) for location in locations))

    def exists(self, location: str, settings: StoreSettings) -> bool:
        return _plain_object(location, settings).exists()

    def delete(self, location: str, settings: StoreSettings) -> None:
        _plain_object(location, settings).delete()

    def describe(self, location: str, settings: StoreSettings) -> str:
        return "AIStore" if settings.ais is not None else NO_CLUSTER


def _cluster(location: str, settings: StoreSettings) -> AisCluster:
    if settings.ais is None:
        raise StoreError(NO_CLUSTER, location=location.removeprefix(AIS_PREFIX))
    return settings.ais


def _plain_object(location: str, settings: StoreSettings) -> _PlainObject:
    cluster = replace(_cluster(location, settings), etl=None)
    return _PlainObject(
        client_for(cluster), cluster, location.removeprefix(AIS_PREFIX), settings.retry_policy
    )


@dataclass(frozen=True)
class _PlainObject:
    """An object as the cluster stores it, without an ETL."""

    client: AisClient
    cluster: AisCluster
    url: str
    policy: RetryPolicy

    def request(
        self,
        method: str,
        headers: Mapping[str, str] | None = None,
        file: IO[bytes] | None = None,
        may_lack: bool = False,
    ) -> Reply:
        """Send a request for the object, and retry it as long as the failure is temporary.

        Args:
            file: what its target gets; a gateway never does.
            may_lack: whether the object may be missing.

        Raises:
            ShardError, StoreError: the cluster refuses, or fails for too long.
        """
        retries = Retries(self.policy, self.url)
        target, headers = self.cluster.target(self.url), {**HEADERS, **(headers or {})}
        while True:
            try:
                reply = self.client.ask(method, target, headers, file=file)
                status = reply.response.status
                # A gateway's own 404 is about the bucket, not the object.
                lacks = status == 410 or (status == 404 and reply.hops > 0)
                if status in (200, 204) or (may_lack and lacks):
                    drain(reply.response)
                    return reply
                raise Refusal.of(reply).error(self.cluster)
            except TransientError as error:
                retries.wait_after(error)
            except (ShardError, StoreError) as error:
                error.at(location=self.url)
                raise

    def exists(self) -> bool:
        """Whether the object exists. Raises ShardError or StoreError where the cluster does not say."""
        return self.request("HEAD", may_lack=True).response.status == 200

    def delete(self) -> None:
        """Delete the object; a missing one is not an error."""
        self.request("DELETE", may_lack=True)


def _validator(headers: Mapping[str, str], *, is_cloud: bool) -> str | None:
    """A header that changes if and only if the object does.

    An object of a cloud has a checksum only after it was fetched. Versions of an object that AIStore itself keeps start
    at 1 again after it was deleted.
    """
    names = _VALIDATORS[::-1] if is_cloud else ("ais-checksum-value", *_VALIDATORS)
    return next((f"{name} {said}" for name in names if (said := (headers.get(name) or "").strip('"'))), None)


class AisShard:
    """Requests one object, from any offset on: the `fetch` of a `ResumingStream`.

    The output of an ETL has neither length nor version, and no ranges. If the spec calls the ETL deterministic, its
    output is taken to be the same each time.
    """

    def __init__(self, client: AisClient, cluster: AisCluster, url: str) -> None:
        self._client, self._cluster, self._url = client, cluster, url
        self._target = cluster.target(url)
        self._first: dict[str, str] | None = None
        self._internal = 0
        self._missing_since: float | None = None
        self._was_there = False
        self._verification: Verification | None = None

    def __call__(self, offset: int, stop: int | None = None) -> RangeResponse:
        """The response with the bytes from an offset on. Raises as a `Fetch`, and StoreError.

        If checksums are verified, the first response is for the whole object, as only that has one to verify.
        """
        if self._cluster.etl is not None or (self._cluster.verifies and not offset):
            stop = None
        headers = dict(HEADERS)
        if (offset or stop is not None) and self._cluster.etl is None:
            headers["Range"] = f"bytes={offset}-{'' if stop is None else stop - 1}"
        try:
            return self._request(headers, offset, stop)
        except StoreError as error:
            error.at(location=self._url)
            raise

    def _request(self, headers: dict[str, str], offset: int, stop: int | None) -> RangeResponse:
        reply = self._client.ask("GET", self._target, headers)
        response = reply.response
        if response.status == 416 and not offset and stop is not None:  # an empty object
            drain(response)
            return self._request(dict(HEADERS), 0, None)
        if response.status not in (200, 206):
            refusal = Refusal.of(reply)
            if refusal.status == 500 and self._internal < MAX_INTERNAL:
                self._internal += 1
                raise TransientError(str(refusal))
            error = refusal.error(self._cluster)
            if isinstance(error, MissingShardError):
                self._missing_since = self._missing_since or monotonic()
                # The object was there before: it is probably on a lost target, and not deleted.
                if self._was_there or not self._client.believes_missing(refusal.host, self._missing_since):
                    raise TransientError(str(refusal), otherwise=error)
            raise error
        explain = partial(_stream_error, reply.host)
        try:
            if response.status == 200:
                answer = self._whole(response, explain)
            else:
                extent = extent_of(206, response.headers, offset)
                body = self._verifying_body(response, explain, extent.start)
                end = None if stop is None or extent.length is None else extent.start + extent.length
                which = self._which(response.headers)
                answer = RangeResponse(body, extent.start, extent.total, which, stop=end)
        except BaseException:
            response.close()
            raise
        self._internal, self._missing_since, self._was_there = 0, None, True
        return answer

    def _whole(self, response: urllib3.BaseHTTPResponse, explain: Explain) -> RangeResponse:
        total = read_number(response.headers.get("content-length"))
        etl = self._cluster.etl
        if etl is not None:
            same = f"what the ETL {etl.name} makes of it" if etl.deterministic else None
            return RangeResponse(WireBody(response, explain), total=total, validator=same, ranges=False)
        check = digest_of(response.headers) if self._cluster.verifies and total else None
        self._verification = Verification(*check, total) if check and total else None
        body = self._verifying_body(response, explain, 0)
        return RangeResponse(
            body, total=total, validator=self._which(response.headers), ranges=total is not None
        )

    def _verifying_body(self, response: urllib3.BaseHTTPResponse, explain: Explain, at: int) -> WireBody:
        """A body that continues the checksum of the whole object."""
        if self._verification is None:
            return WireBody(response, explain)
        return VerifiedBody(response, explain, self._verification, at)

    def _which(self, headers: Mapping[str, str]) -> str | None:
        """Identify the bytes of a response.

        The same as for the first response unless something contradicts it: an object that was just fetched from a
        cloud may not have all its properties yet.
        """
        said = {name: headers[name].strip('"') for name in _VALIDATORS if headers.get(name)}
        if self._first is None:
            self._first = said
        common = said.keys() & self._first.keys()
        if (common or not self._first) and all(said[name] == self._first[name] for name in common):
            said = self._first
        return ", ".join(f"{name} {value}" for name, value in said.items()) or None


class VerifiedBody(WireBody):
    """The bytes of a response from offset `at` on, which count towards the checksum of the whole object."""

    def __init__(
        self, response: urllib3.BaseHTTPResponse, explain: Explain, verification: Verification, at: int
    ) -> None:
        super().__init__(response, explain)
        self._verification, self._at = verification, at

    def read(self, size: int) -> bytes:
        data = super().read(size)
        self._verification.update(data, self._at)
        self._at += len(data)
        return data


def _stream_error(host: str, error: Exception) -> TransientError:
    return TransientError(f"the stream from AIStore {host} broke: {error}")


def list_names(cluster: AisCluster, url: str, start: str, retry_policy: RetryPolicy) -> Iterator[str]:
    """The names of all objects below `gs://bucket/directory/`, at any depth, relative to it.

    Only names that start with `start`, which may be part of a segment. Raises ShardError if the cluster fails for too
    long, and StoreError if it refuses.
    """
    directory = cluster.object(url)
    client, retries = client_for(cluster), Retries(retry_policy, url)
    internal = 0
    page: dict[str, Any] = {"prefix": directory.name + start, "props": "name,size"}
    while True:
        try:
            found = _read_page(client, f"/v1/buckets/{directory.bucket}?{directory.query}", page, cluster)
        except TransientError as error:
            retries.wait_after(error)
            continue
        except ShardError as error:  # an internal error of the cluster, which may pass
            internal += 1
            if internal > MAX_INTERNAL or type(error) is not ShardError:
                raise error.at(location=url) from None
            retries.wait_after(TransientError(error.message))
            continue
        except StoreError as error:
            error.at(location=url)
            raise
        for entry in found.get("entries") or ():
            if not entry["flags"] & _DIRECTORY:
                yield entry["name"][len(directory.name) :]
        if not found.get("continuation_token"):
            return
        page = {**page, "uuid": found.get("uuid", ""), "continuation_token": found["continuation_token"]}


def _read_page(client: AisClient, target: str, value: dict[str, Any], cluster: AisCluster) -> dict[str, Any]:
    headers = {**HEADERS, "content-type": "application/json", "accept": "application/json"}
    reply = client.ask("GET", target, headers, json.dumps({"action": "list", "value": value}).encode())
    if reply.response.status != 200:
        raise Refusal.of(reply).error(cluster)
    try:
        found = json.loads(reply.response.read(decode_content=False))
    except (HTTPError, OSError, ValueError) as error:
        raise TransientError(f"the listing from AIStore {reply.host} broke: {error}") from error
    finally:
        reply.response.close()
    if not isinstance(found, dict):
        raise TransientError(f"AIStore {reply.host} gives no listing, but {str(found)[:80]}")
    try:
        for entry in found.get("entries") or ():
            entry["flags"], entry["name"] = int(entry.get("flags") or 0), str(entry["name"])
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise TransientError(
            f"the listing from AIStore {reply.host} has an invalid entry: {error!r:.100}"
        ) from None
    return found


_refused: PerProcess[set[str]] = PerProcess(set)
"""Buckets that this process no longer asks to prefetch."""


def prefetch(cluster: AisCluster, urls: Iterable[str]) -> None:
    """Ask the cluster to fetch objects that it does not have, one job per bucket.

    Nothing depends on it: the first failure is logged as a warning, and that bucket is not tried again.
    """
    buckets: dict[str, list[str]] = defaultdict(list)
    for url in urls:
        each = cluster.object(url)
        buckets[f"/v1/buckets/{each.bucket}?{each.query}"].append(each.name)
    for target, names in buckets.items():
        place = f"{cluster.endpoints[0]}{target}"
        if place in _refused.value:
            continue
        body = json.dumps({"action": "prefetch-listrange", "value": {"objnames": names, "coer": True}})
        headers = {**HEADERS, "content-type": "application/json"}
        try:
            reply = client_for(cluster).ask("POST", target, headers, body.encode())
            if reply.response.status not in (200, 202):
                raise Refusal.of(reply).error(cluster)
            drain(reply.response)
        except (WdspecError, TransientError) as error:
            _refused.value.add(place)
            log.warning("AIStore does not prefetch from %s: %s", target, error)


class AisUpload(GatheredOutput):
    """An object being written. The cluster shows it only when all its bytes have arrived.

    Afterwards the cluster's length and checksum must match what was sent; otherwise the object is deleted again.

    Raises UsageError if the name is taken, and ShardError or StoreError if the cluster does not answer.
    """

    def __init__(self, plain: _PlainObject, overwrite: bool) -> None:
        self._object = plain
        plain.cluster.target(plain.url)  # refuses impossible names
        super().__init__(plain.url, overwrite)

    def _is_taken(self) -> bool:
        return not self._overwrite and self._object.exists()

    def _put(self, file: IO[bytes]) -> None:
        size = file.seek(0, 2)
        headers = {"content-length": str(size), "content-type": "application/octet-stream"}
        self._object.request("PUT", headers, file)
        said = self._object.request("HEAD").response.headers
        length = said.get("content-length")
        seen = None if length == str(size) else f"its length is {length} there, and not {size}"
        check = digest_of(said)
        if seen is None and check is not None:
            digest, value = check
            file.seek(0)
            while piece := file.read(_PIECE):
                digest.update(piece)
            if digest.hexdigest() != value:
                seen = f"its checksum is {value} there, and not {digest.hexdigest()}"
        if seen is not None:
            with contextlib.suppress(ShardError, StoreError):
                self._object.delete()
            raise ShardError(
                f"the object did not arrive as it was sent: {seen}; write it again", url=self._url
            )


class Digest(Protocol):
    """A checksum being computed."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


class Verification:
    """The checksum of one object, over all responses that it takes to read it from start to end.

    Bytes that are read twice count once. If bytes are skipped, nothing is verified. `value` is the expected checksum.
    """

    def __init__(self, digest: Digest, value: str, total: int) -> None:
        self._digest, self._value, self._total, self._at = digest, value, total, 0

    def update(self, data: bytes, at: int) -> None:
        """Add bytes at an offset. Raises ShardError if the object is complete and its checksum is wrong."""
        new = data[self._at - at :] if at <= self._at else b""
        if not new:
            return
        self._digest.update(new)
        self._at += len(new)
        if self._at == self._total and self._digest.hexdigest() != self._value:
            raise ShardError(
                f"its checksum is {self._digest.hexdigest()}, but AIStore keeps {self._value} for it: bytes were "
                "changed, on the way or in the cluster, perhaps of samples already delivered; read it again, make the "
                "cluster fetch it again (`ais evict`), or, in a spec, switch this check off with "
                "`aistore: {checksum: ignore}`"
            )


def digest_of(headers: Mapping[str, str]) -> tuple[Digest, str] | None:
    """A new digest of the type that a response names, and the expected value.

    None without a checksum, or, with one warning, if it cannot be computed here.
    """
    kind, value = headers.get("ais-checksum-type", "").lower(), headers.get("ais-checksum-value", "").lower()
    if not value or kind in ("", "none"):
        return None
    if kind in ("md5", "sha256", "sha512"):
        return hashlib.new(kind, usedforsecurity=False), value
    advice = "give the bucket checksums of the type xxhash2, md5, sha256 or sha512"
    if kind in ("xxhash", "xxhash2"):  # both are XXH64
        try:
            import xxhash
        except ImportError:
            advice = install_command("wdspec[aistore]")
        else:
            return xxhash.xxh64(), value
    if kind not in _warned:
        _warned.add(kind)
        log.warning(
            "AIStore's checksums of the type %s cannot be verified here: %s, or silence this with "
            "`aistore: {checksum: ignore}`",
            kind,
            advice,
        )
    return None


_warned: set[str] = set()
"""Types of checksums that were warned about."""

"""Shards of an AIStore cluster as streams: every request starts at a gateway, also one that goes on after a cut.

The names of objects in a bucket of an AIStore cluster, asked for page by page.

Coming shards that an AIStore cluster is asked to fetch from their remote buckets, before anybody reads them.

Objects written to an AIStore cluster: gathered in a local file, and sent when they are whole.

The checksums that AIStore keeps of its objects, computed while their bytes pass.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import IO, Any, BinaryIO, Protocol, cast

import urllib3
from urllib3.exceptions import HTTPError

from wdspec.base.errors import MissingShardError, ShardError, StoreError, UsageError, WdspecError
from wdspec.base.process import PerProcess
from wdspec.stores.ais_client import AisClient, Refusal, Reply, client_for
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.http_answers import extent_of
from wdspec.stores.http_requests import HEADERS, Explain, WireBody, drain
from wdspec.stores.outputs import GatheredOutput, Output
from wdspec.stores.resume import RangeResponse, ResumingStream
from wdspec.stores.retry import Retries, RetryPolicy, TransientError, patiently
from wdspec.stores.store import KeyStore, ObjectStat, StoreSettings
from wdspec.urls.urls import AIS_PREFIX

log = logging.getLogger("wdspec")


_told: set[str] = set()
_STANDARD = frozenset({"md5", "sha256", "sha512"})


class Digest(Protocol):
    """A checksum under way."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


class Verification:
    """The checksum of one object, over as many answers as it takes to read it from its start to its end.

    What is read twice counts once; where something is left out, nothing can be said at the end.

    Args:
        digest: under way.
        value: what it must come to.
        total: bytes of the object.
    """

    def __init__(self, digest: Digest, value: str, total: int) -> None:
        self._digest, self._value, self._total, self._at = digest, value, total, 0

    def takes(self, data: bytes, at: int) -> None:
        """Bytes of the object, from an offset on. Raises ShardError where the last of them shows another checksum."""
        if at > self._at or not data:
            return
        new = data[self._at - at :]
        if not new:
            return
        self._digest.update(new)
        self._at += len(new)
        if self._at == self._total and self._digest.hexdigest() != self._value:
            raise ShardError(
                f"its checksum is {self._digest.hexdigest()}, but AIStore keeps {self._value} for it: bytes were "
                "changed, on the way or in the cluster; read it again, or fetch it anew there (`ais evict`), or switch "
                "this off with `aistore: {checksum: ignore}`"
            )


def digest_of(headers: Mapping[str, str]) -> tuple[Digest, str] | None:
    """A fresh digest of the type that the headers of an answer name, and the value it must come to.

    None where there is no checksum, or none that can be computed here, which is said once.
    """
    kind, value = headers.get("ais-checksum-type", "").lower(), headers.get("ais-checksum-value", "").lower()
    if not value or kind in ("", "none"):
        return None
    if kind in _STANDARD:
        return hashlib.new(kind, usedforsecurity=False), value
    if kind in ("xxhash", "xxhash2"):  # both are XXH64
        try:
            import xxhash
        except ImportError:
            _tell(kind, "pip install 'wdspec[aistore]'")
            return None
        return xxhash.xxh64(), value
    _tell(kind, "give the bucket checksums of the type xxhash2, md5, sha256 or sha512")
    return None


def _tell(kind: str, advice: str) -> None:
    if kind not in _told:
        _told.add(kind)
        log.warning(
            "AIStore's checksums of the type %s cannot be verified here: %s, or silence this with "
            "`aistore: {checksum: ignore}`",
            kind,
            advice,
        )


_PIECE = 1024 * 1024


class AisUpload(GatheredOutput):
    """An object being written. The cluster shows it only when all its bytes are there.

    What the cluster then says of it, its length and its checksum, must be what was sent; else it is deleted again.
    Raises:
        UsageError: the name is taken and may not be overwritten.
        ShardError, StoreError: the cluster cannot be asked.
    """

    def __init__(
        self, client: AisClient, cluster: AisCluster, url: str, policy: RetryPolicy, overwrite: bool
    ) -> None:
        self._client, self._cluster, self._url, self._policy = client, cluster, url, policy
        self._target = cluster.target(url)
        self._overwrite = overwrite
        super().__init__()

    def _put(self, file: IO[bytes]) -> None:
        size = file.seek(0, 2)
        self._asked("PUT", {"content-length": str(size), "content-type": "application/octet-stream"}, file)
        self._compare(file, size)

    def _check_free(self) -> None:
        if not self._overwrite and exists(self._client, self._cluster, self._url, self._policy):
            raise UsageError(
                "an object of this name exists; choose another name, or allow overwriting it", url=self._url
            )

    def _compare(self, file: IO[bytes], size: int) -> None:
        """What the cluster has now with what was sent."""
        headers = self._asked("HEAD", {}).response.headers
        length = headers.get("content-length")
        seen = None if length == str(size) else f"its length is {length} there, and not {size}"
        check = digest_of(headers)
        if seen is None and check is not None:
            digest, value = check
            file.seek(0)
            while piece := file.read(_PIECE):
                digest.update(piece)
            if digest.hexdigest() != value:
                seen = f"its checksum is {value} there, and not {digest.hexdigest()}"
        if seen is not None:
            with contextlib.suppress(ShardError, StoreError):
                delete(self._client, self._cluster, self._url, self._policy)
            raise ShardError(
                f"the object did not arrive as it was sent: {seen}; write it again", url=self._url
            )

    def _asked(self, method: str, headers: dict[str, str], file: IO[bytes] | None = None) -> Reply:
        return asked(self._client, self._cluster, self._url, self._policy, method, headers, file)


def exists(client: AisClient, cluster: AisCluster, url: str, policy: RetryPolicy) -> bool:
    """Whether there is such an object. Raises ShardError or StoreError where the cluster does not say."""
    return asked(client, cluster, url, policy, "HEAD", {}, may_lack=True).response.status == 200


def delete(client: AisClient, cluster: AisCluster, url: str, policy: RetryPolicy) -> None:
    """Deletes an object; one that is not there any more is no error."""
    asked(client, cluster, url, policy, "DELETE", {}, may_lack=True)


def asked(
    client: AisClient,
    cluster: AisCluster,
    url: str,
    policy: RetryPolicy,
    method: str,
    headers: dict[str, str],
    file: IO[bytes] | None = None,
    may_lack: bool = False,
) -> Reply:
    """The answer to a request for an object, asked for again as long as it fails in a way that may pass.

    Args:
        file: what its target gets; a gateway never does.
        may_lack: whether there need be no such object.

    Raises:
        ShardError, StoreError: the cluster refuses, or fails for too long.
    """
    retries = Retries(policy, url)
    while True:
        try:
            reply = client.ask(method, cluster.target(url), {**HEADERS, **headers}, file=file)
            if reply.response.status in (200, 204) or (may_lack and reply.response.status in (404, 410)):
                if may_lack and reply.response.status == 404 and not reply.hops:
                    raise Refusal.of(reply).error(cluster)  # the bucket, not the object
                drain(reply.response)
                return reply
            raise Refusal.of(reply).error(cluster)
        except TransientError as error:
            retries.failed(error)
        except (ShardError, StoreError) as error:
            error.at(location=url)
            raise


MAX_INTERNAL = 5
"""Answers 500 that are borne: a cluster that is only overloaded says 503 or 429."""
_DIRECTORY = 256
"""The flag of an entry that is no object."""


def listed_names(cluster: AisCluster, url: str, start: str, retry_policy: RetryPolicy) -> Iterator[str]:
    """The names of all objects below `gs://bucket/directory/`, in any depth, without it.

    Args:
        start: only those that go on with it; a part of a name.

    Raises:
        ShardError: the cluster fails for longer than patience lasts.
        StoreError: it refuses.
    """
    asked = cluster.object(url)
    client, retries = client_for(cluster), Retries(retry_policy, url)
    internal = 0
    page: dict[str, Any] = {"prefix": asked.name + start, "props": "name,size"}
    while True:
        try:
            found = _page(client, f"/v1/buckets/{asked.bucket}?{asked.query}", page, cluster)
        except TransientError as error:
            retries.failed(error)
            continue
        except ShardError as error:  # the cluster's own mistake, which may be one of the moment
            internal += 1
            if internal > MAX_INTERNAL or type(error) is not ShardError:
                raise error.at(location=url) from None
            retries.failed(TransientError(error.message))
            continue
        except StoreError as error:
            error.at(location=url)
            raise
        for entry in found.get("entries") or ():
            if not int(entry.get("flags") or 0) & _DIRECTORY:
                yield entry["name"][len(asked.name) :]
        if not found.get("continuation_token"):
            return
        page = {**page, "uuid": found.get("uuid", ""), "continuation_token": found["continuation_token"]}


def _page(client: AisClient, target: str, value: dict[str, Any], cluster: AisCluster) -> dict[str, Any]:
    headers = {**HEADERS, "content-type": "application/json", "accept": "application/json"}
    body = json.dumps({"action": "list", "value": value}).encode()
    reply = client.get(target, headers, body)
    if reply.response.status != 200:
        error = Refusal.of(reply).error(cluster)
        raise error
    try:
        found = json.loads(reply.response.read(decode_content=False))
    except (HTTPError, OSError, ValueError) as error:
        raise TransientError(f"the listing from AIStore {reply.host} broke: {error}") from error
    finally:
        reply.response.close()
    if not isinstance(found, dict):
        raise TransientError(f"AIStore {reply.host} gives no listing, but {str(found)[:80]}")
    return found


_refused: PerProcess[set[str]] = PerProcess(set)
"""Buckets of which this process asks for nothing any more."""


def prefetch(cluster: AisCluster, urls: Iterable[str]) -> None:
    """Has the cluster begin to fetch objects that it does not hold; one job for each bucket, once each.

    Nothing depends on it: what goes wrong is a warning, the first time, and then that bucket is left alone.

    Args:
        urls: as the cluster serves them, `gs://bucket/object`.
    """
    buckets: dict[str, list[str]] = defaultdict(list)
    for url in urls:
        asked = cluster.object(url)
        buckets[f"/v1/buckets/{asked.bucket}?{asked.query}"].append(asked.name)
    for target, names in buckets.items():
        place = f"{cluster.endpoints[0]}{target}"
        if place in _refused.value:
            continue
        body = json.dumps({"action": "prefetch-listrange", "value": {"objnames": names, "coer": True}})
        try:
            reply = client_for(cluster).ask(
                "POST", target, {**HEADERS, "content-type": "application/json"}, body.encode()
            )
            if reply.response.status not in (200, 202):
                raise Refusal.of(reply).error(cluster)
            drain(reply.response)
        except (WdspecError, TransientError) as error:
            _refused.value.add(place)
            log.warning("AIStore prefetches nothing of %s: %s", target, error)


_SAYS_WHICH = ("ais-version", "ais-checksum-value", "etag")


NO_CLUSTER = "nothing says where AIStore is; set AIS_ENDPOINT, or `aistore: {endpoint: …}` in the spec"


class AisStore(KeyStore):
    """Objects that an AIStore cluster serves: `ais+gs://bucket/object`."""

    def open(self, location: str, settings: StoreSettings) -> BinaryIO:
        """A stream; nothing is asked before it is read.

        Raises:
            StoreError: nothing says where the cluster is, or its certificates cannot be read.
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
        return listed_names(cluster, root.removeprefix(AIS_PREFIX), start, settings.retry_policy)

    def output(
        self, location: str, settings: StoreSettings, *, overwrite: bool = True, since: int | None = None
    ) -> Output:
        return AisUpload(*_place(location, settings), overwrite)

    def stat(self, location: str, settings: StoreSettings) -> ObjectStat:
        """Of what an ETL makes of the object the size is not known.

        Where the latest version is wanted, the cluster is made to have it first: to a HEAD it would say 409.
        """
        client, cluster, url, policy = _place(location, settings)
        if cluster.latest:
            patiently(policy, url, lambda: AisShard(client, cluster, url)(0).body.close())
        headers = asked(client, cluster, url, policy, "HEAD", {}).response.headers
        length = headers.get("content-length") or ""
        transformed = settings.ais is not None and settings.ais.etl is not None
        size = int(length) if length.isdigit() and not transformed else None
        return ObjectStat(size, _version(headers, is_cloud=not url.startswith("ais://")))

    def announce(self, locations: Iterable[str], settings: StoreSettings) -> None:
        if settings.ais is not None:
            prefetch(settings.ais, (location.removeprefix(AIS_PREFIX) for location in locations))

    def exists(self, location: str, settings: StoreSettings) -> bool:
        return exists(*_place(location, settings))

    def delete(self, location: str, settings: StoreSettings) -> None:
        delete(*_place(location, settings))

    def describe(self, location: str, settings: StoreSettings) -> str:
        return "AIStore" if settings.ais is not None else NO_CLUSTER


def _place(location: str, settings: StoreSettings) -> tuple[AisClient, AisCluster, str, RetryPolicy]:
    """Where an object is written. What an ETL makes of it is for reading."""
    cluster = replace(_cluster(location, settings), etl=None)
    return client_for(cluster), cluster, location.removeprefix(AIS_PREFIX), settings.retry_policy


def _version(headers: Mapping[str, str], *, is_cloud: bool) -> str | None:
    """What changes with an object, and only then.

    An object of a cloud has a checksum only once it was fetched; the versions of one in AIStore itself begin at 1 again
    when it was deleted meanwhile.
    """
    names = _SAYS_WHICH[::-1] if is_cloud else ("ais-checksum-value", *_SAYS_WHICH)
    return next((f"{name} {said}" for name in names if (said := (headers.get(name) or "").strip('"'))), None)


def _cluster(location: str, settings: StoreSettings) -> AisCluster:
    if settings.ais is None:
        raise StoreError(NO_CLUSTER, location=location.removeprefix(AIS_PREFIX))
    return settings.ais


class AisShard:
    """Asks for one object, from any offset to its end: the `fetch` of a `ResumingStream`.

    What an ETL makes of an object has neither length nor version, and no ranges can be asked of it. If the spec says
    that it is deterministic, it is taken for the same each time.
    """

    def __init__(self, client: AisClient, cluster: AisCluster, url: str) -> None:
        self._client, self._cluster, self._url = client, cluster, url
        self._target = cluster.target(url)
        self._first: dict[str, str] | None = None
        self._internal = 0
        self._missing_since: float | None = None
        self._verification: Verification | None = None

    def __call__(self, offset: int) -> RangeResponse:
        """The answer for the bytes from an offset on.

        Raises:
            TransientError: it may be had later.
            MissingShardError, ShardError, StoreError: it cannot be had.
        """
        headers = dict(HEADERS)
        if offset and self._cluster.etl is None:
            headers["Range"] = f"bytes={offset}-"
        try:
            return self._answer(headers, offset)
        except StoreError as error:
            error.at(location=self._url)
            raise

    def _answer(self, headers: dict[str, str], offset: int) -> RangeResponse:
        reply = self._client.get(self._target, headers)
        response = reply.response
        if response.status not in (200, 206):
            refusal = Refusal.of(reply)
            if refusal.status == 500 and self._internal < MAX_INTERNAL:
                self._internal += 1
                raise TransientError(str(refusal))
            error = refusal.error(self._cluster)
            if isinstance(error, MissingShardError):
                self._missing_since = self._missing_since or monotonic()
                if not self._client.missing.counts(refusal.host, self._missing_since):
                    raise TransientError(str(refusal), otherwise=error)
            raise error
        explain = partial(_broken, reply.host)
        try:
            if response.status == 200:
                answer = self._whole(response, explain)
            else:
                extent = extent_of(206, response.headers, offset)
                body = self._verified(response, explain, extent.start)
                answer = RangeResponse(body, extent.start, extent.total, self._which(response.headers))
        except BaseException:
            response.close()
            raise
        self._internal, self._missing_since = 0, None
        return answer

    def _whole(self, response: urllib3.BaseHTTPResponse, explain: Explain) -> RangeResponse:
        length = response.headers.get("content-length")
        total = int(length) if length and length.isdigit() else None
        etl = self._cluster.etl
        if etl is not None:
            same = f"what the ETL {etl.name} makes of it" if etl.deterministic else None
            return RangeResponse(WireBody(response, explain), total=total, validator=same, ranges=False)
        check = digest_of(response.headers) if self._cluster.verifies and total else None
        self._verification = Verification(*check, total) if check and total else None
        body = self._verified(response, explain, 0)
        return RangeResponse(
            body, total=total, validator=self._which(response.headers), ranges=total is not None
        )

    def _verified(self, response: urllib3.BaseHTTPResponse, explain: Explain, at: int) -> WireBody:
        """A body that goes on with the checksum of the object, which is what an answer of a part says, too."""
        if self._verification is None:
            return WireBody(response, explain)
        return VerifiedBody(response, explain, self._verification, at)

    def _which(self, headers: Mapping[str, str]) -> str | None:
        """What says which bytes these are.

        Equal to what the first answer said as long as nothing contradicts it: an object that was just fetched from a
        cloud may not have all its properties yet.
        """
        said = {name: headers[name].strip('"') for name in _SAYS_WHICH if headers.get(name)}
        if self._first is None:
            self._first = said
        common = said.keys() & self._first.keys()
        if (common or not self._first) and all(said[name] == self._first[name] for name in common):
            said = self._first
        return ", ".join(f"{name} {value}" for name, value in said.items()) or None


class VerifiedBody(WireBody):
    """The bytes of an answer, which count towards the checksum of the object.

    Args:
        verification: of the whole object.
        at: offset in it of the first byte.
    """

    def __init__(
        self, response: urllib3.BaseHTTPResponse, explain: Explain, verification: Verification, at: int
    ) -> None:
        super().__init__(response, explain)
        self._verification, self._at = verification, at

    def read(self, size: int) -> bytes:
        data = super().read(size)
        self._verification.takes(data, self._at)
        self._at += len(data)
        return data


def _broken(host: str, error: Exception) -> TransientError:
    return TransientError(f"the stream from AIStore {host} broke: {error}")

"""Objects written to an AIStore cluster: gathered in a local file, and sent when they are whole.

The checksums that AIStore keeps of its objects, computed while their bytes pass.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Mapping
from typing import IO, Protocol

from wdspec.base.errors import ShardError, StoreError, UsageError
from wdspec.stores.ais_client import AisClient, Refusal, Reply
from wdspec.stores.ais_cluster import AisCluster
from wdspec.stores.http_requests import HEADERS, drain
from wdspec.stores.outputs import GatheredOutput
from wdspec.stores.retry import Retries, RetryPolicy, TransientError

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

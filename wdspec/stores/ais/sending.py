"""Objects written to an AIStore cluster: gathered in a local file, and sent when they are whole."""

from __future__ import annotations

import contextlib
from typing import IO

from wdspec.errors import ShardError, StoreError, UsageError
from wdspec.outputs.gathered_output import GatheredOutput
from wdspec.stores.ais.checksums import digest_of
from wdspec.stores.ais.client import AisClient, Reply
from wdspec.stores.ais.refusals import Refusal
from wdspec.stores.http.exchange import HEADERS, drain
from wdspec.stores.settings.ais_cluster import AisCluster
from wdspec.streams.retrying import Retries, RetryPolicy, TransientError

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

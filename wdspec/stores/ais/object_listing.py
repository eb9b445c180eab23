"""The names of objects in a bucket of an AIStore cluster, asked for page by page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from urllib3.exceptions import HTTPError

from wdspec.errors import ShardError, StoreError
from wdspec.stores.ais.client import AisClient, client_for
from wdspec.stores.ais.refusals import Refusal
from wdspec.stores.http.exchange import HEADERS
from wdspec.stores.settings.ais_cluster import AisCluster
from wdspec.streams.retrying import Retries, RetryPolicy, TransientError

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

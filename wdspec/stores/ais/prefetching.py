"""Coming shards that an AIStore cluster is asked to fetch from their remote buckets, before anybody reads them."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable

from wdspec.errors import WdspecError
from wdspec.stores.ais.client import client_for
from wdspec.stores.ais.refusals import Refusal
from wdspec.stores.http.exchange import HEADERS, drain
from wdspec.stores.settings.ais_cluster import AisCluster
from wdspec.streams.retrying import TransientError
from wdspec.system.per_process import PerProcess

log = logging.getLogger("wdspec")

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

"""What an AIStore cluster means by a status: wait, skip the shard, or mend the set-up."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass

from wdspec.errors import MissingShardError, ShardError, StoreError
from wdspec.redaction import answered
from wdspec.stores.ais.client import Reply
from wdspec.stores.http.answers import retry_after
from wdspec.stores.http.exchange import drain, one_line
from wdspec.stores.settings.ais_cluster import AisCluster
from wdspec.streams.retrying import PASSING, TransientError

_OVERLOADED = PASSING - {500}
_ADVICE = {
    400: "check the bucket and the name",
    401: "log in with `ais auth login`, or set AIS_AUTHN_TOKEN",
    403: "ask for permission to read this bucket",
    501: "this cluster is built without it",
    507: "the cluster has no room for what it fetches; make some",
}


_NO_BUCKET = re.compile(r"nosuchbucket|errbcknotfound|bucket \"?[a-z]+://[^\s/\"]+/?\"? does not exist")
"""What a target says of the whole bucket: a cloud's missing bucket shows only there."""


@dataclass(frozen=True)
class Refusal:
    """An answer that holds no bytes of a shard."""

    status: int
    text: str
    """What it says, on one line."""
    node: str
    """Who says so: `p[…]` for a gateway, `t[…]` for a target, or "" if it is not told."""
    host: str
    hops: int
    retry_after: float | None = None

    @classmethod
    def of(cls, reply: Reply) -> Refusal:
        """Reads what a reply says, and is done with it."""
        status, headers = reply.response.status, reply.response.headers
        data = drain(reply.response)
        text, node = data, ""
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            said = json.loads(data)
            text, node = str(said["message"]).encode(), str(said.get("node", ""))
        wait = retry_after(headers.get("retry-after"))
        words = answered(text.decode("utf-8", "replace"), reply.token or "").encode()
        return cls(status, one_line(words, 300), node, reply.host, reply.hops, wait)

    def __str__(self) -> str:
        """Who says what."""
        who = "the gateway" if self.by_gateway else "the target"
        return f"{who} {self.host} answers {self.status}{f': {self.text}' if self.text else ''}"

    @property
    def by_gateway(self) -> bool:
        """Whether it is a gateway that says so: then the cluster's set-up is at fault, not the shard."""
        return self.node.startswith("p[") or (self.hops == 0 and not self.node.startswith("t["))

    def error(self, cluster: AisCluster) -> TransientError | ShardError | StoreError:
        """The error that it is.

        Returns:
            TransientError: it may pass; MissingShardError: there is no such object; ShardError: it cannot be
            read; StoreError: no other shard could be read either.
        """
        text, etl = self.text.lower(), cluster.etl
        if self.status in _OVERLOADED or (self.status == 400 and "smap v0" in text):
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
